"""What a state folder gives to whoever steals it, or puts an older part of it back."""

from __future__ import annotations

import shutil

import pytest
from tests.services.threshold.test_restarts import changed
from tests.services.threshold.world import K, World, labels

from masquerade.core.errors import InputError, QueryRefused
from masquerade.crypto import oprf
from masquerade.crypto.class_secrets import key_of, secret_of, tag_of
from masquerade.crypto.keys import derive
from masquerade.crypto.symmetric import unseal
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import (
    Credential,
    Evaluation,
    EvaluationRefusal,
    Notice,
    ReportLayout,
    read_reply,
)
from masquerade.protocols.k_anonymity.threshold.roles import Client, RandomnessServer
from masquerade.protocols.k_anonymity.threshold.sealed_keys import SealedKeys
from masquerade.services.threshold.client import Submission
from masquerade.services.threshold.messages import RequestBatch
from masquerade.services.threshold.randomness_server import CREDENTIALS

PASSPHRASE = "a passphrase that nobody guesses"  # noqa: S105  (of a test)


def sealed_world(folder, **changes):
    world = World(folder, **changes)
    secret = world.folder / "randomness" / "sealing"
    secret.write_text(f"{PASSPHRASE}\n")
    secret.chmod(0o600)
    world.files["randomness"].write_text(world.files["randomness"].read_text() + "sealing: sealing\n")
    return world


def once(world, name):
    return world.folder / name / "state" / "once"


def guessed(world, to, number, report):
    """Return the row in a report, by trying every quasi-identifier of the form with the epoch's key."""
    layout = ReportLayout.of(Notice.decode(to.notice()))
    found, key = layout.read(report)[0], oprf.key_of(number)
    for row in world.rows:
        quasi, _ = to.form.fill(labels(row))
        secret = secret_of(oprf.output_by(key, layout.terms.input_of(quasi)))
        if tag_of(secret) == found["tag"].tobytes():
            return unseal(key_of(secret), found["sealed"].tobytes(), layout.bound_to(tag_of(secret)))
    return None


def test_a_key_that_a_closing_says_is_destroyed_is_not_on_the_disk(tmp_path):
    world = sealed_world(tmp_path / "world")
    lonely = next(row for row in world.rows if (row["age"], row["region"]) == ("60 and over", "islands"))
    with world.served(), world.collection() as to:
        (one,) = world.everybody(to, [lonely])
        number = SealedKeys(once(world, "randomness"), PASSPHRASE.encode()).find("spring")
        report = world.report(lonely["person"])
        _, sensitive = to.form.fill(labels(lonely))
        assert guessed(world, to, number, report).endswith(sensitive)  # what an epoch's key is good for
        world.stop("randomness")  # the next epoch begins before this one was closed, and seals nothing
        changed(world, "randomness", "name: spring", "name: summer")
        changed(world, "randomness", "sealing: sealing\n", "")
        world.start("randomness")
        world.operate("randomness", "close", epoch="spring")
        assert one.deliver()  # the person was shown a signed word that the key is destroyed
        assert SealedKeys(once(world, "randomness"), PASSPHRASE.encode()).find("spring") is None
        everything = b"".join(
            file.read_bytes() for file in (world.folder / "randomness").rglob("*") if file.is_file()
        )
        assert number not in everything


def test_a_ledger_of_evaluations_that_was_put_back_does_not_give_a_second_evaluation(tmp_path):
    world = sealed_world(tmp_path / "world")
    with world.served(), world.collection() as to:
        world.everybody(to, world.rows[: K - 1])
        world.stop("randomness")
        kept = shutil.copy2(once(world, "randomness") / "evaluations.sqlite", tmp_path / "earlier")
        world.start("randomness")
        curious = {**world.rows[0], "person": "curious"}
        world.everybody(to, [curious])
        world.stop("randomness")
        (once(world, "randomness") / "evaluations.sqlite").write_bytes(kept.read_bytes())
        with pytest.raises(InputError, match="restored from a backup"):
            world.start("randomness")


def test_a_ledger_of_evaluations_that_is_gone_does_not_begin_the_epoch_anew(tmp_path):
    world = World(tmp_path / "world")
    with world.served(), world.collection() as to:
        world.everybody(to, world.rows[:2])
        world.stop("randomness")
        (once(world, "randomness") / "evaluations.sqlite").unlink()
        with pytest.raises(InputError, match="restored from a backup"):
            world.start("randomness")


def test_reports_that_are_gone_or_were_put_back_do_not_open_a_second_time(tmp_path):
    world = World(tmp_path / "world")
    with world.served(), world.collection() as to:
        made = world.everybody(to, world.rows[: K + 1])
        world.operate("randomness", "close")
        assert all(one.deliver() for one in made[:K])
        [kept] = once(world, "collector").glob("epoch-*")
        world.stop("collector")
        shutil.copytree(kept, tmp_path / "earlier")
        world.start("collector")
        assert world.operate("collector", "open")["opened"] == K
        world.stop("collector")
        shutil.rmtree(kept)
        with pytest.raises(InputError, match="opened here before"):
            world.start("collector")
        shutil.copytree(
            tmp_path / "earlier", kept, dirs_exist_ok=True
        )  # one more report, and the difference would be its row
        with pytest.raises(InputError, match="opened here before"):
            world.start("collector")


def test_whoever_has_the_randomness_servers_identity_makes_no_credentials(tmp_path):
    """Its file is in backups. While the epoch is open, a credential is worth an evaluation of a guess."""
    world = World(tmp_path / "world")
    with world.served(), world.collection() as to:
        stolen = derive(world.running["randomness"][1].identity.reveal(), "collect randomness server")
        world.enrol("P000", "P001")
        notice = to.notice()
        known = {"identity": to.identities["randomness server"], "published": Notice.decode(notice).digest}
        guesses = sorted({to.form.fill(labels(row))[0] for row in world.rows})

        def asked(thief, people):
            requests = [
                Client(thief.enrol(person), notice, **known).request(guess)
                for person, guess in zip(people, guesses, strict=False)
            ]
            reply = to.exchange("randomness server", RequestBatch(tuple(requests)).encode(), place="evaluate")
            return [read_reply(one) for one in RequestBatch.decode(reply).items]

        identity_alone = RandomnessServer(stolen, EvaluationLedger())
        for people in ([f"nobody {i}" for i in range(len(guesses))], ["P000", "P001"]):  # enrolled or not
            answers = asked(identity_alone, people)
            assert answers == [EvaluationRefusal("not_enrolled")] * len(people)
        secret = (once(world, "randomness") / CREDENTIALS).read_bytes()
        both = RandomnessServer(stolen, EvaluationLedger(), credentials=secret)
        assert all(isinstance(one, Evaluation) for one in asked(both, ["nobody 0", "nobody 1"]))  # its worth


def test_no_backup_has_what_credentials_follow_from_and_a_person_enrolled_again_is_not_served_twice(tmp_path):
    world = sealed_world(tmp_path / "world")
    with world.served(), world.collection() as to:
        world.everybody(to, world.rows[:1])
        (before,) = world.enrol("P000").values()
        world.stop("randomness")
        file = once(world, "randomness") / CREDENTIALS
        secret = file.read_bytes()
        folder = world.folder / "randomness"
        saved = [
            it for it in folder.rglob("*") if it.is_file() and "once" not in it.relative_to(folder).parts
        ]
        assert saved
        assert not any(secret in it.read_bytes() for it in saved)
        file.unlink()
        world.start("randomness")
        (after,) = world.enrol("P000").values()
        assert Credential.decode(after).id == Credential.decode(before).id
        assert Credential.decode(after).key != Credential.decode(before).key
        other = {**world.rows[20], "person": "P000"}
        world.record("P000").unlink()
        for credential, refusal in ((before, "not_enrolled"), (after, "already_spent")):
            with pytest.raises(QueryRefused) as refused:
                Submission(labels(other), credential, to, tmp_path / f"{refusal}.record").ask()
            assert refused.value.refusals[0].code == refusal
