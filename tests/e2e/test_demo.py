"""The main job on built-in data, end to end: files, text, page, and whether the estimates are right."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from statistics import NormalDist

import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.report import pictures
from masquerade.report.demo import DemoResult, run_demo

VOID = {"meta", "br", "hr", "img", "link", "input"}
FILES = {"report.html", "policy.yaml", "disguised.parquet"}
LINKS = ("src", "href", "xlink:href", "srcset", "data", "action", "poster")
FALSE_ALARM = 1e-6


class Page(HTMLParser):
    """Reads a page, strictly: every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.labels: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1
        given = dict(attrs)
        if "id" in given:
            self.ids[given["id"]] += 1
        self.links += [
            given[name] for name in ("src", "href", "xlink:href", "srcset", "data") if name in given
        ]
        if given.get("role") == "img":
            self.labels.append(given["aria-label"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> DemoResult:
    return run_demo(tmp_path_factory.mktemp("demo") / "new" / "out", n=2_000)


@pytest.fixture(scope="module")
def source_text(result) -> str:
    return result.report.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source_text) -> Page:
    return Page(source_text)


def test_three_files_and_nothing_else(result):
    assert {path.name for path in result.report.parent.iterdir()} == FILES
    assert (result.policy.name, result.records.name) == ("policy.yaml", "disguised.parquet")


def test_the_files_answer_through_the_ordinary_interface(result):
    policy = mq.Policy.load(result.policy)
    assert policy.id == result.study.policy.id
    network = mq.learn.bayesian_network(mq.tally(str(result.records), policy), ELEVEN_NODES)
    estimates = [item.estimate for node in result.study.nodes for item in node.parameters]
    assert estimates == [value for table in network.tables for value in table.probabilities.ravel().tolist()]


def test_text_is_short_and_says_everything(result):
    lines = result.text.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100
    rows = [line for line in lines if line.startswith("  A=1, T=1 ")]
    item = next(item for item in result.study.counts if item.label == "A=1, T=1")
    assert len(rows) == 1
    for figure in (item.truth, item.naive, item.estimate, item.stderr):
        assert f"{figure:,.0f}" in rows[0]
    for words in ("GUARANTEE", "176,400", "S, T, G in clear", "prints γ = 9 for C and F", "is 7.5"):
        assert words in result.text
    assert str(result.report) in result.text


def test_page_is_self_contained(source_text, page):
    assert page.tags["script"] == page.tags["link"] == page.tags["iframe"] == 0
    assert all(link.startswith("#") for link in page.links)
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", source_text))
    assert "@import" not in source_text
    assert "http" not in source_text
    targets = {link.removeprefix("#") for link in page.links}
    assert targets <= set(page.ids)
    assert max(page.ids.values()) == 1


def test_page_has_all_pictures_tables_and_the_guarantee(page):
    assert page.tags["svg"] == page.tags["figure"] == page.tags["figcaption"] == len(page.labels) == 5
    assert all(len(label) > 30 for label in page.labels)
    assert {"network", "counts", "parameters", "errors", "breach", "guarantee"} <= set(page.ids)
    assert page.tags["table"] == 1 + 3 + len(ELEVEN_NODES) + 2
    for words in (
        "P(E | T, L)",
        "176,400",
        "OS randomness",
        "anyone who sees the disguised records",
        "is 7.5",
    ):
        assert words in page.text


def bound(figures: int) -> float:
    """Return what a right program's largest |z| exceeds once in a million runs at most (Bonferroni)."""
    return NormalDist().inv_cdf(1 - FALSE_ALARM / (2 * figures))


def test_parameters_agree_with_the_network(result):
    errors = result.study.reliable_errors
    assert len(errors) > 25
    assert max(map(abs, errors)) < bound(len(errors))


def test_estimated_counts_agree_with_the_people_and_naive_ones_do_not(result):
    cells = result.study.counts
    assert max(abs(item.z) for item in cells) < bound(len(cells))
    cells = result.study.cells
    assert max(abs(item.naive - item.truth) / item.stderr for item in cells) > bound(len(cells))


@pytest.mark.parametrize("n", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 50))])
def test_few_people(tmp_path, n):
    """Warnings are errors in this test suite; unseen configurations are named, never shown as numbers."""
    found = run_demo(tmp_path, n=n)
    shown = found.text + Page(found.report.read_text(encoding="utf-8")).text
    assert not re.search(r"\b(nan|inf)\b", shown)
    assert n == 50 or "unseen" in found.text
    assert max(map(len, found.text.splitlines()[:-3])) <= 100


@pytest.mark.parametrize("n", [0, -1])
def test_nobody_is_refused(tmp_path, n):
    with pytest.raises(InputError, match="at least one person"):
        run_demo(tmp_path / "out", n=n)
    assert not (tmp_path / "out").exists()


def test_existing_directory_keeps_what_is_not_ours(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "report.html").write_text("old")
    result = run_demo(tmp_path, n=50, overwrite=True)
    assert result.report.read_text(encoding="utf-8") != "old"
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"notes.txt"}


def test_nothing_is_written_when_drawing_fails(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no ink")

    monkeypatch.setattr(pictures, "breach_picture", broken)
    with pytest.raises(RuntimeError, match="no ink"):
        run_demo(tmp_path / "out", n=50)
    assert not (tmp_path / "out").exists()


def test_no_half_written_report_when_the_disk_fails(tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("old")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match=r"cannot be written \(no space left on device\)"):
        run_demo(tmp_path, n=50, overwrite=True)
    assert (tmp_path / "report.html").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} <= FILES


def test_a_file_in_place_of_the_directory(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(FileError, match="cannot create this directory"):
        run_demo(tmp_path / "out", n=1)


def test_report_is_readable_by_others_as_usual(result, tmp_path):
    (tmp_path / "usual").touch()
    assert result.report.stat().st_mode == (tmp_path / "usual").stat().st_mode
