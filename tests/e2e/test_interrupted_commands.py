"""An interrupted command says which files are complete, or that nothing was written."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.e2e.test_cli_app import run

VARIABLES = "variables:\n  smoker: {categories: [yes, no]}\n  region: {categories: [a, b]}\n"


def interrupt(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


@pytest.fixture
def words(tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "v.yaml").write_text(VARIABLES)
    return "plan", tmp_path / "v.yaml", "--n", 2000, "--out", tmp_path / "policy.yaml"


def test_a_command_interrupted_before_its_result_says_that_nothing_was_written(
    words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("masquerade.plan.planner"), "plan", interrupt)
    result = run(*words)
    assert result.exit_code == 130
    assert result.stderr == "masquerade: interrupted. Nothing was written.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["v.yaml"]


def test_a_command_interrupted_later_names_its_complete_files(
    words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("masquerade.report.plan"), "plan_html", interrupt)
    result = run(*words, "--report", tmp_path / "plan.html")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == (
        f"masquerade: interrupted. Complete files: {tmp_path / 'policy.yaml'}."
    )
    assert not (tmp_path / "plan.html").exists()


def test_a_command_with_other_state_does_not_say_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disguise may have written into a memo or a ledger."""
    monkeypatch.setattr("masquerade.report.demo.run_demo", interrupt)
    assert run("demo", "--out", tmp_path / "demo").stderr == "masquerade: interrupted.\n"
