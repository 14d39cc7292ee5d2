"""What leaves a person, who may take part, and what people refuse to go on with."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.k_anonymity.suppression.parties import ROWS, board, signed, small, word

from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.crypto.elgamal import POINT, decode_rows
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.crypto.group import Secret
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.k_anonymity.suppression.comparison import MixedPairs
from masquerade.protocols.k_anonymity.suppression.messages import (
    AGREEMENT,
    NOTICES,
    RELEASE,
    AddressedReport,
    Boards,
    Bundle,
    Closings,
    GroupVote,
    Notices,
    TableRelease,
    Word,
)
from masquerade.protocols.k_anonymity.suppression.roles import Person
from masquerade.protocols.k_anonymity.threshold.messages import (
    Closing,
    Credential,
    EvaluationRefusal,
    Notice,
    Request,
)
from masquerade.protocols.mixnet.messages import SUBMISSION, MixBoard, SignedMixMessage
from masquerade.protocols.people.ledger import FileLedger


class Watched:
    """A run of a small population, with everything that people and the miner sent."""

    def __init__(self, rows=ROWS, **options):
        self.population = p = small(rows, **options)
        self.keys = p.keys()
        self.submissions = [person.submit(self.keys) for person in p.people]
        self.batch = p.miner.batch(self.submissions)
        mixings = p.mixings(self.batch)
        endorsements = p.endorsements(self.batch, mixings)
        self.boards = Boards(
            self.keys, self.batch, mixings, endorsements, p.openings(self.batch, mixings, endorsements)
        )

    def agreed(self):
        p = self.population
        self.words = [person.agree(self.boards, p.partition) for person in p.people]
        self.agreement = p.miner.agreement_board(self.boards, self.words, p.partition)
        self.notices = p.randomness.begin(self.agreement)
        return self

    def reported(self, *, without=()):
        p = self.population
        people = [person for place, person in enumerate(p.people) if place not in without]
        self.requests = [person.request(self.agreement, self.notices) for person in people]
        self.replies = p.randomness.evaluate(self.requests)
        self.closings = p.randomness.close()
        self.reports = [
            one
            for person, reply in zip(people, self.replies, strict=True)
            for one in person.report(reply, self.closings)
        ]
        return self

    def released(self, reports=None):
        passed = self.population.holders[0].pass_on(self.reports if reports is None else reports)
        return self.population.miner.release(self.agreement, self.notices, self.closings, passed)


def test_nothing_that_people_send_holds_a_clear_value():
    run = Watched([("Hackensack", "blacksmith"), ("Hackensack", "carpenter"), *ROWS[2:]]).agreed().reported()
    everything = b"".join([*run.submissions, *run.words, *run.requests, *run.reports])
    for value in ("Hackensack", "blacksmith", "carpenter", "Newark", "baker", "clerk"):
        assert value.encode() not in everything
        for place in range(2):
            # nor the number that stands for it, or its point
            number = run.population.terms.exponent(place, value.encode())
            assert number.reveal().to_bytes(32, "big") not in everything
            assert secp256k1.multiply_generator(number).encode() not in everything
    assert len({len(one) for one in run.submissions}) == 1  # lengths tell nothing either
    assert len({len(one) for one in run.reports}) == 1


def test_opening_a_row_needs_every_share_of_the_key(monkeypatch):
    monkeypatch.setattr(Secret, "wipe", lambda _self: None)  # shares are overwritten once they have opened
    run = Watched()
    terms, parties = run.population.terms, [*run.population.holders, run.population.miner]
    (row,) = decode_rows(SignedMixMessage.decode(run.submissions[0]).payload[: 4 * POINT], 2)
    for size in range(len(parties) + 1):
        for some in combinations(parties, size):
            masks = [
                secp256k1.sum_points([secp256k1.multiply(pair.a, one._secret) for one in some])
                for pair in row
            ]
            points = [pair.b - mask for pair, mask in zip(row, masks, strict=True)]
            meant = [
                secp256k1.multiply_generator(terms.exponent(place, value.encode()))
                for place, value in enumerate(ROWS[0])
            ]
            assert (points == meant) == (size == len(parties))


def test_only_the_enrolled_take_part():
    population = small()
    with pytest.raises(InputError, match="not enrolled"):
        Person("stranger", SigningKey(), population.terms, ROWS[0])
    with pytest.raises(InputError, match="not enrolled"):
        Person("person 1", SigningKey(), population.terms, ROWS[0])  # somebody else's name
    keys = population.keys()
    submissions = [person.submit(keys) for person in population.people]
    payload = SignedMixMessage.decode(submissions[0]).payload
    stranger, other = SigningKey(), population.terms.mix
    as_stranger = SignedMixMessage.make(other, stranger, SUBMISSION, "stranger", payload).encode()
    as_person = SignedMixMessage.make(other, stranger, SUBMISSION, "person 1", payload).encode()
    batch = population.miner.batch([as_stranger, as_person, *submissions])
    assert MixBoard.decode(batch).parts == tuple(submissions)
    for extra in (as_stranger, as_person):  # a miner that lets them in finds no holder
        with pytest.raises((DecodingError, RoundAborted)):
            population.holders[0].shuffle(board(extra, *submissions[1:]), board())


def test_copied_and_replayed_rows_are_refused():
    population, other = small(), small()
    keys = population.keys()
    submissions = [person.submit(keys) for person in population.people]
    stolen = SignedMixMessage.decode(submissions[0]).payload
    copied = signed(population, "person 2", SUBMISSION, stolen)  # to be at distance 0 from person 1
    population.miner.batch([submissions[0], copied, *submissions[2:]])
    assert population.miner.refused == ("person 2",)
    replayed = SignedMixMessage.decode(other.people[1].submit(other.keys())).payload
    with pytest.raises(RoundAborted) as aborted:
        population.holders[0].shuffle(
            board(submissions[0], signed(population, "person 2", SUBMISSION, replayed), *submissions[2:]),
            board(),
        )
    assert aborted.value.culprits == ("person 2",)


def test_a_row_leaves_once_even_after_a_restart(tmp_path):
    population = small()
    keys = population.keys()
    for attempt in range(2):
        ledger = FileLedger(tmp_path / "ledger")
        person = Person(
            "person 1", population.identities["person 1"], population.terms, ROWS[0], ledger=ledger
        )
        if attempt:
            with pytest.raises(KeySpent):
                person.submit(keys)
        else:
            person.submit(keys)
        ledger.close()


def test_too_few_rows_are_never_compared():
    population = small()
    submissions = [person.submit(population.keys()) for person in population.people[:2]]
    with pytest.raises(RoundAborted, match="too few"):
        population.holders[0].shuffle(board(*submissions), board())


def test_whoever_is_left_out_does_not_go_on():
    run = Watched()
    without = board(*MixBoard.decode(run.batch).parts[1:])
    with pytest.raises(RoundAborted, match="row was not compared") as aborted:
        run.population.people[0].agree(run.boards._replace(batch=without), run.population.partition)
    assert aborted.value.culprits == ("miner",)
    with pytest.raises(RoundAborted):  # and the others' boards do not fit the signatures
        run.population.people[1].agree(run.boards._replace(batch=without), run.population.partition)


def test_people_who_come_to_different_groups_stop():
    run = Watched()
    people, partition = run.population.people, run.population.partition
    words = [person.agree(run.boards, partition) for person in people[:3]]
    words.append(people[3].agree(run.boards, lambda _between, _k: [0, 1, 0, 1]))
    with pytest.raises(RoundAborted, match="different groups") as aborted:
        run.population.miner.agreement_board(run.boards, words, partition)
    assert aborted.value.culprits == ("person 4",)
    with pytest.raises(RoundAborted, match="No agreement came from person 4"):
        run.population.miner.agreement_board(run.boards, words[:3], partition)
    with pytest.raises(RoundAborted):  # the randomness server looks for itself
        run.population.randomness.begin(board(*words))


def test_the_miner_compares_the_groups_with_its_own():
    run = Watched()
    words = [person.agree(run.boards, run.population.partition) for person in run.population.people]
    with pytest.raises(RoundAborted, match="People and the miner computed different groups"):
        run.population.miner.agreement_board(run.boards, words, lambda _between, _k: [0, 1, 0, 1])


@pytest.mark.parametrize("groups", [[0, 0, 0, 1], [0, 0, 1], np.zeros((4, 1), int)])
def test_a_partition_with_small_groups_or_missing_people_is_refused(groups):
    run = Watched()
    with pytest.raises(InputError, match="group"):
        run.population.people[0].agree(run.boards, lambda _between, _k: groups)


def test_an_agreement_on_small_groups_is_refused():
    run = Watched()
    words = [
        word(run.population, person.name, AGREEMENT, GroupVote(bytes(32), bytes(32), (0, 0, 0, 1)).encode())
        for person in run.population.people
    ]
    with pytest.raises(DecodingError, match="fewer than 2"):
        run.population.randomness.begin(board(*words))


def test_a_board_without_one_persons_agreement_stops_everybody():
    run = Watched().agreed()
    with pytest.raises(RoundAborted) as aborted:
        run.population.people[0].request(board(*run.words[:3]), run.notices)
    assert aborted.value.culprits == ("miner",)


def test_an_agreement_on_other_distances_stops_whoever_saw_these():
    run = Watched().agreed()
    words = []
    for one in run.words:
        said = GroupVote.decode(Word.decode(one).payload)
        other = GroupVote(bytes(32), said.key, said.groups).encode()
        words.append(word(run.population, Word.decode(one).sender, AGREEMENT, other))
    with pytest.raises(RoundAborted, match="groups other than those that this person signed") as aborted:
        run.population.people[0].request(board(*words), run.notices)
    assert aborted.value.culprits == ("miner",)


def changed_notices(run, **changes):
    said = Notices.decode(Word.decode(run.notices).payload)
    return word(run.population, "randomness server", NOTICES, replace(said, **changes).encode())


def lower_threshold(run):
    """Return notices under which two of a group of three would open a value."""
    terms = run.population.terms.opening_terms(0, 0, 2)
    said = Notices.decode(Word.decode(run.notices).payload)
    server = run.population.randomness._servers[0]
    fresh = Notice.sign(terms, Notice.decode(said.notices[0]).public, server._signing).encode()
    return changed_notices(run, notices=(fresh, *said.notices[1:]))


@pytest.mark.parametrize(
    "change",
    [
        lower_threshold,
        lambda run: changed_notices(run, agreement=bytes(32)),
        lambda run: changed_notices(run, notices=()),
        lambda run: changed_notices(run, identities=(bytes(31) + b"\x05",)),
        lambda run: changed_notices(run, credentials=(bytes(100),) * 3),
    ],
)
def test_notices_that_would_open_too_much_are_refused(change):
    run = Watched([("a", "x"), ("a", "x"), ("a", "y")]).agreed()
    with pytest.raises(RoundAborted, match="not for this person's group") as aborted:
        run.population.people[0].request(run.agreement, change(run))
    assert aborted.value.culprits == ("randomness server",)


def test_notices_and_releases_are_signed_and_released_once():
    run = Watched().agreed()
    with pytest.raises(RoundAborted, match="not signed"):
        run.population.people[0].request(run.agreement, flipped(run.notices))
    release = run.reported().released()
    with pytest.raises(RoundAborted, match="not signed"):
        run.population.people[0].accept(flipped(release))
    with pytest.raises(DecodingError):
        run.population.people[0].accept(run.notices)
    with pytest.raises(DecodingError):
        run.population.people[0].accept(release[:-1])
    with pytest.raises(KeySpent):
        run.population.miner.release(run.agreement, run.notices, run.closings, run.reports)


def flipped(data):
    """Return a message with one bit of its signature changed."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_nobody_reports_before_the_keys_are_destroyed():
    run = Watched().agreed()
    person = run.population.people[0]
    request = person.request(run.agreement, run.notices)
    (reply,) = run.population.randomness.evaluate([request])
    open_ones = Closings((b"",) * 4).encode()
    for closings in (open_ones, Closings(()).encode(), b"nonsense"):
        with pytest.raises(RoundAborted) as aborted:
            person.report(reply, closings)
        assert aborted.value.culprits == ("randomness server",)
    closings = run.population.randomness.close()
    parts = Closings.decode(closings).parts
    notice, signing = Closing.decode(parts[0]).notice, run.population.randomness._servers[0]._signing
    for first, reason in (
        (parts[2], "does not belong"),  # another group's
        (parts[1], "another key"),  # another attribute's
        (flipped(parts[0]), "does not belong"),
        (Closing.sign(notice, 3, signing).encode(), "more values"),
    ):
        with pytest.raises(RoundAborted, match=reason):
            person.report(reply, Closings((first, *parts[1:])).encode())
    assert person.report(reply, closings) == person.report(reply, closings)


def test_only_members_have_values_evaluated_and_once():
    run = Watched().agreed()
    people, server = run.population.people, run.population.randomness
    requests = [person.request(run.agreement, run.notices) for person in people]
    first, third = Bundle.decode(requests[0]), Bundle.decode(requests[2])
    server.evaluate(requests)
    for bundle in (
        Bundle("stranger", first.parts),
        Bundle("person 3", first.parts),  # of another group, whose server does not know the credential
    ):
        (reply,) = server.evaluate([bundle.encode()])
        assert {EvaluationRefusal.decode(part).reason for part in Bundle.decode(reply).parts} == {
            "not_enrolled"
        }
    # a member who tries a second value with the same credential
    credential = Credential.decode(run.population.randomness._servers[1].enrol("person 3"))
    asked = Request.decode(third.parts[0])
    guess = Request.make(asked.notice, credential, Request.decode(first.parts[0]).element).encode()
    (reply,) = server.evaluate([Bundle("person 3", (guess, third.parts[1])).encode()])
    assert EvaluationRefusal.decode(Bundle.decode(reply).parts[0]).reason == "already_spent"
    with pytest.raises(QueryRefused):
        people[2].report(reply, server.close())


def test_one_persons_nonsense_does_not_keep_the_others_waiting():
    run = Watched().agreed()
    person, server = run.population.people[0], run.population.randomness
    request = person.request(run.agreement, run.notices)
    short = Bundle("person 2", Bundle.decode(request).parts[:1]).encode()
    nonsense, cut, good = server.evaluate([b"nonsense", short, request])
    for reply in (nonsense, cut):
        assert {EvaluationRefusal.decode(part).reason for part in Bundle.decode(reply).parts} == {"malformed"}
    assert len(person.report(good, server.close())) == 2


def test_a_group_that_agrees_on_nonsense_harms_nobody_else():
    run = Watched().agreed()
    for person in run.population.people[:2]:
        person._party._values = (b"\xff\xfe", person._values[1])  # behind its meter
    release = run.reported().released()
    table = run.population.people[3].accept(release)
    assert list(table.values()) == [(None, "nurse"), (None, "nurse"), ("Newark", None), ("Newark", None)]


def test_one_who_leaves_before_reporting_costs_only_their_own_group():
    run = Watched().agreed().reported(without=[3])
    table = run.population.people[0].accept(run.released())
    assert list(table.values()) == [ROWS[0], ROWS[1], (None, None), (None, None)]


def test_lost_reports_and_made_up_values_are_noticed():
    run = Watched().agreed().reported()
    release = run.released(run.reports[1:])
    with pytest.raises(RoundAborted, match="did not arrive") as aborted:
        run.population.people[0].accept(release)
    assert aborted.value.culprits == ("key holder 1", "miner")
    said = TableRelease.decode(Word.decode(release).payload)
    for value in (b"Trenton", b"T" * 1000):
        forged = TableRelease(said.agreement, ((value,), *said.values[1:]), said.receipts).encode()
        with pytest.raises(RoundAborted, match="did not report"):
            run.population.people[0].accept(word(run.population, "miner", RELEASE, forged))
    short = TableRelease(said.agreement, said.values[1:], said.receipts).encode()
    with pytest.raises(RoundAborted, match="agreed groups"):
        run.population.people[0].accept(word(run.population, "miner", RELEASE, short))


def test_reports_that_nobody_sealed_harm_nothing():
    run = Watched().agreed().reported()
    size = len(run.reports[0])
    release = run.released([*run.reports, b"\x01" * size])
    assert run.population.miner.unreadable == 1
    assert list(run.population.people[0].accept(release).values()) == [
        ROWS[0],
        ROWS[1],
        ("Newark", None),
        ("Newark", None),
    ]


def test_reports_pass_once_through_the_first_holder_and_have_one_length():
    run = Watched().agreed().reported()
    first, second = run.population.holders
    with pytest.raises(InputError, match="first key holder"):
        second.pass_on(run.reports)
    with pytest.raises(InputError, match="same length"):
        first.pass_on([*run.reports, b"longer"])
    many = [bytes([i]) * 9 for i in range(40)]
    passed = first.pass_on(many)
    assert passed != many  # the same order has probability 1/40!
    assert sorted(passed) == many
    with pytest.raises(InputError, match="all together"):
        first.pass_on(run.reports)


@pytest.mark.parametrize(
    "kind", [Word, GroupVote, Notices, Bundle, Closings, AddressedReport, TableRelease, MixedPairs]
)
@given(junk=st.binary(max_size=80), keep_tag=st.booleans())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_bytes_raise_the_one_decoding_error(kind, junk, keep_tag):
    data = len(kind.TAG).to_bytes(4, "big") + kind.TAG + junk if keep_tag else junk
    try:
        found = kind.decode(data)
    except DecodingError:
        return
    assert found.encode() == data
