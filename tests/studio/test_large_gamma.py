"""A release whose γ or names the ledger cannot hold: it is known before a row is drawn, never after."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
import pytest
import yaml
from tests.studio.world import Visitor

from masquerade.core.errors import InputError
from masquerade.services.common.ledger_totals import spending, total
from masquerade.services.common.release_ledger import Release, ReleaseLedger, inspect
from masquerade.studio import releases

pytest.importorskip("fastapi")

COLUMNS = [f"c{i}" for i in range(210)]
GAMMA = 10**18
PEOPLE = 50


@pytest.fixture
def visit(tmp_path):
    """Return a function that opens a project with these columns, each disguised by a channel with `GAMMA`."""
    opened = []

    def visit(columns):
        pd.DataFrame({name: ["yes", "no"] * (PEOPLE // 2) for name in columns}).to_csv(
            tmp_path / "people.csv", index=False
        )
        came = Visitor(tmp_path / "project")
        opened.append(came)
        project = came.studio.project
        channel = {"kind": "for_gamma", "gamma": str(GAMMA)}
        entries = {name: {"categories": ["yes", "no"], "channel": channel} for name in columns}
        (project.folder / "policy.yaml").write_text(yaml.safe_dump({"masquerade": 1, "variables": entries}))
        came.studio.reach.name(tmp_path / "people.csv")
        with project.edit("data") as (settings, _):
            settings["data"] = str(tmp_path / "people.csv")
        return came

    yield visit
    for came in opened:
        came.close()


def release(visitor, ending="csv"):
    """Release the records; return the page that says so."""
    made = visitor.post("release", do="disguise", ending=ending, accept_gamma="inf")
    assert made.status_code == 303, made.text
    return visitor.page(made.headers["location"])


def files_of(visitor):
    """Return the names of the files of releases, but for their policies."""
    return [it.name for it in (visitor.studio.project.folder / "releases").glob("*/disguised*")]


def test_a_release_beyond_the_digits_of_the_ledger_is_kept_without_a_bound(visit):
    gamma = Fraction(GAMMA) ** len(COLUMNS)
    with pytest.raises(InputError, match="fewer than"):  # before, after everybody had been drawn
        Release("s", "disguise", "anybody", releases.DISGUISED, tuple(COLUMNS), PEOPLE, None, gamma)
    visitor = visit(COLUMNS)
    for number in (1, 2):
        assert "Released" in release(visitor)
        assert "no bound" in visitor.page("release")
        entries = inspect(visitor.studio.project.folder / releases.LEDGER)[0]
        assert [(it.release.rows, it.release.gamma) for it in entries] == [(PEOPLE, None)] * number
    again = Visitor(visitor.studio.project.folder)
    assert "no bound" in again.page("release")
    again.close()


def test_two_releases_within_the_digits_of_the_ledger_have_a_product_that_is_shown(visit, tmp_path):
    """Before, the page and `party ledger --json` died of a number with too many digits."""
    gamma = Fraction(GAMMA) ** 150
    with ReleaseLedger.open(tmp_path / "releases.jsonl") as ledger:
        for number in "12":
            ledger.append(Release(number, "disguise", "anybody", releases.DISGUISED, ("c",), 1, None, gamma))
    spent = spending(inspect(tmp_path / "releases.jsonl")[0])
    with pytest.raises(ValueError, match="digits"):
        str(gamma**2)
    assert [it.to_dict()["gamma"] for it in spent] == [None]
    assert total(spent) is None
    visitor = visit(COLUMNS[:150])
    for _ in range(2):
        assert "Released" in release(visitor)
    assert "no bound" in visitor.page("release")


def test_names_that_the_ledger_cannot_hold_are_refused_before_a_row_is_drawn(visit):
    visitor = visit(["x" * 600])
    made = visitor.post("release", do="disguise", ending="csv")
    assert made.status_code == 400
    assert "at most 500 characters" in made.text
    assert not (visitor.studio.project.folder / "releases").exists()


def test_a_ledger_that_cannot_be_written_is_said_before_a_row_is_drawn(visit):
    visitor = visit(COLUMNS[:1])
    place = visitor.studio.project.folder / releases.LEDGER
    place.parent.mkdir()
    with ReleaseLedger.open(place):
        assert "is in use" in visitor.post("release", do="disguise", ending="csv", accept_gamma="inf").text
    place.write_text("not a ledger\n")
    assert "line 1" in visitor.post("release", do="disguise", ending="csv", accept_gamma="inf").text
    assert files_of(visitor) == []


@pytest.mark.parametrize("ending", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_a_release_that_is_not_written_down_is_not_left(visit, monkeypatch, ending):
    """The disk is full by then, or the ledger was damaged meanwhile."""

    def fail(*_):
        raise OSError(28, "No space left on device")

    visitor = visit(COLUMNS[:1])
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseLedger, "append", fail)
        made = visitor.post("release", do="disguise", ending=ending, accept_gamma="inf")
        assert "No space left" in (
            made.text if made.status_code == 400 else visitor.page(made.headers["location"])
        )
    assert files_of(visitor) == []
    assert inspect(visitor.studio.project.folder / releases.LEDGER)[0] == ()
    assert "Released" in release(visitor, ending)
    assert len(inspect(visitor.studio.project.folder / releases.LEDGER)[0]) == 1
