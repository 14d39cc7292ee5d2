"""Missing answers in the studio: their share, the category they become, and how estimates treat them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.studio.world import Visitor, found_at, steps_of

from masquerade.studio.steps import format_command, python

pytest.importorskip("fastapi")

ROWS = 3000


@pytest.fixture(scope="module")
def visitor(tmp_path_factory):
    """Return a visitor of a project whose data have missing answers, disguised once."""
    folder = tmp_path_factory.mktemp("missing")
    generator = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "visits": generator.choice(["0", "1", "2", "NA", "refused"], ROWS, p=[0.4, 0.3, 0.1, 0.1, 0.1]),
            "age": generator.choice(["young", "old", ""], ROWS, p=[0.5, 0.45, 0.05]),
        }
    )
    frame.to_csv(folder / "people.csv", index=False)
    came = Visitor(folder / "project")
    try:
        drafted = came.post("data", do="draft", data=str(folder / "people.csv"))
        assert drafted.status_code == 303, drafted.text
        came.page(drafted.headers["location"])
        made = came.post("release", do="disguise", ending="csv")
        assert made.status_code == 303, made.text
        came.page(made.headers["location"])
        yield came
    finally:
        came.close()


def test_the_draft_says_missing_and_the_page_shows_its_share(visitor):
    policy = visitor.studio.project.policy
    assert policy.schema["visits"].missing == ("missing", "refused")
    assert policy.schema["visits"].categories == (0, 1, 2, "missing", "refused")
    assert policy.schema["age"].missing == ("missing",)
    page = visitor.page("data")
    assert "missing, refused: " in page
    shares = [
        (at, value) for command, numbers in steps_of(page) if "policy check" in command
        for at, value in numbers if at.startswith("missing.")
    ]  # fmt: skip
    assert [at for at, _ in shares] == ["missing.0.share", "missing.1.share"]
    assert 0.15 < shares[0][1] < 0.25
    assert found_at({"missing": [{"share": shares[0][1]}]}, "missing.0.share") == shares[0][1]


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        ("", "Missing answers are counted as categories of their own."),
        ("&missing=answered", "Only people who answered are counted."),
        ("&missing=at-random&given=age", "assumed to be at random given age"),
    ],
)
def test_an_estimate_states_the_missing_share_and_the_treatment(visitor, choice, taken):
    page = visitor.page(f"estimate?do=shares&of=visits{choice}")
    assert "visits is missing (missing, refused) for " in page
    assert taken in page
    assert 'name="missing"' in page


def test_the_line_of_python_has_the_same_treatment():
    argv = ["stats", "shares", "r.csv", "--of", "visits", "--missing", "answered", "--json"]
    assert python(argv) == "mq.stats.shares(mq.tally('r.csv'), 'visits', missing='answered')"
    assert "--missing answered" in format_command(argv)
