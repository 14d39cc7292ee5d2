"""Tables of any size come out k-anonymous, nothing is added, and few stars are needed."""

from __future__ import annotations

import datetime
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.unit.anonymity.oracle import fewest_stars

from masquerade.anonymity import Anonymized, anonymize, as_hierarchies, lattice, local_search
from masquerade.anonymity.board import narrow_board, new_board, with_shown
from masquerade.anonymity.columns import STAR, distinct_rows
from masquerade.anonymity.lattice import Kinds, Ladder, nodes_for
from masquerade.anonymity.local_search import place_the_rest, start_greedily
from masquerade.core.errors import InputError, SchemaError

TABLES = hnp.arrays(np.int64, st.tuples(st.integers(1, 40), st.integers(1, 4)), elements=st.integers(0, 4))
LEVELS = {
    "hierarchies": 1,
    "columns": {"q0": {"ranges": [2, 4]}, "q1": {"tree": {"low": [0, 1], "high": [2, 3, 4]}}},
}
KINDS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def as_frame(codes):
    frame = pd.DataFrame(codes, columns=[f"q{i}" for i in range(codes.shape[1])])
    return frame.assign(sensitive=np.arange(len(codes)) + 2**60)


def quasi(frame):
    return [name for name in frame.columns if name.startswith("q")]


def check_table(frame: pd.DataFrame, result: Anonymized, k: int) -> None:
    """Whatever was asked: classes of k, rows in place, nothing but removals, figures that are true."""
    names = quasi(frame)
    assert list(result.frame.columns) == list(frame.columns)
    sizes = result.frame.groupby(names, dropna=False)["sensitive"].transform("size")
    assert sizes.min() >= k
    assert np.array_equal(np.bincount(result.groups)[result.groups], sizes)
    pd.testing.assert_series_equal(result.frame["sensitive"], frame["sensitive"])
    for i, name in enumerate(names):
        kept = result.levels[:, i] == 0
        assert result.frame.loc[kept, name].astype(str).tolist() == frame.loc[kept, name].astype(str).tolist()
        assert (result.frame.loc[result.stars[:, i], name] == STAR).all()
        assert not (result.frame.loc[~result.stars[:, i], name] == STAR).any()
    assert result.utility.suppressed_cells == result.stars.sum()
    assert result.utility.classes == result.groups.max() + 1
    assert result.utility.discernibility == sizes.sum()
    assert result.utility.average_class == pytest.approx(len(frame) / result.utility.classes / k)


@given(TABLES, st.integers(1, 6))
@settings(deadline=None, max_examples=50)
def test_every_row_hides_among_k_and_nothing_else_changes(codes, k):
    frame = as_frame(codes)
    if len(frame) < k:
        with pytest.raises(InputError, match="no classes of"):
            anonymize(frame, quasi(frame), k)
        return
    result = anonymize(frame, quasi(frame), k)
    check_table(frame, result, k)
    assert result.utility.loss == pytest.approx(result.stars.mean())
    assert result.utility.generalised_cells == 0
    for name, values in frame.items():  # a column without a star keeps its type
        if name.startswith("q") and not (result.frame[name] == STAR).any():
            pd.testing.assert_series_equal(result.frame[name], values)


@given(TABLES, st.integers(2, 5), st.randoms())
@settings(deadline=None, max_examples=25)
def test_the_order_of_rows_does_not_change_what_is_lost(codes, k, random):
    if len(codes) < k:
        return
    order = random.sample(range(len(codes)), len(codes))
    first, second = (anonymize(as_frame(own), quasi(as_frame(own)), k) for own in (codes, codes[order]))
    assert first.utility == second.utility


def test_stars_come_close_to_the_fewest_possible():
    # deterministic: of 60 random tables all but a few reach the optimum, and none needs more than half again
    rng = np.random.default_rng(7)
    reached, worst = 0, 1.0
    for _ in range(60):
        k = int(rng.integers(2, 4))
        codes = rng.integers(0, rng.integers(2, 4), (rng.integers(4, 10), rng.integers(1, 6)))
        frame = as_frame(codes)
        stars, best = anonymize(frame, quasi(frame), k).utility.suppressed_cells, fewest_stars(codes, k)
        assert stars >= best
        reached += stars == best
        worst = max(worst, stars / best if best else 1.0 + stars)
    assert reached >= 55
    assert worst <= 1.5


@given(TABLES, st.integers(1, 6))
@settings(deadline=None, max_examples=60)
def test_with_hierarchies_cells_are_shown_by_value_by_level_or_not_at_all(codes, k):
    frame = as_frame(np.hstack([codes, codes])[:, : max(2, codes.shape[1])])
    if len(frame) < k:
        return
    result = anonymize(frame, quasi(frame), k, hierarchies=LEVELS)
    check_table(frame, result, k)
    assert result.tops[:2] == (3, 2)
    words = as_hierarchies(LEVELS)
    loss = result.stars[:, 2:].sum()
    for i, name in enumerate(["q0", "q1"]):
        distinct = sorted(set(frame[name]))
        levels = [
            dict(zip(distinct, own, strict=True)) for own in words[name].generalise(name, distinct, rows=int)
        ]
        for row, level in enumerate(result.levels[:, i]):
            value = frame[name][row]
            if 0 < level < result.tops[i]:
                word = levels[level - 1][value]
                assert result.frame[name][row] == word
                loss += sum(other == word for other in levels[level - 1].values()) / len(distinct)
            else:
                loss += level == result.tops[i]
    assert result.utility.loss == pytest.approx(loss / result.utility.cells)


def test_generalising_loses_less_than_starring():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"q0": rng.integers(0, 90, 400), "q1": rng.choice(list("ab"), 400), "sensitive": 1})
    ranges = {"hierarchies": 1, "columns": {"q0": {"ranges": [5, 10, 30]}}}
    by_stars, by_ranges = (
        anonymize(frame, ["q0", "q1"], 5),
        anonymize(frame, ["q0", "q1"], 5, hierarchies=ranges),
    )
    assert by_ranges.utility.loss < by_stars.utility.loss / 2
    assert by_ranges.utility.suppressed_cells < by_stars.utility.suppressed_cells


def test_the_loss_is_the_share_of_values_that_look_alike():
    # one row of four values in a range of two values of four: 2/4 for each generalised cell
    frame = pd.DataFrame({"q": [0, 1, 2, 3], "sensitive": 1})
    result = anonymize(frame, ["q"], 2, hierarchies={"hierarchies": 1, "columns": {"q": {"ranges": [2]}}})
    assert result.frame["q"].tolist() == ["[0, 2)", "[0, 2)", "[2, 4)", "[2, 4)"]
    assert result.utility.loss == pytest.approx(0.5)
    assert result.utility.generalised_cells == 4
    assert result.utility.discernibility == 8
    assert result.utility.average_class == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_frame_stays(kind):
    frame = pd.DataFrame(
        {"id": [4, 5, 6, 7], "q1": ["a", "b", "a", "b"], "q2": [1, 2, 1, 3]}, index=[3, 3, 1, 0]
    )
    result = anonymize(KINDS[kind](frame), ["q2", "q1"], 2)
    assert type(result.frame) is type(KINDS[kind](frame))
    shown = result.frame if kind == "pandas" else result.frame.to_pandas()
    assert shown["q2"].tolist() == ["1", STAR, "1", STAR]
    assert shown["q1"].tolist() == ["a", "b", "a", "b"]
    assert shown["id"].tolist() == [4, 5, 6, 7]
    assert result.stars.tolist() == [[False, False], [True, False], [False, False], [True, False]]
    if kind == "pandas":
        assert shown.index.tolist() == [3, 3, 1, 0]


def test_missing_values_are_a_category():
    frame = pd.DataFrame({"q": ["a", None, None, "a", "b", "c"], "sensitive": range(6)})
    result = anonymize(frame, ["q"], 2)
    assert result.frame["q"].fillna("missing").tolist() == ["a", "missing", "missing", "a", STAR, STAR]
    numbers = anonymize(pl.DataFrame({"q": [1.0, float("nan"), None, 1.0]}), ["q"], 2)
    assert numbers.utility.suppressed_cells == 0


def test_columns_of_any_type_are_read():
    days = [datetime.date(1990, 3, 14), datetime.date(1990, 3, 15), datetime.date(1991, 1, 1)] * 2
    frame = pd.DataFrame(
        {
            "q_day": pd.to_datetime(days),
            "q_flag": [True, False, True] * 2,
            "q_kind": pd.Categorical(["x", "y", "x"] * 2),
            "q_mixed": ["1", 1, None] * 2,
            "sensitive": 1,
        }
    )
    result = anonymize(frame, quasi(frame), 4)
    assert result.stars.any()
    years = {"hierarchies": 1, "columns": {"q_day": {"dates": ["month", "year"]}}}
    shown = anonymize(frame, ["q_day"], 3, hierarchies=years).frame["q_day"]
    # two of 1991 are too few, and one of the four of March 1990 has to join them under a star
    assert sorted(shown) == [STAR] * 3 + ["1990-03"] * 3
    shown = anonymize(frame, ["q_day"], 2, hierarchies=years).frame["q_day"]
    assert shown.tolist() == frame["q_day"].tolist()
    one = anonymize(frame.iloc[[0, 1, 3]], ["q_day"], 3, hierarchies=years).frame["q_day"]
    assert one.tolist() == ["1990-03"] * 3


@pytest.mark.parametrize("k", [1, 3])
def test_a_table_without_rows_stays_so(k):
    result = anonymize(pd.DataFrame({"q": [], "s": []}), ["q"], k)
    assert len(result.frame) == 0
    assert result.utility.classes == 0
    assert result.utility.discernibility == 0


def test_all_alike_need_no_star_and_all_different_only_stars():
    alike = anonymize(as_frame(np.zeros((7, 3), dtype=np.int64)), ["q0", "q1", "q2"], 7)
    assert alike.utility.suppressed_cells == 0
    assert alike.frame["q0"].dtype == np.int64
    different = anonymize(as_frame(np.arange(12).reshape(6, 2)), ["q0", "q1"], 2)
    assert different.utility.suppressed_cells == 12
    assert different.utility.classes == 1


def board_of(codes, k, levels=()):
    distinct, _, weights = distinct_rows(codes)
    ladders = tuple(Ladder.build(int(codes.max()) + 1, levels) for _ in codes.T)
    kinds = Kinds(distinct, weights, ladders)
    return kinds, nodes_for(kinds, k), new_board(kinds, nodes_for(kinds, k), k)


@pytest.mark.parametrize("levels", [(), (np.array([0, 0, 1, 1]),)], ids=["stars", "levels"])
def test_a_board_lists_kinds_under_patterns_that_fit_k_rows_and_cost_little_more_than_the_cheapest(levels):
    k = 3
    kinds, nodes, board = board_of(np.random.default_rng().integers(0, 4, (60, 3)), k, levels)
    rows, cost, known = Counter(), {}, []  # a pattern is its node with the values shown
    for node in nodes:
        for kind, values in enumerate(kinds.codes.tolist()):
            levels_of = list(zip(kinds.ladders, node, values, strict=True))
            shown = (node, tuple(int(ladder.codes[level][value]) for ladder, level, value in levels_of))
            rows[shown] += kinds.weights[kind]
            cost[shown] = sum(ladder.loss[level][value] for ladder, level, value in levels_of)
            known.append((kind, shown))
    fits = [(kind, shown) for kind, shown in known if rows[shown] >= k]
    least = {kind: min(cost[shown] for own, shown in fits if own == kind) for kind, _ in fits}
    near = [(kind, shown) for kind, shown in fits if cost[shown] <= least[kind] + 1 or shown[0] == kinds.root]
    rows = Counter()
    for kind, shown in near:
        rows[shown] += kinds.weights[kind]
    entries = sorted((kind, shown) for kind, shown in near if rows[shown] >= k)
    listed = list(zip(board.kind.tolist(), board.pattern.tolist(), strict=True))
    members, expected = {}, {}
    for kind, pattern in listed:
        members.setdefault(pattern, []).append(kind)
    for kind, shown in entries:
        expected.setdefault(shown, []).append(kind)
    told = [(tuple(own), board.waiting[p], round(board.cost[p], 9)) for p, own in members.items()]
    wanted = [(tuple(own), rows[shown], round(cost[shown], 9)) for shown, own in expected.items()]
    assert sorted(told) == sorted(wanted)
    for pattern, its_kinds in members.items():
        own = board.entries[board.start[pattern] : board.start[pattern + 1]]
        assert sorted(board.kind[own]) == its_kinds
        assert (board.pattern[own] == pattern).all()
    assert [kind for kind, _ in listed] == sorted(board.kind.tolist())


def test_a_narrowed_board_shows_the_same_rows_and_nothing_dearer_but_what_is_in_use():
    k = 3
    _, _, board = board_of(np.random.default_rng().integers(0, 4, (200, 3)), k)
    start_greedily(board, k, np.array([1], dtype=np.uint64))
    place_the_rest(board, k)
    close, entries = narrow_board(board, k)
    assert (close.shown == board.shown[entries]).all()
    assert (close.kind == board.kind[entries]).all()
    assert close.shown.sum() == board.shown.sum() == 200
    assert not close.free.any()
    assert not close.waiting.any()
    assert (np.bincount(close.pattern, close.shown, minlength=close.size.size) == close.size).all()
    dearest = np.zeros(board.free.size)
    np.maximum.at(dearest, board.kind, board.cost[board.pattern] * (board.shown > 0))
    dear = close.cost[close.pattern] > dearest[close.kind]
    assert ((close.size > 0)[close.pattern[dear]] | (close.pattern[dear] == close.cost.size - 1)).all()
    again = with_shown(board, entries, close.shown)
    assert (again.size == board.size).all()
    assert (again.shown == board.shown).all()


def test_k_1_changes_nothing():
    frame = as_frame(np.arange(12).reshape(6, 2))
    pd.testing.assert_frame_equal(anonymize(frame, ["q0", "q1"], 1).frame, frame)


def wide_table(rows=600, columns=14):
    """Return few groups of rows that scatter in some columns."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 4, (12, columns))[rng.integers(0, 12, rows)]
    noise = rng.random((rows, columns)) < 0.1
    return np.where(noise, rng.integers(0, 40, (rows, columns)), codes)


def test_wide_tables_learn_their_combinations_from_blocks(monkeypatch):
    frame = as_frame(wide_table())
    monkeypatch.setattr(
        lattice, "MOST_ENTRIES", 100_000
    )  # 2^14 combinations for about 500 kinds are too many
    result = anonymize(frame, quasi(frame), 4)
    check_table(frame, result, 4)
    assert result.utility.suppressed_cells < result.utility.cells / 2


def test_very_many_combinations_of_values_get_exact_keys():
    # 30 columns of 40 values do not fit a 64-bit key
    rng = np.random.default_rng(2)
    codes = np.repeat(rng.integers(0, 40, (30, 30)), 2, axis=0)
    assert anonymize(as_frame(codes), quasi(as_frame(codes)), 2).utility.suppressed_cells == 0


def test_a_star_in_the_data_is_refused():
    with pytest.raises(InputError, match="already has the text"):
        anonymize(pd.DataFrame({"q": ["a", "*"]}), ["q"], 1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((["q"], 0), "at least 1"),
        ((["q"], True), "whole number"),
        (([], 2), "at least one"),
        (("q", 2), "list of columns"),
        ((["p"], 2), "no column 'p'"),
        ((["q", "q"], 2), "listed twice"),
    ],
)
def test_mistakes_are_told(arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        anonymize(pd.DataFrame({"q": [1, 1]}), *arguments)


@pytest.mark.parametrize(
    ("hierarchies", "complaint"),
    [
        (3, "load_hierarchies"),
        ({"hierarchies": 1, "columns": {"r": {"ranges": [2]}}}, "not a quasi-identifier"),
        (
            {"hierarchies": 1, "columns": {"q": {"dates": ["year"]}}},
            r"column 'q', row 1: the value is not a date",
        ),
        (
            {"hierarchies": 1, "columns": {"q": {"tree": {"a": [1]}}}},
            r"column 'q', row 2: the value is not in",
        ),
    ],
)
def test_hierarchies_must_fit_the_table(hierarchies, complaint):
    with pytest.raises((InputError, SchemaError), match=complaint) as raised:
        anonymize(pd.DataFrame({"q": [1, 777], "r": [1, 1]}), ["q"], 2, hierarchies=hierarchies)
    assert "777" not in str(raised.value)


def test_the_search_with_costlier_patterns_gets_shorter_with_the_board():
    sizes = [1000, local_search.FULL_WIDE, 200_000, 300_000, local_search.MOST_WIDE, 5_000_000]
    tries = [local_search.wide_tries(entries) for entries in sizes]
    assert tries[:2] == [local_search.TRIES] * 2
    assert tries[-2:] == [0, 0]
    assert tries == sorted(tries, reverse=True)
    # a try takes longer in proportion to the entries of a kind, so the most work is at the first limit
    work = [entries * done for entries, done in zip(sizes, tries, strict=True)]
    assert max(work) <= 2 * local_search.FULL_WIDE * local_search.TRIES
