"""Attacks on protocols: differencing, coalitions and known columns find what is there, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

import masquerade as mq
from masquerade.audit import coalitions as pools
from masquerade.audit.coalitions import audit_coalitions, run_pool
from masquerade.audit.differencing import audit_answers, audit_states
from masquerade.audit.known_columns import audit_known_columns, expected_agreement, guesses
from masquerade.core.errors import FileError, InputError
from masquerade.services.common.state import State
from masquerade.sources.control.answer_history import Answered, AnswerHistory

SCHEMA = mq.Schema({"a": [0, 1], "b": [0, 1], "c": [0, 1, 2]})


def answered(recipient, *queries):
    names = dict.fromkeys(name for query in queries for name in query.names)
    return Answered(queries, tuple(SCHEMA[name] for name in names), recipient, "a session")


class TestDifferencing:
    def test_a_difference_of_two_sessions_is_found_and_whole_tables_are_not(self):
        tracker = [answered("x", mq.Query(by="a")), answered("y", mq.Query(where={"a": 1, "b": 0}))]
        found = audit_answers(tracker)
        assert [finding.verdict for finding in found.findings] == [
            "not contradicted",
            "not contradicted",
            "at risk",
        ]
        assert "all of them together" in found.findings[-1].about
        assert "cells of a, b follow from several answers together" in found.findings[-1].says
        (table,) = found.tables
        # of 8 cells and margins: a's two, then (1, 0) of y's, and (1, 1) of both together
        assert table.rows[-1] == ("all of them together", "a, b", 8, 3, 4)
        assert not found.contradicted
        whole = audit_answers([answered("x", mq.Query(by=("a", "b")), mq.Query(by=("b", "c")))])
        assert {finding.verdict for finding in whole.findings} == {"not contradicted"}
        assert whole.tables[0].rows == (("x", "a, b", 8, 8, 8), ("x", "b, c", 11, 11, 11))

    def test_protected_cells_that_follow_contradict(self):
        entries = [answered("x", mq.Query(by="a"), mq.Query(where={"a": 1, "b": 0}))]
        for rules, contradicted in (
            (mq.Rules(protect=[["a", "b"]]), True),
            (mq.Rules(most_variables=1), True),
            (mq.Rules(most_variables=2), False),
        ):
            found = audit_answers(entries, rules)
            assert found.contradicted is contradicted
            assert found.exit_code == contradicted
        with pytest.raises(InputError, match="protect 'z'"):
            audit_answers(entries, mq.Rules(protect=[["z"]]))

    def test_a_state_folder_is_read_while_its_service_runs(self, tmp_path):
        with State.open(tmp_path / "state") as state:
            AnswerHistory(state.burnt).append(answered("x", mq.Query(by="a")))
            AnswerHistory(state.burnt).append(answered("x", mq.Query(where={"a": 1, "b": 0})))
            (tmp_path / "state" / "releases.jsonl").touch(mode=0o600)
            found = audit_states([tmp_path / "state"], mq.Rules(protect=[["a", "b"]]))
            command = [sys.executable, "-m", "masquerade", "audit", "session", "answers", "state"]
            done = subprocess.run(  # noqa: S603  (our own command)
                [*command, "--protect", "a,b", "--json"], cwd=tmp_path, capture_output=True, check=False
            )
        assert found.contradicted
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["findings"][0]["about"] == "cells of a × b"
        with pytest.raises(FileError, match="not a state folder"):
            audit_states([tmp_path / "nowhere"])


class TestCoalitions:
    def test_what_is_left_of_a_message_is_the_counts_only_when_everybody_else_colludes(self):
        names = ["a", "b", "c", "d"]
        run = run_pool(names)
        assert np.array_equal(run.total, sum(run.counts.values()))
        for size in range(4):
            for coalition in combinations(names, size):
                others = frozenset(names) - set(coalition)
                assert (
                    run.find_exposed(coalition, wire=True)
                    == run.find_exposed(coalition, wire=False)
                    == others
                )
                for name in others:
                    opened = np.array_equal(run.unmask(coalition, name), run.counts[name])
                    assert opened == (len(others) == 1)

    def test_a_sweep_says_it_in_a_table(self):
        found = audit_coalitions(4)
        assert not found.contradicted
        assert [row[3] for row in found.tables[0].rows if row[1]] == [0, 0, 0, 4]
        assert "the difference of the two sums is the newcomer's" in found.findings[1].says

    def test_masks_that_do_not_hide_are_found(self, monkeypatch):
        """A planted fault: all masks are the same words, so that neighbours' masks are known to everybody."""

        def same(_self, _peer, count, *_rest):
            return np.zeros(count, dtype=np.uint64)

        monkeypatch.setattr(pools.PoolingParty, "mask", same)
        found = audit_coalitions(3)
        assert found.contradicted
        assert "0 that collude learn the counts of one other" in found.findings[0].says

    @pytest.mark.parametrize("parties", [2, 10, True])
    def test_pools_that_are_none_or_too_large_are_refused(self, parties):
        with pytest.raises(InputError, match="between 3 and 9"):
            audit_coalitions(parties)


class TestKnownColumns:
    def test_agreement_is_that_of_the_formula(self):
        """Beyond five standard errors once in a million; columns' own correlations are within one."""
        for guess in guesses(60, (5, 15, 30, 45, 55), trials=30):
            assert abs(guess.agreement - guess.expected) < 6 * max(guess.error, 0.005)
        table = [round(expected_agreement(k, 60), 3) for k in (5, 15, 30, 45, 55)]
        assert table == [0.618, 0.718, 0.841, 0.958, 1.0]
        assert expected_agreement(60, 60) == 1.0

    def test_an_audit_says_what_owners_send(self):
        found = audit_known_columns(40, (4, 20), trials=4)
        assert [row[-1] for row in found.tables[0].rows] == [True, False]
        assert "4 columns, the most that owners send" in found.findings[0].says
        for wrong in ((10, (4,)), (40, (40,)), (40, (0,))):
            with pytest.raises(InputError, match="1 or more known columns"):
                audit_known_columns(*wrong)
