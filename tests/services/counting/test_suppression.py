"""A table with suppressed values between processes over TLS, and whoever is killed while it is made."""

import hashlib
import os
import signal
import threading

import numpy as np
import pytest
import yaml
from tests.services.counting.world import LONG, World, until

import masquerade as mq
from masquerade.anonymity.suppression import partition_distances
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.k_anonymity.suppression.messages import AGREEMENT, GroupVote, Word
from masquerade.protocols.k_anonymity.suppression.roles import KeyHolder, SuppressionMiner
from masquerade.services.common.client import Operator
from masquerade.services.common.jobs import Call
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.settings import load
from masquerade.services.counting.device import participant
from masquerade.services.counting.example import RANDOMNESS, example_records, write_count
from masquerade.services.counting.leader import LeaderService
from masquerade.services.counting.messages import MOST_COMPARED
from masquerade.services.counting.miner import MinerService
from masquerade.services.counting.person_file import PersonFile
from masquerade.services.counting.randomness import GroupRandomnessService
from masquerade.services.counting.settings import (
    CountDescription,
    CountLeaderSettings,
    CountMinerSettings,
    CountRandomnessSettings,
)
from masquerade.services.counting.suppression_messages import (
    KEYS,
    PeopleParts,
    RelayBatch,
    RelayedReports,
    SealedBatch,
    SuppressionStep,
)

PEOPLE, K = 6, 2
SERVERS = ("miner", RANDOMNESS, "leader1", "leader2")
ROLES = "masquerade.protocols.k_anonymity.suppression.roles"
DEVICE = "masquerade.services.counting.suppression_device.SuppressionDevice"


@pytest.fixture
def made(tmp_path):
    worlds = []

    def make(*, deadly=None, hasty=False):
        world = World(tmp_path, "suppression", PEOPLE, k=K, minimum=PEOPLE, patience=LONG)
        worlds.append(world)
        if hasty:
            text = yaml.safe_load(world.node.read_text()) | {"retries": 0, "limits": {"seconds": 2}}
            world.node.write_text(yaml.safe_dump(text))
        for role in SERVERS:
            world.serve(role, deadly=(deadly or {}).get(role, ""))
        world.enrol()
        return world

    yield make
    for world in worlds:
        world.end()


def asked(world, what):
    with Operator(load(world.node, CountMinerSettings), wait=LONG) as operator:
        return operator.ask(what, {})


def all_sent(world):
    until(lambda: world.status()["sent"] == PEOPLE, "everybody's row")


def servers_in(world):
    """Return what the office has about all servers."""
    office = yaml.safe_load(world.files["office"].read_text())
    return [office["miner"], office["randomness"], *office["leaders"].values()]


def expected(world):
    """Return the table that the algorithm makes of all clear rows in one place, and the groups."""
    rows = np.array([[str(value) for value in record.values()] for record in world.records])
    groups = partition_distances((rows[:, None] != rows[None]).sum(axis=2), K)
    table = []
    for row, group in zip(rows, groups, strict=True):
        shared = (rows[groups == group] == row).all(axis=0)
        table.append([str(value) if same else None for value, same in zip(row, shared, strict=True)])
    return table, groups.tolist()


def closed_in_thread(world):
    """Close the count in a thread; return it, and the list that gets what it was refused with."""
    refused = []

    def close():
        try:
            world.close()
        except mq.MasqueradeError as error:
            refused.append(error)

    closing = threading.Thread(target=close)
    closing.start()
    return closing, refused


def killed_server(world, role):
    until(lambda: world.servers[role].poll() is not None, f"{role} to be killed")
    assert world.servers[role].returncode == -signal.SIGKILL


def nothing_opens(world, match):
    """The table is over: for the operator, at every later try, and for the devices, which end."""
    for _ in range(2):
        with pytest.raises((QueryRefused, RoundAborted), match=match):
            world.close()
    assert world.status()["state"] == "over"
    with pytest.raises(QueryRefused, match="nothing was opened"):
        asked(world, "result")


def refused_by(world, match):
    """Every device that asks is told why there is no table."""
    device = world.device(world.names[0])
    with device.http, pytest.raises(QueryRefused, match=match):
        until(lambda: device.step() and None, "a refusal")
    device.person.close()


def test_a_table_between_processes_is_that_of_all_rows_in_one_place_and_is_kept(made):
    """Four servers and six devices, a process each, over TLS; one device is killed after it sent its row."""
    world = made()
    assert all(settings["url"].startswith("https:") for settings in servers_in(world))
    first = world.names[0]
    world.accepting = False
    device = world.device(first)
    with device.http, pytest.raises(InputError, match=r"by name .* accept it \(--accept-clear\)"):
        until(lambda: device.step() and None, "a refusal")
    device.person.close()
    world.accepting = True
    world.start_devices()
    all_sent(world)
    world.devices[first].kill()
    world.devices[first].wait()
    world.start_device(first)  # goes on with the same row
    status = world.close()
    table, groups = expected(world)
    assert status["suppressed"] == sum(value is None for row in table for value in row) > 0
    result = asked(world, "result")
    assert result["rows"] == table
    assert result["groups"] == groups
    assert result["refused"] == []
    assert result["unreadable"] == 0
    for name, device in world.devices.items():
        assert device.wait(LONG) == 0
        said = (world.folder / f"{name}.log").read_text()
        own = dict(zip(result["attributes"], table[world.names.index(name)], strict=True))
        assert ", ".join(f"{one} {'*' if value is None else value}" for one, value in own.items()) in said
    assert world.status()["accepted"] == PEOPLE
    # what was released is kept by a miner that is killed, and closing again changes nothing
    world.kill("miner")
    world.serve_again("miner")
    assert asked(world, "result") == result
    assert world.close()["state"] == "closed"
    with pytest.raises(InputError, match="masquerade count table"):
        world.source()


KILLED = {
    "leader2 after it shuffled": ("leader2", "shuffle", "'leader2' stopped after it gave its share"),
    "leader1 after it opened its share": ("leader1", "open", "'leader1' stopped after it gave its share"),
    "the relay after it mixed all reports": (
        "leader1",
        f"{ROLES}.KeyHolder pass_on",
        "'leader1' stopped after it gave its share",
    ),
    "the randomness server after it evaluated": (
        RANDOMNESS,
        f"{ROLES}.GroupRandomness evaluate",
        "randomness server stopped after it had opened the groups",
    ),
}


@pytest.mark.parametrize("who", KILLED)
def test_a_server_that_is_killed_ends_the_table_and_nothing_opens(made, who):
    """It is killed when it has done a step, before anybody knows, and started again."""
    role, step, match = KILLED[who]
    world = made(deadly={role: step})
    world.start_threads()
    all_sent(world)
    closing, refused = closed_in_thread(world)
    killed_server(world, role)
    world.serve_again(role)
    closing.join(LONG)
    assert len(refused) == 1
    nothing_opens(world, match)
    refused_by(world, match)
    # nor after the miner is killed as well
    world.kill("miner")
    world.serve_again("miner")
    nothing_opens(world, "it is over")


@pytest.mark.parametrize("step", ["agreement_board", "release"])
def test_a_miner_that_is_killed_ends_the_table_and_nothing_opens(made, step):
    """It is killed after the step, before it has stored anything of it."""
    world = made(deadly={"miner": f"{ROLES}.SuppressionMiner {step}"})
    world.start_threads()
    all_sent(world)
    closing, _ = closed_in_thread(world)
    killed_server(world, "miner")
    world.serve_again("miner")
    closing.join(LONG)
    nothing_opens(world, "miner stopped after the keys of this table were made")
    refused_by(world, "miner stopped after the keys of this table were made")


def test_a_server_out_of_reach_does_not_end_the_table_and_nothing_is_done_twice(made):
    world = made(hasty=True)
    world.start_threads()
    all_sent(world)
    stopped = world.servers[RANDOMNESS].pid
    os.kill(stopped, signal.SIGSTOP)

    def closed():
        try:
            return world.close()
        except mq.MasqueradeError as error:
            if "gave no answer" in str(error) or "still at work" in str(error):
                return None
            raise

    while (status := closed()) is not None:
        pytest.fail(f"a table without the randomness server: {status}")
    os.kill(stopped, signal.SIGCONT)
    until(closed, "the randomness server to be reached")
    assert (asked(world, "result")["rows"], asked(world, "result")["groups"]) == expected(world)


def test_a_device_that_is_killed_after_it_signed_the_groups_ends_the_table(made):
    world = made()
    first = world.names[0]
    world.start_device(first, deadly=f"{DEVICE} _agree")
    world.start_threads(but=[first])
    all_sent(world)
    closing, refused = closed_in_thread(world)
    until(lambda: world.devices[first].poll() is not None, "the device to be killed")
    assert world.devices[first].returncode == -signal.SIGKILL
    world.start_device(first)
    closing.join(LONG)
    assert len(refused) == 1
    nothing_opens(world, f"{first} did not answer after the rows were compared")
    assert world.devices[first].wait(LONG) == 2
    assert "Name a new count" in (world.folder / f"{first}.log").read_text()


# the relay, in this process


class Relay:
    """A relay, and people whose keys the test has; they have signed groups of any distances."""

    def __init__(self, folder):
        files = write_count(
            folder, protocol="suppression", records=example_records(PEOPLE), k=K, minimum=PEOPLE
        )
        self.service = LeaderService(load(files["leader1"], CountLeaderSettings, environment={}))
        self.other = LeaderService(load(files["leader2"], CountLeaderSettings, environment={}))
        self.miner = MinerService(load(files["miner"], CountMinerSettings, environment={}))
        self.randomness = GroupRandomnessService(
            load(files[RANDOMNESS], CountRandomnessSettings, environment={})
        )
        self.keys = {f"P{i + 1:05d}": SigningKey() for i in range(PEOPLE)}
        members = {name: key.public for name, key in self.keys.items()}
        boxes = self.miner.box.public, self.service.box.public
        self.terms = self.service.description.terms(members, boxes)
        self.say("enrol", self.terms.encode(), self.service.settings.office)
        self.agreed = self.terms.protocol_terms()
        self.board = self.groups(bytes(32))
        self.reports = {name: tuple(f"{name} {at}".encode() for at in range(3)) for name in self.keys}

    def groups(self, view):
        groups = tuple(at // K for at in range(PEOPLE))
        words = [
            Word.make(
                self.agreed, key, AGREEMENT, name, GroupVote(view, AgreementKey().public, groups).encode()
            ).encode()
            for name, key in self.keys.items()
        ]
        return Word.gather(words, self.agreed, AGREEMENT, tuple(self.keys), spent=True)

    def say(self, place, body, peer="miner"):
        return self.service.handle(Call(self.service.settings.peers[peer].peer(peer), place, body))

    def sealed(self, name, *, board=None, key=None, reports=None):
        digest = hashlib.sha256(self.board if board is None else board).digest()
        own = self.reports[name] if reports is None else reports
        return RelayedReports.make(name, own, digest, self.terms, key or self.keys[name]).encode()

    def relay(self, sent):
        return PeopleParts.decode(self.say("relay", RelayBatch(self.board, tuple(sent)).encode())).parts

    def close(self):
        for service in (self.service, self.other, self.miner, self.randomness):
            service.close()


@pytest.fixture
def relay(tmp_path):
    made = Relay(tmp_path / "count")
    yield made
    made.close()


def test_the_relay_returns_all_reports_once_in_an_order_of_its_own(relay):
    sent = [relay.sealed(name) for name in relay.keys]
    handed = [one for reports in relay.reports.values() for one in reports]
    relayed = relay.relay(sent)
    assert sorted(relayed) == sorted(handed)
    assert list(relayed) != handed  # 18 reports stay in order with a chance of 1/18! (2e-16)
    with pytest.raises(InputError, match="once"):
        relay.relay(sent)


FOREIGN = SigningKey()
UNFAIR = {
    "one person's only": lambda _, sent: sent[:1],
    "all but one": lambda _, sent: sent[:-1],
    "one person twice": lambda _, sent: [*sent[:-1], sent[0]],
    "one person's, and the miner's own for the others": lambda r, sent: [
        sent[0],
        *(r.sealed(name, key=FOREIGN) for name in list(r.keys)[1:]),
    ],
    "somebody who is not enrolled": lambda r, sent: [
        *sent[:-1],
        RelayedReports.make("P00099", (b"1", b"2", b"3"), bytes(32), r.terms, FOREIGN).encode(),
    ],
    "signed for other groups": lambda r, sent: [
        *sent[:-1],
        r.sealed(list(r.keys)[-1], board=r.groups(bytes(range(32)))),
    ],
    "a report less": lambda r, sent: [*sent[:-1], r.sealed(list(r.keys)[-1], reports=(b"1", b"2"))],
    "another length": lambda r, sent: [*sent[:-1], r.sealed(list(r.keys)[-1], reports=(b"1", b"2", b"3"))],
}


@pytest.mark.parametrize("how", UNFAIR)
def test_a_miner_cannot_have_the_reports_of_a_few_people_relayed(relay, how):
    sent = [relay.sealed(name) for name in relay.keys]
    with pytest.raises((InputError, SealBroken)):
        relay.relay(UNFAIR[how](relay, sent))
    assert len(relay.relay(sent)) == 3 * PEOPLE  # and none was relayed


def test_a_report_whose_content_was_changed_is_refused(relay):
    sent = [RelayedReports.decode(relay.sealed(name)) for name in relay.keys]
    last = sent[-1]
    content = last.content[:-1] + bytes([last.content[-1] ^ 1])
    changed = RelayedReports(last.person, last.agreement, content, last.signature)
    with pytest.raises(SealBroken):
        relay.relay([one.encode() for one in (*sent[:-1], changed)])


def test_servers_of_a_suppression_answer_their_miner_and_office_alone(relay):
    """The sealing keys and terms are for the office; groups, values and reports for the miner."""
    services = {
        relay.service: ("relay",),
        relay.randomness: ("begin", "evaluate", "close"),
    }
    for service, places in services.items():
        for place in places:
            office = service.settings.peers[service.settings.office].peer(service.settings.office)
            for who in (office, service.peers[-1] if service.peers[-1].name != "miner" else office):
                with pytest.raises(NotAdmitted, match="Only the miner"):
                    service.handle(Call(who, place, b""))
    for service in (relay.service, relay.miner):
        stranger = next(peer for peer in service.peers if peer.name != service.settings.office)
        with pytest.raises(NotAdmitted, match="Only the enrolment office"):
            service.handle(Call(stranger, "box", b""))
        office = service.settings.peers[service.settings.office].peer(service.settings.office)
        assert service.handle(Call(office, "box", b"")) == service.box.public
    with pytest.raises(NotAdmitted, match="Only the enrolment office"):
        relay.randomness.handle(
            Call(relay.randomness.settings.peers["miner"].peer("miner"), "enrol", relay.terms.encode())
        )


def test_terms_with_another_key_to_seal_for_are_refused(relay):
    members = dict(relay.terms.members)
    right = relay.miner.box.public, relay.service.box.public
    for at, service in ((0, relay.miner), (1, relay.service)):
        boxes = [*right]
        boxes[at] = AgreementKey().public
        terms = service.description.terms(members, tuple(boxes))
        office = service.settings.peers[service.settings.office].peer(service.settings.office)
        fresh = service.terms is None
        with pytest.raises((InputError, QueryRefused), match="different key to seal"):
            service.handle(Call(office, "enrol", terms.encode()))
        assert (service.terms is None) == fresh


def test_a_sealed_batch_is_opened_by_the_relay_alone(relay):
    sent = RelayedReports.decode(relay.sealed("P00001"))
    assert sent.open(relay.terms, relay.service.box) == relay.reports["P00001"]
    for box in (relay.miner.box, relay.other.box, AgreementKey()):
        with pytest.raises(SealBroken):
            sent.open(relay.terms, box)
    assert b"P00001 0" not in sent.content
    with pytest.raises(DecodingError):
        SealedBatch.decode(sent.content)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"k": None}, "k: a suppression has it"),
        ({"randomness": None}, "randomness: a suppression has it"),
        ({"leaders": {}}, "leaders"),
        ({"noise": {"epsilon": 1, "tables": 3, "enrolment": "verified"}}, "noise: a suppression opens"),
        ({"protocol": "mix"}, "other protocols do not"),
    ],
)
def test_descriptions_of_a_suppression_are_checked(tmp_path, change, match):
    files = write_count(tmp_path / "c", protocol="suppression", records=example_records(PEOPLE), k=K)
    values = yaml.safe_load(files["count"].read_text()) | change
    files["count"].write_text(
        yaml.safe_dump({key: value for key, value in values.items() if value is not None})
    )
    with pytest.raises(InputError, match=match):
        load(files["count"], CountDescription, environment={})


def test_more_comparisons_than_fit_into_a_message_are_refused_before_anybody_is_enrolled(tmp_path):
    files = write_count(tmp_path / "c", protocol="suppression", records=example_records(PEOPLE), k=K)
    description = load(files["count"], CountDescription, environment={})
    people = {f"P{i}": SigningKey().public for i in range(MOST_COMPARED)}
    boxes = AgreementKey().public, AgreementKey().public
    with pytest.raises(InputError, match="comparisons"):
        description.terms(people, boxes)
    assert len(description.terms(dict(list(people.items())[:100]), boxes).members) == 100


def test_values_that_a_policy_disguises_are_not_suppressed(tmp_path):
    channel = {"kind": "binary", "p": "1/4"}
    policy = {"masquerade": 1, "variables": {"a": {"categories": ["x", "y"], "channel": channel}}}
    files = write_count(
        tmp_path / "c", protocol="suppression", records=[{"a": "x"}] * PEOPLE, policy=policy, k=K
    )
    description = load(files["count"], CountDescription, environment={})
    members = {f"P{i}": SigningKey().public for i in range(12)}
    with pytest.raises(InputError, match="not disguised"):
        description.terms(members, (AgreementKey().public, AgreementKey().public))


def keys_of(relay, terms):
    """Return a step with the board of keys for terms, made by all holders."""
    agreed = terms.protocol_terms()
    miner = SuppressionMiner(relay.miner.identity, relay.miner.box, agreed)
    holders = [
        KeyHolder(name, service.identity, agreed)
        for name, service in (("leader1", relay.service), ("leader2", relay.other))
    ]
    board = miner.key_board([miner.share(), *(holder.share() for holder in holders)])
    return SuppressionStep(KEYS, (board,)).encode()


def test_a_row_is_encrypted_once_and_goes_into_a_second_table_only_if_the_person_agrees(relay, tmp_path):
    """A device that is started again sends the same bytes; another table needs the name of the first."""
    file, name = tmp_path / "P00001.person", "P00001"
    members = dict(relay.terms.members) | {name: PersonFile.make(file, name)}
    boxes = relay.terms.box, relay.terms.relay
    first, second = (
        relay.service.description.model_copy(update={"name": one}).terms(members, boxes)
        for one in ("example", "summer")
    )
    person = PersonFile(file)
    codes = first.report_form.codes(example_records(1)[0])
    keys = keys_of(relay, first)
    sent = participant(person, first, codes).receive(keys)
    assert participant(person, first, codes).receive(keys) == sent
    with pytest.raises(QueryRefused, match="counted in another session"):
        participant(person, second, codes).receive(keys_of(relay, second))
    with pytest.raises(QueryRefused, match="counted in another session"):
        participant(person, second, codes, earlier=["spring"]).receive(keys_of(relay, second))
    assert participant(person, second, codes, earlier=["example"]).receive(keys_of(relay, second)) != sent
    person.close()
