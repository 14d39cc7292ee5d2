"""A convener that repeats a computation after it has read the opened result."""

from __future__ import annotations

import pytest
from tests.services.parties.deployments import Deployment, deployed, started
from tests.services.parties.test_hidden_k_means import people, planned
from tests.services.parties.test_hidden_structure import GOAL
from tests.services.parties.test_hidden_structure import planned as planned_structure

from masquerade.core.errors import InputError, RoundAborted
from masquerade.protocols.mpc.computation import Continuation
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.common.state import peek_claims
from masquerade.services.parties.kinds import hidden_k_means, hidden_structure
from masquerade.services.parties.session_store import OPENED, RUNS, SessionStore

AGAIN = 3
OVER = "Name a new session, which is a further release."
DRAWN = {"draw_start": True, "least_size": 1, "hide_steps": True, "steps": 1}


def drawing(**changes):
    return planned("rows", None, people(60), **(DRAWN | changes))


@pytest.fixture
def read(monkeypatch):
    """Texts that a convener reads which then reports every session as interrupted."""
    texts, run_computation = [], hidden_k_means.run_computation

    def stopping(run, terms, guarantee):
        texts.append(run_computation(run, terms, guarantee)[0])
        raise RoundAborted("The line went dead.", spent=True)

    for kind in (hidden_k_means, hidden_structure):
        monkeypatch.setattr(kind, "run_computation", stopping)
    return texts


def lines_about_centres(deployment, party="north"):
    return [item for item in deployment.ledger(party) if item.kind.startswith("centres")]


def begun(deployment, party="north"):
    return len(peek_claims(deployment.settings(party).state, RUNS))


def test_without_burning_the_opening_a_convener_reads_what_was_to_open_once(tmp_path, monkeypatch, read):
    """The convener relays all opened values; each run draws a new start."""
    monkeypatch.setattr(SessionStore, "burn_opening", lambda *_: None)
    with deployed(tmp_path, drawing()) as deployment:
        for _ in range(AGAIN):
            deployment.run()
        lines = lines_about_centres(deployment)
        assert all("once" in line.kind for line in lines)
        assert len(lines) == len(read) == begun(deployment) == AGAIN  # a line for each


@pytest.mark.parametrize("hide_steps", [True, False])
def test_a_convener_that_has_read_drawn_clusters_is_refused_another_run(tmp_path, read, hide_steps):
    with deployed(tmp_path, drawing(hide_steps=hide_steps, steps=2)) as deployment:
        assert "The line went dead" in deployment.run()["reason"]
        for _ in range(AGAIN - 1):
            assert OVER in deployment.run()["reason"]
        deployment.stop("north", "south")  # it is durable
        deployment.start("north", "south")
        assert OVER in deployment.run()["reason"]
        for party in ("north", "south"):
            assert len(lines_about_centres(deployment, party)) == begun(deployment, party) == len(read) == 1


def test_drawn_clusters_may_begin_again_until_a_share_of_them_was_shown(tmp_path):
    """The last message but one shows the share of what opens, after all have burnt it in the one before."""
    with deployed(tmp_path / "whole", drawing()) as deployment:
        deployment.done()
        bodies = [body for body, _ in deployment.replies("south", "computation")]
        assert tag_of(bodies[-1]) == Continuation.TAG
    last = len(bodies) - 3
    with deployed(tmp_path / "cut", drawing()) as deployment:
        with deployment.halting("south", "computation", last):  # which is not worked on
            assert deployment.run()["state"] == "interrupted"
        assert peek_claims(deployment.settings("south").state, OPENED) == []
        deployment.start("south")
        # north may have shown its share before: then it is over, as nobody can tell what became of it
        shown = len(peek_claims(deployment.settings("north").state, OPENED))
        status = deployment.run()
        assert (OVER in (status["reason"] or "")) == bool(shown)
    with deployed(tmp_path / "early", drawing()) as deployment:
        with deployment.halting("south", "computation", last - 1, lost=True):
            assert deployment.run()["state"] == "interrupted"
        deployment.start("south")
        deployment.done()
        assert begun(deployment, "south") == 2
        assert len(peek_claims(deployment.settings("south").state, OPENED)) == 1
    with deployed(tmp_path / "late", drawing()) as deployment:
        with deployment.halting("south", "computation", last, lost=True):
            assert deployment.run()["state"] == "interrupted"
        deployment.start("south")
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert OVER in status["reason"]


def public(steps=1):
    return planned("rows", frame=people(60), hide_steps=True, steps=steps)


def agreeing(folder, openings):
    """Write a deployment whose nodes agree to several computations that open something."""
    deployment = Deployment(folder / "deployment", public())
    deployment.consent_to(deployment.spec, openings=openings)
    return started(deployment)


def test_clusters_from_public_centres_open_the_same_as_often_as_was_agreed(tmp_path, read):
    with agreeing(tmp_path, 2) as deployment:
        for _ in range(2):
            assert "The line went dead" in deployment.run()["reason"]
        assert OVER in deployment.run()["reason"]
        assert len(lines_about_centres(deployment)) == 2
    first, second = read
    assert first == second


@pytest.fixture
def lying(monkeypatch):
    """A party, south, that brings different records to every run."""
    terms, runs = hidden_k_means._ClusterComputation, []
    held, program = terms._local_table, terms.program

    def watched(self, part, key):
        self.lies = part.node.name == "south"
        return program(self, part, key)

    def false(self, party):
        table = held(self, party)
        if self.lies:
            runs.append(1)
            table[table != 0] = len(runs) % 2
        return table

    monkeypatch.setattr(terms, "program", watched)
    monkeypatch.setattr(terms, "_local_table", false)


def test_a_convener_with_a_party_that_lies_would_ask_again_and_again(tmp_path, read, lying):  # noqa: ARG001
    """A dishonest party turns each opening into the answer to a question of its choice."""
    with agreeing(tmp_path, AGAIN) as deployment:
        for _ in range(AGAIN):
            assert "The line went dead" in deployment.run()["reason"]
    assert read[0] != read[1]


def test_a_convener_with_a_party_that_lies_is_refused_the_second_question(tmp_path, read, lying):  # noqa: ARG001
    with deployed(tmp_path, public()) as deployment:
        assert "The line went dead" in deployment.run()["reason"]
        for _ in range(AGAIN):
            assert OVER in deployment.run()["reason"]
        deployment.stop("north", "south")
        deployment.start("north", "south")
        assert OVER in deployment.run()["reason"]
        assert len(read) == begun(deployment) == len(lines_about_centres(deployment)) == 1


def test_what_is_drawn_opens_once_whatever_a_consent_says(tmp_path):
    deployment = Deployment(tmp_path / "deployment", drawing())
    deployment.consent_to(deployment.spec, openings=2)
    with pytest.raises(InputError, match="draws a different start"):
        deployment.settings("north")


def counting():
    """A session that opens counts of two families, and no winner before: no variable can have parents."""
    goal = GOAL.model_copy(update={"max_parents": 0})
    return planned_structure(goal=goal, n=60, open_counts=["L", "X"])


def test_without_burning_the_opening_a_convener_reads_counts_again_and_again(tmp_path, monkeypatch, read):
    monkeypatch.setattr(SessionStore, "burn_opening", lambda *_: None)
    with deployed(tmp_path, counting()) as deployment:
        for _ in range(AGAIN):
            assert "The line went dead" in deployment.run()["reason"]
    assert len(read) == AGAIN


def test_a_convener_that_has_read_counts_without_parents_is_refused_another_run(tmp_path, read):
    with deployed(tmp_path, counting()) as deployment:
        assert "The line went dead" in deployment.run()["reason"]
        for _ in range(AGAIN - 1):
            assert OVER in deployment.run()["reason"]
        for party in ("north", "south"):
            assert len(peek_claims(deployment.settings(party).state, OPENED)) == len(read) == 1
