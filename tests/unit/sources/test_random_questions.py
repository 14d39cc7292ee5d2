"""Random sequences of questions against inference control, and brute force: kept ones, and some live."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.inference_control import LEAST_PEOPLE, QUESTIONS, RESULT, UNCONTROLLED, sequence

from masquerade.sources.control.linear_span import LinearSpan

KINDS = ("simulatable", "data_dependent")
KEPT = 100_000  # sequences at least
LIVE = 100


def test_no_kept_sequence_gave_a_protected_cell_away():
    runs = json.loads(RESULT.read_text(encoding="utf-8"))
    assert sum(run[kind]["sequences"] for run in runs for kind in KINDS) >= KEPT
    for run in runs:
        for kind in KINDS:
            found = run[kind]
            assert found["gave_a_protected_cell_away"] == 0
            assert sum(found["happened"].values()) == QUESTIONS * found["sequences"]
            # it answers most of what it is asked, and without it half of the sequences would give a cell away
            assert found["happened"]["answered"] > 0.5 * QUESTIONS * found["sequences"]
            assert found[f"would_have_without_control_of_{UNCONTROLLED}"] > 0.5 * UNCONTROLLED


@pytest.mark.parametrize("telling", [False, True], ids=KINDS)
def test_no_live_sequence_does(telling):
    generator = np.random.default_rng()
    happened = [sequence(generator, telling=telling) for _ in range(LIVE)]
    assert [cells for _, cells in happened if cells] == []
    assert sum(told["answered"] for told, _ in happened) > 0.4 * QUESTIONS * LIVE


def test_brute_force_finds_what_a_blind_control_lets_pass(monkeypatch):
    monkeypatch.setattr(LinearSpan, "contains", lambda _self, _vector: False)
    generator = np.random.default_rng()
    lost = sum(bool(sequence(generator, telling=True)[1]) for _ in range(LIVE))
    assert lost > 0.3 * LIVE  # every question is answered: over half would
    assert LEAST_PEOPLE > 1
