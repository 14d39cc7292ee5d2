"""Servers that stop and start again, are restored, or are not who they should be."""

from __future__ import annotations

import shutil
from contextlib import closing

import httpx
import pytest
from tests.services.restoring import agreed
from tests.services.threshold.world import SERVERS, K, World, context, labels

from masquerade.core.errors import InputError, QueryRefused
from masquerade.crypto.errors import KeySpent, SealBroken
from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
from masquerade.protocols.k_anonymity.threshold.roles import EvaluationLedger
from masquerade.services.common.settings import load
from masquerade.services.common.state import SESSION
from masquerade.services.threshold.client import AGREEMENT, Submission
from masquerade.services.threshold.results import opened_rows
from masquerade.services.threshold.server import CollectServer


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "world")
    with made.served():
        yield made


def repeated(world, *names):
    """Say that there are several epochs."""
    for name in names:
        changed(world, name, f"k: {K}", f"k: {K}\n  repeated: true")


def changed(world, name, old, new):
    text = world.files[name].read_text()
    assert old in text
    world.files[name].write_text(text.replace(old, new))


def ready(world, name):
    port = world.settings(name).listen.port
    return httpx.get(f"https://127.0.0.1:{port}/ready", verify=context(world), timeout=600).status_code == 200


def test_a_randomness_server_that_is_started_again_has_lost_the_key(world, capfd):
    with world.collection() as to:
        made = world.everybody(to, world.rows[:K])
        late = world.rows[K]
        (credential,) = world.enrol(late["person"]).values()
        assert ready(world, "randomness")
        world.restart("randomness")
        assert not ready(world, "randomness")
        assert '"event":"key lost"' in capfd.readouterr().err
        assert "the key was lost" in world.running["randomness"][1].describe()
        assert world.operate("randomness", "status")["state"] == "key_lost"
        with pytest.raises(QueryRefused, match="was restarted and has no key") as refused:
            world.submission(late, credential, to).ask()
        assert refused.value.refusals[0].code == "key_lost"
        assert not made[0].deliver()  # not closed yet
        closed = world.operate("randomness", "close")  # those who were served in time still report
        assert closed["evaluations"] == K
        assert ready(world, "randomness")
        assert all(one.deliver() for one in made)
        assert world.operate("collector", "open")["opened"] == K
    # the epoch's name is used; a new one begins with a new key
    world.stop("randomness")
    changed(world, "randomness", "name: spring", "name: summer")
    with pytest.raises(InputError, match="Epoch 'spring' was before epoch 'summer'"):
        world.start("randomness")
    repeated(world, "randomness")
    world.start("randomness")
    status = world.operate("randomness", "status")
    assert (status["epoch"], status["state"], status["evaluations"]) == ("summer", "open", 0)


def sealing(world):
    """Let the randomness server seal its keys; return the file of the secret, and its settings before."""
    secret, text = world.folder / "randomness" / "sealing", world.files["randomness"].read_text()
    secret.write_text("a passphrase that nobody guesses\n")
    secret.chmod(0o600)
    world.files["randomness"].write_text(f"{text}sealing: sealing\n")
    return secret, text


def test_an_epoch_survives_a_restart_with_its_key_sealed(tmp_path):
    world = World(tmp_path / "world")
    secret, text = sealing(world)
    with world.served(), world.collection() as to:
        made = world.everybody(to, world.rows[: K - 1])
        once = world.folder / "randomness" / "state" / "once"
        [sealed] = once.glob("epoch-key-*.sealed")
        key = world.running["randomness"][1]._server._keys["spring"].secret
        number = key.reveal()
        assert number.to_bytes(32, "little") not in sealed.read_bytes()
        world.stop("randomness")
        for changed_text in (text, f"{text}sealing: missing\n"):  # without the secret it does not start
            world.files["randomness"].write_text(changed_text)
            with pytest.raises(InputError, match=r"is sealed|sealing: the file cannot be read"):
                world.start("randomness")
        world.files["randomness"].write_text(f"{text}sealing: sealing\n")
        secret.write_text("another passphrase altogether\n")
        with pytest.raises(InputError, match="sealed under a different secret"):
            world.start("randomness")
        secret.write_text("a passphrase that nobody guesses\n")
        world.start("randomness")
        assert world.operate("randomness", "status")["state"] == "open"
        made += world.everybody(to, [world.rows[K - 1]])  # under the same key, in the same class
        key = world.running["randomness"][1]._server._keys["spring"].secret
        assert key.reveal() == number
        world.operate("randomness", "close")
        with pytest.raises(KeySpent, match="destroyed"):
            key.reveal()
        assert not any(key._held)
        assert not sealed.exists()
        world.restart("randomness")  # and no key comes back
        assert world.operate("randomness", "status")["state"] == "closed"
        assert all(one.deliver() for one in made)
        assert world.operate("collector", "open")["opened"] == K


def test_a_collector_that_is_started_again_keeps_its_reports(world):
    with world.collection() as to:
        made = world.everybody(to, world.rows[: K + 1])
        world.operate("randomness", "close")
        assert all(one.deliver() for one in made[:3])
        world.restart("collector")
        assert world.operate("collector", "status") | {"notice": ""} == {
            "epoch": "spring",
            "state": "taking",
            "reports": 3,
            "evaluations": K + 1,
            "notice": "",
        }
        report = world.report(world.rows[0]["person"])
        assert world.raw("collector", "reports", report)[0] == 200
        assert all(one.deliver() for one in made[3:])
        assert world.operate("collector", "status")["reports"] == K + 1
        assert world.operate("collector", "open")["opened"] == K + 1


@pytest.mark.parametrize("name", ["randomness", "collector"])
def test_an_epoch_does_not_go_on_after_a_restore(world, name):
    with world.collection() as to:
        world.everybody(to, world.rows[:1])
    world.stop(name)
    shutil.rmtree(world.folder / name / "state" / "once")  # a backup does not bring it back
    for _ in range(2):  # and it stays refused
        with pytest.raises(InputError, match="restored from a backup"):
            world.start(name)
    agreed(SERVERS[name], world.files[name], world.settings(name))
    with pytest.raises(InputError, match="Epoch 'spring' was running when"):
        world.start(name)
    changed(world, name, "name: spring", "name: summer")
    with pytest.raises(InputError, match="Epoch 'spring' was before"):  # what opened in it is not known
        world.start(name)
    repeated(world, name)
    world.start(name)


@pytest.mark.parametrize("name", ["randomness", "collector"])
def test_nor_does_one_that_began_after_the_backup(world, tmp_path, name):
    state = world.folder / name / "state"
    world.stop(name)
    repeated(world, name)
    changed(world, name, "name: spring", "name: winter")
    world.start(name)
    world.stop(name)
    shutil.copytree(state, tmp_path / "backup", ignore=shutil.ignore_patterns("once"))
    changed(world, name, "name: winter", "name: summer")
    world.start(name)
    world.stop(name)
    shutil.rmtree(state)
    (tmp_path / "backup").rename(state)
    for _ in range(2):
        with pytest.raises(InputError, match="restored from a backup"):
            world.start(name)
    changed(world, name, "name: summer", "name: autumn")
    with pytest.raises(InputError, match="restored from a backup"):  # whatever it is called
        world.start(name)
    agreed(SERVERS[name], world.files[name], world.settings(name))
    world.start(name)


def opened_by(world, to, rows):
    """Let people take part until classes are opened, and return the rows that open."""
    for row in rows:
        world.record(row["person"]).unlink(missing_ok=True)
    made = world.everybody(to, rows)
    world.operate("randomness", "close")
    assert all(one.deliver() for one in made)
    world.operate("collector", "open")
    return opened_rows(world.operate("collector", "result"), to.form).to_frame().to_dict("records")


def test_attack_3_two_epochs_with_a_newcomer(world):
    """Rows of a class that opened twice differ by the newcomer's, so that epochs are repeated by consent."""
    servers, everybody = ("randomness", "collector"), ("randomness", "collector", "collection")
    first, newcomer = world.rows[:K], world.rows[K]  # of one class
    (credential,) = world.enrol(newcomer["person"]).values()
    with world.collection() as to:
        spring = opened_by(world, to, first)
    for name in everybody:
        changed(world, name, "name: spring", "name: summer")
    for name in servers:  # each refuses by itself: they do not work together
        world.stop(name)
        with pytest.raises(
            InputError, match=r"Epoch 'spring' was before epoch 'summer': the rows opened in the two"
        ):
            world.start(name)
    repeated(world, *servers)
    for name in servers:
        world.start(name)
    with world.collection() as to:  # what people were given says nothing of another epoch
        summer = opened_by(world, to, [*first, newcomer])
        assert [row for row in summer if row not in spring] == [labels(newcomer)]  # the attack
        with pytest.raises(InputError, match="several epochs"):  # somebody who has taken part in another one
            Submission(labels(newcomer), credential, to, world.folder / "new.record", another=True)
    repeated(world, "collection")
    with world.collection() as to:  # somebody who was told of others
        for words in (None, "yes"):
            with pytest.raises(
                InputError, match=r"Nothing was sent\. To agree to that, repeat this sentence"
            ):
                Submission(labels(newcomer), credential, to, world.folder / "new.record", words=words)
        Submission(labels(newcomer), credential, to, world.folder / "new.record", words=AGREEMENT)


def moved(world, old, new):
    """Let both servers and all people go to another epoch, which nobody calls repeated."""
    for name in ("randomness", "collector"):
        world.stop(name)
    for name in ("randomness", "collector", "collection"):
        changed(world, name, f"name: {old}", f"name: {new}")
    for name in ("randomness", "collector"):
        world.start(name)


def two_epochs_side_by_side(world):
    """Begin two epochs before either is closed, open the first, and return the rows of each."""
    first, newcomer = world.rows[:K], world.rows[K]
    with world.collection() as to:
        spring = world.everybody(to, first)
    moved(world, "spring", "summer")
    for row in first:
        world.record(row["person"]).rename(world.folder / f"{row['person']}.spring")
    with world.collection() as to:
        summer = world.everybody(to, [*first, newcomer])
    rows = []
    for old, new, people in (("summer", "spring", spring), ("spring", "summer", summer)):
        moved(world, old, new)
        with world.collection() as to:
            world.operate("randomness", "close")
            for one in people:
                one._to = to
                assert one.deliver()
            world.operate("collector", "open")
            found = opened_rows(world.operate("collector", "result"), to.form)
        rows.append(found.to_frame().to_dict("records"))
    return rows, labels(newcomer)


def test_epochs_begun_before_one_is_closed_differed_by_the_newcomer(world, monkeypatch):
    """Without looking again at a restart, nobody had to call the second epoch repeated."""
    plain = CollectServer.check_single_epoch

    def only_at_the_beginning(server):
        if server.state.notes.get(SESSION, server.epoch) is None:
            plain(server)

    monkeypatch.setattr(CollectServer, "check_single_epoch", only_at_the_beginning)
    (spring, summer), newcomer = two_epochs_side_by_side(world)
    assert [row for row in summer if row not in spring] == [newcomer]


def test_an_epoch_does_not_go_on_after_another_one_has_opened(world):
    with pytest.raises(InputError, match="Epoch 'spring' was before epoch 'summer'"):
        two_epochs_side_by_side(world)
    for name in ("randomness", "collector", "collection"):
        changed(world, name, "name: summer", "name: spring")
    world.restart("randomness")
    world.start("collector")  # the first is still there for its operator
    assert world.operate("collector", "result")["opened"] == K


def test_nor_does_a_randomness_server_serve_people_in_it(tmp_path):
    world = World(tmp_path / "world")
    sealing(world)
    with world.served("randomness"):
        for old, new in (("spring", "summer"), ("summer", "spring")):
            world.stop("randomness")
            changed(world, "randomness", f"name: {old}", f"name: {new}")
            world.start("randomness")
        assert world.operate("randomness", "status")["state"] == "open"
        world.operate("randomness", "close")
        world.stop("randomness")
        changed(world, "randomness", "name: spring", "name: summer")
        with pytest.raises(InputError, match="Epoch 'spring' was before epoch 'summer'"):
            world.start("randomness")


def test_an_epoch_keeps_its_terms(world):
    world.stop("randomness")
    changed(world, "randomness", f"k: {K}", f"k: {K - 1}")
    with pytest.raises(InputError, match="other terms need a new name"):
        world.start("randomness")


def test_a_collector_with_another_k_refuses_the_notice(world):
    world.stop("collector")
    changed(world, "collector", f"k: {K}", f"k: {K + 1}")
    world.start("collector")
    with pytest.raises(InputError, match=r"a k or a form|The k or the form"):
        world.operate("collector", "status")


def test_quasi_identifiers_may_travel_in_clear_as_in_the_talk(tmp_path):
    world = World(tmp_path / "world")
    for name in ("randomness", "collector", "collection"):
        changed(world, name, f"k: {K}", f"k: {K}\n  shown: true")
    with world.served(), world.collection() as to:
        made = world.everybody(to, world.rows[:K])
        world.operate("randomness", "close")
        assert all(one.deliver() for one in made)
        report = world.report("P000")
        quasi, sensitive = to.form.fill(labels(world.rows[0]))
        assert world.layout(to).padded_quasi(quasi) in report
        assert sensitive not in report
        opened = world.operate("collector", "open")
        assert opened["opened"] == K
        assert any(
            item["kind"] == "the clear values, in all rows," for item in opened["guarantee"]["disclosures"]
        )


def test_a_person_who_was_promised_another_k_asks_nothing(world):
    changed(world, "collection", f"k: {K}", f"k: {K + 1}")
    (credential,) = world.enrol("P000").values()
    with world.collection() as to, pytest.raises(InputError, match="differs from yours"):
        world.submission(world.rows[0], credential, to).ask()
    assert world.operate("randomness", "status")["evaluations"] == 0


def test_a_notice_that_is_not_everybodys_is_refused(world, tmp_path):
    (credential,) = world.enrol("P000").values()
    notice = world.operate("randomness", "status")["notice"]
    original = world.files["collection"].read_text()
    world.files["collection"].write_text(f"{original}notice: '{'0' * 64}'\n")
    with world.collection() as to, pytest.raises(SealBroken, match="differs from the published one"):
        world.submission(world.rows[0], credential, to).ask()
    world.files["collection"].write_text(f"{original}notice: '{notice}'\n")
    with world.collection() as to:
        world.submission(world.rows[0], credential, to).ask()
    # the same server with another key for the same epoch, as it might show to one person alone
    world.files["collection"].write_text(original)
    world.stop("randomness")
    (world.folder / "randomness" / "state").rename(tmp_path / "aside")
    world.start("randomness")
    with world.collection() as to, pytest.raises(SealBroken, match="collector received a different notice"):
        world.submission(world.rows[1], credential, to).ask()
    assert not world.record("P001").exists()
    # nor does its closing bring out the report that was made under the first key
    world.operate("randomness", "close")
    with world.collection() as to, pytest.raises(SealBroken, match="nothing was reported"):
        world.submission(world.rows[0], credential, to).deliver()


def test_two_servers_of_one_identity_do_not_start(world):
    world.stop("collector")
    randomness = world.folder / "randomness" / "identity.key"
    (world.folder / "collector" / "identity.key").write_bytes(randomness.read_bytes())
    with pytest.raises(InputError, match="same identity"):
        world.start("collector")


def test_a_state_folder_in_use_is_refused(world):
    settings = load(world.files["collector"], type(world.settings("collector")), environment={})
    with pytest.raises(InputError, match="in use"):
        world.start("collector")
    assert settings.state == world.folder / "collector" / "state"


def test_spent_credentials_put_back_alone_are_noticed(world):
    """With the earlier file somebody who was served would be served again."""
    state, file = world.folder / "randomness" / "state", "evaluations.sqlite"
    before = (state / "once" / file).read_bytes()
    with world.collection() as to:
        world.everybody(to, world.rows[:1])
    world.stop("randomness")
    (state / "once" / file).write_bytes(before)
    with closing(EvaluationLedger(state / "once" / file)) as ledger:
        assert (
            ledger.count_spent("spring") == 0
        )  # whoever reads it as it lies takes the credential for unused
    for _ in range(2):
        with pytest.raises(InputError, match="restored from a backup"):
            world.start("randomness")


def test_reports_put_back_alone_do_not_open_a_second_time(world):
    """Rows that opened of all reports, and of fewer: the difference would be one person's row."""
    with world.collection() as to:
        made = world.everybody(to, world.rows[: K + 1])
        world.operate("randomness", "close")
        assert all(one.deliver() for one in made[:K])
        world.stop("collector")
        state = world.folder / "collector" / "state"
        (folder,) = (state / "once").glob("epoch-*")
        before = (folder / "reports.sqlite").read_bytes()
        world.start("collector")
        assert all(one.deliver() for one in made[K:])
        assert world.operate("collector", "open")["opened"] == K + 1
        world.stop("collector")
        (folder / "reports.sqlite").write_bytes(before)
        with closing(ReportStore(folder / "reports.sqlite")) as store:
            assert store.find_note("opened") is None  # as it lies, it would open again, of one report fewer
        for _ in range(2):
            with pytest.raises(InputError, match="opened here before"):
                world.start("collector")
