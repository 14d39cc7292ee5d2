"""An experiment that depends on what is broken differs from its paper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.experiments.sabotage import DEPENDS, INDEPENDENT, PAIRS, verdict_of

from masquerade.core.errors import DataMissing
from masquerade_experiments.catalogue import ENTRIES
from masquerade_experiments.runner import fetch

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "sabotage.json"
QUICK = [
    "ma-2006-fig-2.2",
    "ma-2006-fig-5.4",
    "ma-2006-fig-5.1",
    "ma-2006-fig-2.3",
    "ma-sivakumar-2005-table-2",
]


def try_fault(identity, fault):
    [entry] = [entry for entry in ENTRIES if entry.id == identity]
    for name in entry.load().data:
        try:
            fetch(name)
        except DataMissing as error:
            pytest.skip(f"no package carries {name}: {error}")
    return verdict_of(identity, fault)


def test_every_experiment_says_what_it_depends_on():
    """Repeated experiments have the rows of another."""
    single = {entry.id for entry in ENTRIES if not entry.load().repeats}
    assert DEPENDS.keys() | INDEPENDENT == single
    assert not DEPENDS.keys() & INDEPENDENT


@pytest.mark.parametrize(("identity", "fault"), [it for it in PAIRS if it[0] in QUICK])
def test_a_fault_makes_quick_experiments_differ(identity, fault):
    """What is kept of quick experiments is what the code finds."""
    found = try_fault(identity, fault)
    assert found["verdict"] == "differs", found
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["faults"]
    [before] = [it for it in kept if (it["id"], it["fault"]) == (identity, fault)]
    for name in ("noticed by", "not noticed by"):
        assert found[name] == before[name]


@pytest.mark.slow
@pytest.mark.parametrize(("identity", "fault"), [it for it in PAIRS if it[0] not in QUICK])
def test_a_fault_makes_long_experiments_differ(identity, fault):
    found = try_fault(identity, fault)
    assert found["verdict"] == "differs", found


def test_kept_faults_are_all_noticed():
    """Pairs that have not been tried yet are listed, and no pair that was tried survived."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    tried = {(it["id"], it["fault"]): it for it in kept["faults"]}
    assert tried.keys() | {tuple(it) for it in kept["not tried"]} == set(PAIRS)
    for it in tried.values():
        assert it["verdict"] == "differs"
        assert it["noticed by"]
