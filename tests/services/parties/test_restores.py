"""A party that was restored or rolled back does not open again what was closed."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pandas as pd
import pytest
from tests.e2e.test_cli_app import run
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    OWNERS,
    TABLE_1,
    Deployment,
    deployed,
    people,
    split_columns,
    split_rows,
)
from tests.services.parties.test_failures import backed_up, restored
from tests.services.parties.test_hostile_conveners import ONE_TABLE, Speaking, begin
from tests.services.parties.test_same_people import Saying, with_second_session
from tests.services.restoring import agreed

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.services.common.release_ledger import FILE, inspect
from masquerade.services.parties import messages as say
from masquerade.services.parties.node import Node

PARTIES = ("north", "south", "registry")
TABLE = [mq.Query(by="A")]


def second_total(deployment, second):
    for party in PARTIES:
        offer = say.Begin(spec=second, epoch=os.urandom(16).hex())
        deployment.say(MINER, party, "begin", say.encode(offer), session="second")
    return MaskedSum(PARTIES, Saying(deployment, "pooling", "second"), CLEAR).totals(TABLE)[0].sum()


def test_a_restore_opens_a_session_over_other_people(tmp_path):
    """The backup does not know of the first session: its sum and the second one differ by one person."""
    deployment = Deployment(
        tmp_path / "deployment", split_rows(people(90), CLEAR, PARTIES, ONE_TABLE, seed=5)
    )
    second = with_second_session(deployment)
    deployment.start()
    try:
        deployment.stop("north")
        backed_up(deployment, "north", tmp_path / "backup")
        deployment.start("north")
        begin(deployment, os.urandom(16))
        first = MaskedSum(PARTIES, Speaking(deployment, "pooling"), CLEAR).totals(TABLE)[0].sum()
        deployment.stop("north")
        restored(deployment, "north", tmp_path / "backup")
        file = deployment.files["north"].parent / "records.parquet"
        pd.read_parquet(file).iloc[:-1].to_parquet(file, index=False)
        deployment.start("north")
        assert not deployment.nodes["north"].state.notes.names("people")  # nothing would refuse it
        with pytest.raises(RoundAborted, match="restored from a backup"):
            second_total(deployment, second)
        agreed(Node, deployment.files["north"], deployment.settings("north"))
        assert second_total(deployment, second) == first - 1  # what was agreed to
    finally:
        deployment.stop()


@pytest.mark.parametrize("part", [".", "once"])
@pytest.mark.parametrize("way", [["cp", "-a"], ["cp", "-r"]])
def test_a_restore_in_place_opens_no_session_over_other_people(tmp_path, way, part):
    """All files overwritten where they are, once/ among them; or once/ alone, with the keys used since."""
    deployment = Deployment(
        tmp_path / "deployment", split_rows(people(90), CLEAR, PARTIES, ONE_TABLE, seed=5)
    )
    second, state = with_second_session(deployment), deployment.settings("north").state
    deployment.start()
    try:
        deployment.stop("north")
        subprocess.run(["cp", "-a", str(state), str(tmp_path / "backup")], check=True)  # noqa: S603, S607
        deployment.start("north")
        begin(deployment, os.urandom(16))
        MaskedSum(PARTIES, Speaking(deployment, "pooling"), CLEAR).totals(TABLE)
        deployment.stop("north")
        over = [f"{tmp_path / 'backup' / part}/.", str(state / part)]
        subprocess.run([*way, *over], check=True)  # noqa: S603
        file = deployment.files["north"].parent / "records.parquet"
        pd.read_parquet(file).iloc[:-1].to_parquet(file, index=False)
        forgotten = part == "."
        assert (inspect(state)[0] == ()) is forgotten  # what left is not in the ledger any more
        found = run("party", "ledger", state, "verify")
        assert found.exit_code == 1
        assert "intact" not in found.stdout
        assert "the state is not the latest: the files of the anchor were copied, replaced" in found.stdout
        deployment.start("north")
        assert bool(deployment.nodes["north"].state.notes.names("people")) is not forgotten
        with pytest.raises((RoundAborted, QueryRefused), match=r"restored from a backup|are not the same"):
            second_total(deployment, second)
        assert deployment.nodes["north"].ledger.doubted
        agreed(Node, deployment.files["north"], deployment.settings("north"))
    finally:
        deployment.stop()


def test_a_backup_older_than_the_memo_draws_everybody_a_second_time(tmp_path):
    plan = split_columns(
        people(60), TABLE_1, OWNERS, "vertical-with-miner", ONE_TABLE, seed=2, linking="keyed"
    )
    with deployed(tmp_path, plan) as deployment:
        deployment.stop("north")
        backed_up(deployment, "north", tmp_path / "backup", without=["memo.json"])
        deployment.start("north")
        deployment.done()
        drawn = {item.draw for item in deployment.ledger("north") if item.policy is not None}
        assert len(drawn) == 1
        deployment.stop("north")
        restored(deployment, "north", tmp_path / "backup")
        deployment.start("north")
        assert not [item for item in deployment.ledger("north") if item.draw]  # the ledger would say once
        with pytest.raises(QueryRefused, match="drawn a second time"):
            begin(deployment, os.urandom(16), ["north"])


def test_a_ledger_that_was_rolled_back_shows_at_the_next_session(tmp_path):
    deployment = Deployment(
        tmp_path / "deployment", split_rows(people(90), CLEAR, PARTIES, ONE_TABLE, seed=5)
    )
    second = with_second_session(deployment)
    deployment.start()
    try:
        state, head = deployment.settings("north").state, ("release ledger", "head")
        older, lines = deployment.nodes["north"].state.notes.get(*head), (state / FILE).read_bytes()
        deployment.done()
        assert deployment.nodes["north"].state.notes.get("witnessed", MINER)
        deployment.stop("north")
        (state / FILE).write_bytes(lines)
        with closing(sqlite3.connect(state / "state.sqlite")) as store, store:
            store.execute("UPDATE notes SET value = ? WHERE scope = ? AND name = ?", (older, *head))
        deployment.start("north")
        assert deployment.ledger("north") == []  # the node itself sees nothing
        status = deployment.run(second)
        assert status["state"] == "interrupted"
        assert "which this node signed and others have seen: it was rolled back" in status["reason"]
    finally:
        deployment.stop()


def test_a_restored_folder_without_its_end_is_in_doubt(tmp_path):
    plan = split_rows(people(60), CLEAR, PARTIES, ONE_TABLE, seed=5)
    with deployed(tmp_path, plan) as deployment:
        deployment.stop("north")
        shutil.rmtree(deployment.settings("north").state / "once")
        deployment.start("north")
        assert deployment.nodes["north"].ledger.doubted
