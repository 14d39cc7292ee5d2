"""Commands that follow a session: few requests, and Ctrl-C that leaves it running or cancels it."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from tests.e2e.test_cli_app import run as run_command
from tests.services.parties.deployments import (
    OWNERS,
    SESSION,
    TABLE_1,
    LearningGoal,
    deployed,
    people,
    split_columns,
    waited,
)
from tests.services.parties.test_cancelling import SECONDS, Held

from masquerade.cli import nodes

MOST_STATUS_REQUESTS = 20
GOAL = LearningGoal(model="tables", tables=(("S", "T"),))


class Watched:
    """A client that counts requests, and lets a held message go once the session is cancelled."""

    def __init__(self, operator, held=None):
        self._operator, self._held, self.asked = operator, held, []

    def ask(self, what, values):
        self.asked.append(what)
        reply = self._operator.ask(what, values)
        if what == "cancel" and self._held is not None:
            self._held.go.set()
        return reply


class Terminal:
    """A terminal, as far as a command can tell; what is written to it is kept."""

    def __init__(self):
        self.written = ""

    def isatty(self):
        return True

    def write(self, text):
        self.written += text

    def flush(self):
        pass


@pytest.fixture
def plan():
    return split_columns(people(60), TABLE_1, OWNERS, "vertical-with-miner", GOAL, seed=2)


def test_a_session_on_a_terminal_is_followed_with_few_requests(tmp_path, plan, monkeypatch):
    with deployed(tmp_path, plan) as deployment, deployment.operator() as operator:
        operator.ask("create", {"spec": deployment.spec.model_dump(mode="json")})
        terminal, watched = Terminal(), Watched(operator)
        monkeypatch.setattr(nodes.sys, "stderr", terminal)
        status = nodes._follow(watched, operator.ask("run", {"session": SESSION}))
        monkeypatch.undo()
    assert status["state"] == "done", status
    assert "example: linking" in terminal.written
    assert len(watched.asked) <= MOST_STATUS_REQUESTS, watched.asked
    assert {party: bool(roles) for party, roles in status["requested"].items()} == dict.fromkeys(OWNERS, True)


def test_an_interrupted_command_asks_whether_to_cancel_and_says_what_was_asked_for(
    tmp_path, plan, monkeypatch, capsys
):
    with deployed(tmp_path, plan) as deployment, deployment.operator() as operator:
        held = Held(deployment, "south", "cells")
        operator.ask("create", {"spec": deployment.spec.model_dump(mode="json")})
        operator.ask("run", {"session": SESSION})
        assert held.came.wait(SECONDS)
        # without a terminal: the command that cancels
        nodes._leave_or_cancel(operator, SESSION, Path("miner.yaml"))
        said = capsys.readouterr().err
        assert "is still running at its nodes" in said
        assert "south: linking, settle, cells" in said
        assert "to end it: masquerade session cancel example --node miner.yaml" in said
        # Ctrl-C in the command itself
        monkeypatch.setattr(nodes, "_follow", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        ended = run_command("session", "run", SESSION, "--node", deployment.files[deployment.spec.convener])
        assert ended.exit_code == 130
        assert "to end it: masquerade session cancel" in ended.stderr
        # on a terminal: leave, then cancel
        answers = iter(["leave", "cancel"])
        monkeypatch.setattr(typer, "prompt", lambda *_, **__: next(answers))
        terminal = Terminal()
        monkeypatch.setattr(nodes.sys, "stdin", terminal)
        monkeypatch.setattr(nodes.sys, "stderr", terminal)
        nodes._leave_or_cancel(operator, SESSION, Path("miner.yaml"))
        assert operator.ask("status", {"session": SESSION})["state"] == "running"
        nodes._leave_or_cancel(Watched(operator, held), SESSION, Path("miner.yaml"))
        monkeypatch.undo()
        assert "left running; see masquerade session status example" in terminal.written
        assert "session 'example' is cancelled." in terminal.written
        assert waited(operator, SESSION)["state"] == "cancelled"
