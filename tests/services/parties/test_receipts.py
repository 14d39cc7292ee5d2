"""Peers store the ends of each other's ledgers, which show that a node's whole disk was restored."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack

import pandas as pd
import pytest
from tests.services.parties.deployments import CLEAR, MINER, Deployment, deployed, people, split_rows
from tests.services.parties.test_hostile_conveners import ONE_TABLE
from tests.services.parties.test_same_people import with_second_session
from tests.services.restoring import agreed
from tests.unit.services.common.file_systems import make_image, mount_image

from masquerade.core.errors import InputError, MasqueradeError
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.services.common.receipts import ENDS, NOBODY, PLACE, Receipts
from masquerade.services.common.release_ledger import Release, SignedMark, in_state, inspect
from masquerade.services.common.restores import Restores
from masquerade.services.common.state import State, peek_problem
from masquerade.services.parties.node import Node

PARTIES = ("north", "south", "registry")
RELEASE = Release("s", "pooled-counts", "miner", "counts", ("a",), 100, None, None)


class Disk:
    """A separate disk for the state of a node, with snapshots that can be restored."""

    def __init__(self, folder, state):
        self._image, self._snapshot, self._state = make_image(folder, "ext4"), folder / "snapshot", state
        state.mkdir(mode=0o700)
        self.mounted = ExitStack()
        self.mount()
        state.chmod(0o700)

    def mount(self):
        mount_image(self.mounted, self._image, self._state)

    def take_snapshot(self):
        self.mounted.close()
        shutil.copy(self._image, self._snapshot)
        self.mount()

    def put_snapshot_back(self):
        self.mounted.close()
        shutil.copy(self._snapshot, self._image)
        self.mount()


@pytest.mark.parametrize("holder", [None, MINER, "south"])
def test_a_snapshot_of_the_disk_shows_by_a_receipt_alone(tmp_path, holder):
    """One person leaves between two exact sums; the node has lost that there was a first."""
    deployment = Deployment(tmp_path / "nodes", split_rows(people(90), CLEAR, PARTIES, ONE_TABLE, seed=5))
    second, settings = with_second_session(deployment), deployment.settings("north")
    with ExitStack() as undo:
        disk = Disk(tmp_path, settings.state)
        undo.callback(disk.mounted.close)
        undo.callback(deployment.stop)
        deployment.start()
        deployment.stop("north")
        disk.take_snapshot()
        deployment.start("north")
        deployment.done()
        assert deployment.ledger("north")
        deployment.stop("north")
        disk.put_snapshot_back()
        file = deployment.files["north"].parent / "records.parquet"
        pd.read_parquet(file).iloc[:-1].to_parquet(file, index=False)
        assert peek_problem(settings.state) == ""  # its own files are as they were, whatever is looked at
        assert inspect(settings.state)[0] == ()
        for name in (MINER, "south", "registry"):
            assert deployment.nodes[name].state.notes.get(ENDS, "north")
            if name != holder:
                deployment.nodes[name].state.notes.delete(ENDS, "north")
        deployment.start("north")
        assert not deployment.nodes["north"].ledger.doubted
        status = deployment.run(second)
        if holder is None:
            assert status["state"] == "done"  # the difference of the two sums is one person's values
            return
        assert status["state"] == "interrupted"
        assert "which this node signed and others have seen: it was rolled back" in status["reason"]
        assert [item.kind for item in deployment.ledger("north")] == ["restored"]  # nothing has left
        assert deployment.nodes["north"].ledger.doubted
        assert deployment.run(second)["state"] == "interrupted"  # and it stays refused
        agreed(Node, deployment.files["north"], settings)
        assert deployment.run(second)["state"] == "done"


def test_a_node_says_who_holds_receipts(tmp_path):
    with deployed(tmp_path, split_rows(people(60), CLEAR, PARTIES, ONE_TABLE, seed=5)) as deployment:
        assert deployment.nodes["north"].describe() == NOBODY
        deployment.done()
        said = deployment.nodes["north"].describe()
        holders = ", ".join(sorted([MINER, "registry", "south"]))
        assert said == f"receipts of its release ledger are with {holders}"
        ends = {
            SignedMark.decode(deployment.nodes[name].state.notes.get(ENDS, "north"))
            for name in (MINER, "south", "registry")
        }
        assert ends == {deployment.nodes["north"].ledger.end}  # the last one, everywhere


def test_a_session_goes_on_where_peers_cannot_be_reached_for_receipts(tmp_path):
    plan = split_rows(people(60), CLEAR, PARTIES, ONE_TABLE, seed=5)
    deployment = Deployment(tmp_path / "nodes", plan)
    try:
        deployment.start()
        for node in deployment.nodes.values():
            node.receipts._identities = {}
        with deployment.speaking("south") as http, pytest.raises(MasqueradeError, match="No identity"):
            http.exchange("north", receipt(deployment.nodes["south"].ledger.end), place=PLACE)
        deployment.done()
    finally:
        deployment.stop()


def receipt(end, signature=""):
    return json.dumps({"end": end.encode().decode(), "signature": signature}).encode()


@pytest.fixture
def pair(tmp_path):
    """Two nodes that know each other's identities: their receipts, ledgers and keys."""
    keys = {name: SigningKey() for name in ("north", "south")}
    with ExitStack() as files:
        made = {}
        for name, other in (("north", "south"), ("south", "north")):
            state = files.enter_context(State.open(tmp_path / name))
            ledger = files.enter_context(in_state(state, keys[name]))
            restores = Restores(state, ledger, "party", "masquerade party restored", "yes")
            made[name] = Receipts(restores, keys[name], {other: keys[other].public})
        yield made, keys


def test_a_receipt_of_an_earlier_end_does_not_replace_a_later_one(pair):
    made, _ = pair
    north, ledger = made["north"], made["north"]._restores.ledger
    ends = []
    for _ in range(3):
        ledger.append(RELEASE)
        ends.append(ledger.end)
    answer = made["south"].answer
    answer("north", receipt(ends[2]))
    told = json.loads(answer("north", receipt(ends[0])))
    assert SignedMark.decode(told["end"].encode()) == ends[2] == made["south"].known_end("north")
    north.exchange("south", lambda body: answer("north", body))
    assert north.describe_holders() == "receipts of its release ledger are with south"


def test_a_receipt_counts_by_its_signatures_alone(pair):
    made, keys = pair
    stranger, end = SigningKey(), made["north"]._restores.ledger.end
    forged = SignedMark.of(end.mark, end.epoch, stranger)
    with pytest.raises(SealBroken):
        made["south"].answer("north", receipt(forged))  # a later end that north has not signed
    assert made["south"].known_end("north") is None  # nothing was kept
    with pytest.raises(InputError, match="No identity is known for 'east'"):
        made["south"].answer("east", receipt(end))
    for signer in (stranger, keys["north"]):
        with pytest.raises(SealBroken):
            made["north"].exchange("south", lambda body, signer=signer: signed_by(signer, body))
    assert made["north"].describe_holders() == NOBODY


def signed_by(signer, body):
    end = SignedMark.decode(json.loads(body)["end"].encode())
    return receipt(end, signer.sign("end of a peer's release ledger", end.encode()).hex())


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"null", b"x" * 3000),
        *(b'{"end": 1, "signature": ""}', b'{"end": "1 2", "signature": ""}'),
        b'{"end": "0 %s", "signature": ""}' % (b"0" * 64),
    ],
)
def test_what_is_no_receipt_is_refused(pair, body):
    made, _ = pair
    with pytest.raises(DecodingError, match="not a receipt"):
        made["south"].answer("north", body)
    assert made["south"].known_end("north") is None
