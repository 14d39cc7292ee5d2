"""Plots of resampled structures show how often each link was found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.test_cli_app import ok

import masquerade as mq

ORDER = ["exams", "pills", "sleep", "year"]


def texts(axes: object) -> list[str]:
    return [item.get_text() for item in axes.texts]  # type: ignore[attr-defined]


def test_each_link_has_its_percentage() -> None:
    source = mq.tally(mq.data.students())
    drawn = mq.learn.resampled_network(source, order=ORDER, samples=5)
    found = mq.learn.structure(source, order=ORDER).with_frequencies(drawn.frequency)
    wanted = sorted(f"{drawn.frequency.get(link, 0.0):.0%}" for link in found.links)
    assert sorted(text for text in texts(found.plot()) if text.endswith("%")) == wanted
    assert any("percentage: resamples with the link" in text for text in texts(found.plot()))
    averaged = texts(drawn.plot())
    assert any("among 5 structures" in text for text in averaged)
    assert sum(text.endswith("%") for text in averaged) == sum(map(len, drawn.structure.values()))


def test_a_structure_without_resamples_has_no_percentages() -> None:
    found = mq.learn.structure(mq.tally(mq.data.students()), order=ORDER)
    assert not [text for text in texts(found.plot()) if "%" in text]


def test_the_command_draws_a_resampled_structure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data, policy, picture = tmp_path / "s.csv", tmp_path / "policy.yaml", tmp_path / "s.svg"
    mq.data.students().to_csv(data, index=False)
    lines = [f"  {name}: {{categories: {labels}}}" for name, labels in CATEGORIES.items()]
    policy.write_text("\n".join(["masquerade: 1", "variables:", *lines]) + "\n")
    words = ("learn", "structure", data, "--policy", policy, "--clear", "--order", ",".join(ORDER))
    ok(*words, "--resample", 3, "--plot", picture)
    assert "percentage: resamples with the link" in picture.read_text()


CATEGORIES = {
    variable.name: "[" + ", ".join(str(label).lower() for label in variable.categories) + "]"
    for variable in mq.tally(mq.data.students()).schema.variables
}
