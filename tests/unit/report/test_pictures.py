"""Layout, colours and the picture of the README."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import combinations

import matplotlib as mpl
import pytest

from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.report.graph import RADIUS, layout, network_picture
from masquerade.report.picture import main, story_picture
from masquerade.report.pictures import channels_by_gamma, counts_picture, dodged, reach
from masquerade.report.study import COUNTS, run_study
from masquerade.report.style import CSS_NAMES, house_style, png, svg


@pytest.fixture(scope="module")
def study():
    return run_study(500)


def test_parents_stand_left_of_their_children_and_nodes_apart():
    places = layout(ELEVEN_NODES)
    assert set(places) == set(ELEVEN_NODES)
    for child, parents in ELEVEN_NODES.items():
        assert all(places[parent][0] < places[child][0] for parent in parents)
    for (x1, y1), (x2, y2) in combinations(places.values(), 2):
        assert (x1 - x2) ** 2 + (y1 - y2) ** 2 > (2 * RADIUS) ** 2


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
    assert dodged([0.1, 0.5, 0.1], step=0.02) == pytest.approx([0.09, 0.5, 0.11])


def test_reach_of_nothing_is_the_range_of_probabilities():
    assert reach([]) == pytest.approx((-0.02, 1.02))


def test_channels_by_gamma(study):
    assert [label for label, _ in channels_by_gamma(study)] == [
        "A, D: γ = 3",
        "E, X: γ = 4",
        "L, B: γ = 4.667",
        "C, F: γ = 7.5",
        "whole record: γ = 176,400",
    ]


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
