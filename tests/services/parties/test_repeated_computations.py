"""A convener that begins a computation anew whenever it has read what opened."""

from __future__ import annotations

import pytest
from tests.services.parties.deployments import deployed
from tests.services.parties.test_hidden_k_means import people, planned

from masquerade.core.errors import RoundAborted
from masquerade.protocols.mpc.computation import Continuation
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.common.state import peek_claims
from masquerade.services.parties.kinds import hidden_k_means
from masquerade.services.parties.session_store import OPENED, RUNS, SessionStore

AGAIN = 3
OVER = "Name a new session, which is a further release."
DRAWN = {"draw_start": True, "least_size": 1, "hide_steps": True, "steps": 1}


def drawing(**changes):
    return planned("rows", None, people(60), **(DRAWN | changes))


@pytest.fixture
def read(monkeypatch):
    """What a convener reads that calls every session interrupted after that."""
    texts, carried = [], hidden_k_means.carried

    def stopping(run, terms, guarantee):
        texts.append(carried(run, terms, guarantee)[0])
        raise RoundAborted("The line went dead.", spent=True)

    monkeypatch.setattr(hidden_k_means, "carried", stopping)
    return texts


def lines_about_centres(deployment, party="north"):
    return [item for item in deployment.ledger(party) if item.kind.startswith("centres")]


def begun(deployment, party="north"):
    return len(peek_claims(deployment.settings(party).state, RUNS))


def test_without_burning_the_opening_a_convener_reads_more_than_the_ledger_says(tmp_path, monkeypatch, read):
    """Everything that opens passes by whoever carries the rounds; each run draws its start anew."""
    monkeypatch.setattr(SessionStore, "burn_opening", lambda *_: None)
    with deployed(tmp_path, drawing()) as deployment:
        for _ in range(AGAIN):
            deployment.run()
        [line] = lines_about_centres(deployment)
        assert "once" in line.kind
        assert len(read) == begun(deployment) == AGAIN


@pytest.mark.parametrize("hide_steps", [True, False])
def test_a_convener_that_has_read_drawn_clusters_is_refused_another_run(tmp_path, read, hide_steps):
    with deployed(tmp_path, drawing(hide_steps=hide_steps, steps=2)) as deployment:
        assert "The line went dead" in deployment.run()["reason"]
        for _ in range(AGAIN - 1):
            assert OVER in deployment.run()["reason"]
        deployment.stop("north", "south")  # it is on the disk
        deployment.start("north", "south")
        assert OVER in deployment.run()["reason"]
        for party in ("north", "south"):
            assert len(lines_about_centres(deployment, party)) == begun(deployment, party) == len(read) == 1


def test_drawn_clusters_may_begin_again_until_a_share_of_them_was_shown(tmp_path):
    """The last message but one shows the share of what opens; before that nothing was opened."""
    with deployed(tmp_path / "whole", drawing()) as deployment:
        deployment.done()
        bodies = [body for body, _ in deployment.replies("south", "computation")]
        assert tag_of(bodies[-1]) == Continuation.TAG
    last = len(bodies) - 2
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


def test_clusters_from_public_centres_open_the_same_however_often(tmp_path, read):
    with deployed(tmp_path, planned("rows", frame=people(60), hide_steps=True, steps=1)) as deployment:
        for _ in range(2):
            assert "The line went dead" in deployment.run()["reason"]
    first, second = read
    assert first == second
