"""The kept figures of `benchmarks/commands.py`: every command that is slower than its limit is named here."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import commands

RESULTS = Path(commands.__file__).parent / "results" / "commands.json"
KNOWN_MISSES: dict[str, set[str]] = {
    "small": set(),
    "wide": set(),
    "large": {"estimate"},
}


def test_kept_figures_name_every_miss():
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert {"small"} <= set(kept) <= set(commands.SIZES)
    for size, figures in kept.items():
        names = [line["name"] for line in figures["lines"]]
        assert {"pandas", *commands.LIMITS} <= set(names) <= {*commands.PYTHON, *commands.COMMANDS}
        assert figures["misses"] == commands.misses_of(size, figures["lines"])
        assert set(figures["misses"]) == KNOWN_MISSES[size]


def test_misses_are_lines_above_their_limits():
    lines = [{"name": name, "ratio": 1.4, "cpu_seconds": 2.0} for name in commands.COMMANDS]
    assert commands.misses_of("small", lines) == {}
    for line in lines:
        line["ratio"], line["cpu_seconds"] = 1.6, 3.5
    assert set(commands.misses_of("small", lines)) == {*commands.LIMITS, *commands.SECONDS}
    assert commands.misses_of("large", lines) == {}


def test_a_choice_slower_than_the_faster_engine_and_a_run_that_was_stopped_are_misses():
    seconds = {"estimate": 1.4, "estimate --engine memory": 3.0, "estimate --engine duckdb": 1.0}
    lines = [{"name": name, "cpu_seconds": value} for name, value in seconds.items()]
    assert set(commands.misses_of("large", lines)) == {"estimate"}
    lines[0]["cpu_seconds"] = 1.2
    assert commands.misses_of("large", lines) == {}
    assert set(commands.misses_of("wide", [*lines, {"name": "report"}])) == {"report"}
