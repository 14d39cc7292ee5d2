"""Layout, colours and the picture of the README."""

from __future__ import annotations

import re
import subprocess
import sys

import matplotlib as mpl
import pytest

from masquerade.core.plots.style import CSS_NAMES, house_style, png, svg
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.report.breach_plot import curves
from masquerade.report.pictures import (
    counts_picture,
    main,
    network_picture,
    reach,
    spread_equal,
    story_picture,
)
from masquerade.report.study import COUNTS, run_study


@pytest.fixture(scope="module")
def study():
    return run_study(500)


def test_disguised_answers_wear_masks_and_no_box_lies_on_another(study):
    (axes,) = network_picture(study).axes
    kinds = [type(patch).__name__ for patch in axes.patches]
    assert kinds.count("PathPatch") == len(study.policy.disguised)
    boxes = [patch.get_bbox() for patch in axes.patches if type(patch).__name__ == "FancyBboxPatch"]
    assert len(boxes) == len(ELEVEN_NODES)
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    assert {"γ = 3", "γ = 7.5"} <= {text.get_text() for text in axes.texts}


def test_svg_uses_the_page_s_colours_only(study):
    with house_style():
        text = svg(network_picture(study), "net")
    colours = set(re.findall(r"#[0-9a-f]{6}\b", text))
    assert colours <= {"#ffffff"}
    assert not colours & set(CSS_NAMES)
    assert text.startswith("<svg")
    assert "viewBox" in text
    assert "width=" not in text.split(">", 1)[0]
    assert all(found.startswith("net-") for found in re.findall(r'\bid="([^"]*)"', text))


def test_settings_of_matplotlib_come_back(study):
    before = dict(mpl.rcParams)
    with house_style():
        png(counts_picture(study), 40)
    assert dict(mpl.rcParams) == before


def test_no_pyplot():
    """A library that imports pyplot opens windows in other people's programs."""
    code = "import sys, masquerade.report.demo; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0  # noqa: S603


def test_dodged_moves_equal_values_apart_around_their_middle():
    assert spread_equal([0.1, 0.5, 0.1], step=0.02) == pytest.approx([0.09, 0.5, 0.11])


def test_reach_of_nothing_is_the_range_of_probabilities():
    assert reach([]) == pytest.approx((-0.02, 1.02))


def test_channels_of_equal_gamma_share_a_curve(study):
    shown, left_out = curves(study.privacy)
    assert [label for label, _ in shown] == [
        "A, D: γ = 3",
        "E, X: γ = 4",
        "L, B: γ = 4.667",
        "C, F: γ = 7.5",
    ]
    assert left_out == 0


def test_selected_counts_are_all_disguised(study):
    assert [dict(item.cell) for item in study.counts] == [dict(cell) for cell in COUNTS]
    assert all(item.stderr > 0 for item in (*study.counts, *study.cells))


def test_story_picture_is_small(study):
    content = story_picture(study)
    assert content.startswith(b"\x89PNG")
    assert len(content) <= 120_000


def test_picture_command(tmp_path, capsys):
    assert main([str(tmp_path / "demo.png")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["demo.png"]
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err
