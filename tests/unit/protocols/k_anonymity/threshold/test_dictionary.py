"""Trying every quasi-identifier: works on a plain hash, costs a credential a try with a randomness server."""

import hashlib

from tests.unit.protocols.k_anonymity.threshold.world import World

from masquerade.crypto.class_secrets import key_of, secret_of, tag_of
from masquerade.crypto.oprf import POINT_SIZE, output_of
from masquerade.crypto.symmetric import unseal
from masquerade.protocols.k_anonymity.threshold.messages import EvaluationRefusal, read_reply
from masquerade.protocols.k_anonymity.threshold.roles import report_of

EVERY_ZIP = [b"%05d" % n for n in range(7000, 7060)]
VICTIM = b"07028"


def cracked(layout, report, secrets):
    """Return what a sealed part holds, if one of the secrets opens it."""
    record = layout.read(report)[0]
    for secret in secrets:
        if tag_of(secret) == record["tag"].tobytes():
            return unseal(key_of(secret), record["sealed"].tobytes(), layout.bound_to(tag_of(secret)))
    return None


def hashed(layout, quasi):
    return secret_of(hashlib.sha512(layout.terms.input_of(quasi)).digest())


def test_without_the_oblivious_function_a_dictionary_opens_a_class_of_one():
    layout = World().layout
    report = report_of(layout, hashed(layout, VICTIM), bytes(POINT_SIZE), VICTIM, b"stroke", x=1)
    plain = cracked(layout, report, [hashed(layout, guess) for guess in EVERY_ZIP])
    assert b"stroke" in plain


def asked(world, person, guess, collected):
    """Return the secret of a guess as far as the server gives it, else the refusal."""
    client = world.client(person)
    (reply,) = world.server.evaluate([client.request(guess)])
    answer = read_reply(reply)
    if isinstance(answer, EvaluationRefusal):
        collected.append(answer.reason)
        return None
    return secret_of(output_of(world.terms.input_of(guess), client._unblind(reply)))


def test_with_it_the_second_try_is_refused():
    world = World()
    (report,) = world.reports([(VICTIM, b"stroke")])
    assert cracked(world.layout, report, [hashed(world.layout, guess) for guess in EVERY_ZIP]) is None
    refused = []
    secrets = [asked(world, "mallory", guess, refused) for guess in EVERY_ZIP]
    assert refused == ["already_spent"] * (len(EVERY_ZIP) - 1)
    assert cracked(world.layout, report, [secret for secret in secrets if secret]) is None
    world.server.close("spring")
    assert asked(world, "mallory's friend", VICTIM, refused) is None
    assert refused[-1] == "epoch_closed"


def test_a_member_of_the_class_who_colludes_opens_it_below_k():
    """The leak that is documented: one right guess, one credential, and the class is open whatever k is."""
    world = World()
    (report,) = world.reports([(VICTIM, b"stroke")])
    secret = asked(world, "mallory", VICTIM, [])
    assert b"stroke" in cracked(world.layout, report, [secret])
    assert list(world.opening([report]).rows()) == []  # the protocol itself opens nothing
