"""A session kind of another package: sessions of it run as ours do, with consent, refusals and a ledger."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.e2e.test_cli_app import ok
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    LearningGoal,
    clear_counts,
    deployed,
    people,
    split_rows,
)

from masquerade.core.errors import InputError, PluginError, QueryRefused
from masquerade.services.parties import kinds

PARTIES = ("north", "south")
TABLES = (("A", "S"), ("T",))


@pytest.fixture
def told(installed, tmp_path):
    """A session of clear tables that has ended well, but for its model."""
    assert "masquerade.session_kinds" in installed["entry-points"]
    plan = split_rows(people(120), CLEAR, PARTIES, LearningGoal(model="tables", tables=TABLES), seed=3)
    with deployed(tmp_path, replace(plan, protocol="clear-tables")) as deployment:
        yield deployment


def test_a_session_of_another_packages_kind(told):
    found = {tuple(table["by"]): table["values"] for table in told.done()["tables"]}
    for by in TABLES:
        assert np.array_equal(found[by], clear_counts(people(120), by))
    left = {(item.recipient, item.kind, item.variables, item.gamma) for item in told.ledger("north")}
    assert left == {(MINER, "clear counts of this party alone", by, None) for by in TABLES}


def test_a_party_tells_no_other_table_than_the_session_needs(told):
    with told.halting("south", "tables"):
        assert told.run()["state"] == "interrupted"
    before = told.ledger("north")
    with pytest.raises(QueryRefused, match="model does not need this"):
        told.say(MINER, "north", "tables", json.dumps(["A", "T"]).encode())
    told.start("south")
    with pytest.raises(QueryRefused, match="'south' may not ask for this"):
        told.say("south", "north", "tables", json.dumps(["T"]).encode())
    assert told.ledger("north") == before


def test_commands_know_the_kind(installed, tmp_path):  # noqa: ARG001  (its use is to be there)
    folder = tmp_path / "try"
    ok("session", "example", folder, "--protocol", "clear-tables", "--n", 20)
    assert "protocol: clear-tables" in (folder / "session.yaml").read_text()
    assert "is valid for a session" in ok("config", "check", folder / "session.yaml").stdout


def test_without_the_package_there_is_no_such_kind():
    assert "clear-tables" not in kinds.names()
    with pytest.raises(InputError, match="There is no session kind 'clear-tables'"):
        kinds.find("clear-tables")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import nothing_there", "ModuleNotFoundError"),
        ("Toy = 7", "it is not a subclass of SessionKind"),
        ("from masquerade.services.parties.kinds import SessionKind as Toy", "does not state its name"),
    ],
)
def test_a_broken_kind_names_the_package_it_comes_from(tmp_path, monkeypatch, text, complaint):
    about = tmp_path / "toys-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[masquerade.session_kinds]\ntoy = toys_kind:Toy\npooled-counts = toys_kind:Toy\n"
    )
    (tmp_path / "toys_kind.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toys_kind", raising=False)
    with pytest.raises(PluginError, match=f"'toy' of the package toys 1.0 cannot be used: .*{complaint}"):
        kinds.find("toy")
    assert kinds.find("pooled-counts").__module__.startswith("masquerade.")  # nobody takes the place of ours
