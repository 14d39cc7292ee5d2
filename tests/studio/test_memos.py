"""A draw is known by its memo's id: a memo that was lost, renamed or replaced draws everybody again."""

from dataclasses import replace
from fractions import Fraction

import pandas as pd
import pytest
from tests.studio.world import Visitor

from masquerade.disguising.memo import Memo
from masquerade.services.common.ledger_totals import spending
from masquerade.services.common.release_ledger import Release, ReleaseLedger, entry_of, inspect
from masquerade.studio import releases
from masquerade.studio.project import Project

pytest.importorskip("fastapi")

POLICY = """masquerade: 1
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: for_gamma, gamma: 3}}
"""
PEOPLE = 400


@pytest.fixture
def visitor(tmp_path):
    frame = pd.DataFrame({"person": range(PEOPLE), "smoker": ["yes", "no"] * (PEOPLE // 2)})
    frame.to_csv(tmp_path / "people.csv", index=False)
    came = Visitor(tmp_path / "project")
    project = came.studio.project
    (project.folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    came.studio.reach.name(tmp_path / "people.csv")
    with project.edit("data") as (settings, _):
        settings["data"] = str(tmp_path / "people.csv")
    yield came
    came.close()


def release(visitor, **fields):
    made = visitor.post("release", do="disguise", ending="csv", person="person", **fields)
    assert made.status_code == 303, made.text
    return visitor.page(made.headers["location"])


def ledger(visitor):
    return inspect(visitor.studio.project.folder / releases.LEDGER)[0]


def reports(visitor, number):
    path = visitor.studio.project.folder / f"releases/{number}/disguised.csv"
    return pd.read_csv(path)["smoker"].tolist()


def lose(path):
    path.unlink()


def rename(path):
    path.rename(path.with_name("elsewhere.memo"))


def put_another(path):
    path.unlink()
    Memo.load_or_create(path)


def spent_gamma(entries):
    [spent] = spending(entries)
    return spent.gamma


@pytest.mark.parametrize(
    "change",
    [*(pytest.param(change, marks=pytest.mark.slow) for change in (lose, rename)), put_another],
)
def test_another_memo_is_counted_as_a_further_draw_and_is_an_act_of_the_person(visitor, change):
    project = visitor.studio.project
    memo = project.folder / "people.memo"
    release(visitor)
    page = release(visitor)
    assert "draw everyone again" not in page
    assert reports(visitor, 1) == reports(visitor, 2)  # the memo repeats them
    assert spent_gamma(ledger(visitor)) == 3
    first = Memo.load(memo).id
    assert {entry.release.draw for entry in ledger(visitor)} == {f"{first} {project.policy.id}"}

    change(memo)
    asked = visitor.post("release", do="disguise", ending="csv", person="person")
    assert asked.status_code == 400
    assert "draw everyone again" in asked.text
    assert "γ = 9" in asked.text
    assert not (project.folder / "releases/3").exists()
    assert (memo.exists(), len(ledger(visitor))) == (change is put_another, 2)
    assert 'name="again"' in visitor.page("release")

    page = release(visitor, again="1")
    # of 400 people all are drawn again; that each report is the same has a chance below 0.63**400
    assert reports(visitor, 3) != reports(visitor, 1)
    assert "These people were disguised before under another memo: over all 3 releases γ = 9" in page
    assert Memo.load(memo).id != first
    kept = ledger(visitor)
    assert spent_gamma(kept) == 9
    # the attack: a draw that is named by the file's name counts once, however often the file is made anew
    line = kept[0]
    by_name = []
    for entry in kept:
        named = replace(entry.release, draw=f"people.memo {entry.release.policy}")
        line = entry_of(named, line.mark)
        by_name.append(line)
    assert spent_gamma(by_name) == Fraction(3)


def test_a_memo_that_is_put_back_repeats_its_reports(visitor):
    memo = visitor.studio.project.folder / "people.memo"
    release(visitor)
    rename(memo)
    assert visitor.post("release", do="disguise", ending="csv", person="person").status_code == 400
    memo.with_name("elsewhere.memo").rename(memo)
    page = release(visitor)
    assert "under another memo" not in page
    assert reports(visitor, 1) == reports(visitor, 2)
    assert spent_gamma(ledger(visitor)) == 3


def test_two_releases_under_two_memos_say_what_they_multiply_to(tmp_path):
    project = Project(tmp_path)
    (tmp_path / releases.FOLDER).mkdir()
    lines = [("releases/1/disguised.csv", "a" * 16), ("releases/2/disguised.csv", "b" * 16)]
    for number, (out, memo) in enumerate(lines):
        what = ("disguised records", ("smoker",), PEOPLE, "p", Fraction(3), None, f"{memo} p")
        with ReleaseLedger.open(tmp_path / releases.LEDGER) as kept:
            kept.append(Release(out, "disguise", "anybody", *what))
        assert (releases.memo_words(project) is None) == (number == 0)
    told = "These people were disguised before under another memo: over both releases γ = 9"
    assert releases.memo_words(project).startswith(told)


def test_a_first_memo_is_made_and_a_release_without_one_needs_none(visitor):
    made = visitor.post("release", do="disguise", ending="csv")
    visitor.page(made.headers["location"])
    assert not (visitor.studio.project.folder / "people.memo").exists()
    release(visitor)
    disguised = [s.command for s in visitor.studio.project.steps if s.command[0] == "disguise"]
    assert ["--new-memo" in command for command in disguised] == [False, True]
    release(visitor)
    disguised = [s.command for s in visitor.studio.project.steps if s.command[0] == "disguise"]
    assert "--new-memo" not in disguised[-1]
    assert spent_gamma(ledger(visitor)) == 9  # the first had no memo, the other two one draw together
