"""Tables among some categories: covariance, likelihood, and the source of people who answered."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.answered_tally import AnsweredTally, people_who_answered
from masquerade.core.covariance import IndependentCovariance, ScaledCovariance, SumCovariance
from masquerade.core.errors import InputError
from masquerade.core.evidence import TableReduction
from masquerade.core.reduced_covariance import ReducedCovariance, take_covariance

SAMPLES, SIGMAS = 200, 5.5  # false alarms below 4e-8 a comparison


def _policy(flip: str | None) -> mq.Policy:
    channel = {} if flip is None else {"channel": {"kind": "symmetric", "p": flip}}
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": {"categories": ["x", "y", "z", "not stated"], "missing": "not stated", **channel},
                "b": {"categories": ["yes", "refused", "no"], "missing": "refused", **channel},
                "c": {"categories": ["u", "v"]},
            },
        }
    )


def _people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "a": rng.choice(["x", "y", "z", None], n, p=[0.3, 0.3, 0.2, 0.2]),
            "b": rng.choice(["yes", "no", None], n, p=[0.4, 0.4, 0.2]),
            "c": rng.choice(["u", "v"], n),
        }
    )


def _source(flip: str | None, people: pd.DataFrame) -> mq.Tally:
    policy = _policy(flip)
    return mq.tally(people, schema=policy) if flip is None else mq.tally(mq.disguise(people, policy), policy)


@pytest.mark.parametrize("flip", [None, "0.2"])
def test_restricted_table_has_the_cells_and_the_covariance_of_the_whole(flip: str | None) -> None:
    (table,) = _source(flip, _people(500, np.random.default_rng(1))).answer([mq.Query(by=("a", "b", "c"))])
    kept = table.drop_missing()
    inside = np.ix_([0, 1, 2], [0, 2], [0, 1])
    assert np.array_equal(kept.values, table.values[inside])
    assert [axis.categories for axis in kept.axes] == [("x", "y", "z"), ("yes", "no"), ("u", "v")]
    cells = np.arange(table.values.size).reshape(table.values.shape)[inside].ravel()
    dense = table.covariance.dense()[np.ix_(cells, cells)]
    assert kept.covariance.dense() == pytest.approx(dense, abs=1e-8)
    assert kept.n == table.n
    assert table.drop_missing("c") is table
    # what is computed from it later: slices, sums, and again a part
    assert kept.select({"b": "no"}).values == pytest.approx(table.values[:3, 2])
    summed = kept.marginal("c")
    assert summed.values == pytest.approx(table.values[inside].sum(axis=(0, 1)))
    assert summed.covariance.diagonal() == pytest.approx(
        [dense[np.ix_(own, own)].sum() for own in (np.arange(0, 12, 2), np.arange(1, 12, 2))]
    )
    again = kept.restrict({"a": ["z", "x"]})
    assert again.values == pytest.approx(table.values[np.ix_([2, 0], [0, 2], [0, 1])])
    assert again.fit([["a", "b", "c"]]).expected.shape == (2, 2, 2)


def test_covariances_of_any_kind_are_restricted_alike() -> None:
    (table,) = _source("0.2", _people(300, np.random.default_rng(2))).answer([mq.Query(by=("a", "b"))])
    codes = {0: (2, 0), 1: (0, 2)}
    kinds = [
        table.covariance,
        SumCovariance((table.covariance, table.covariance)),
        ScaledCovariance(table.covariance, 1.5),
        IndependentCovariance(np.arange(1.0, 13.0).reshape(4, 3)),
    ]
    cells = np.arange(12).reshape(4, 3)[np.ix_(*codes.values())].ravel()
    for covariance in kinds:
        dense = covariance.dense()[np.ix_(cells, cells)]
        part = take_covariance(covariance, codes)
        plain = ReducedCovariance(covariance, TableReduction.none(2).take(codes))
        for each in (part, plain):
            assert each.shape == (2, 2)
            assert each.dense() == pytest.approx(dense)
            assert each.diagonal() == pytest.approx(np.diag(dense).reshape(2, 2))
            assert each.reduce([1], {0: 1}).dense() == pytest.approx(dense[2:, 2:])
            assert each.reduce([], {}).dense() == pytest.approx(dense.sum())


def test_clear_restricted_table_equals_records_without_the_missing_ones() -> None:
    people = _people(800, np.random.default_rng(3))
    (kept,) = people_who_answered(_source(None, people)).answer([mq.Query(by=("a", "b", "c"))])
    complete = mq.tally(
        people.dropna(),
        schema=mq.Policy.from_dict(
            {
                "masquerade": 1,
                "variables": {axis.name: {"categories": list(axis.categories)} for axis in kept.axes},
            }
        ),
    )
    (dropped,) = complete.answer([mq.Query(by=("a", "b", "c"))])
    for model in ([["a"], ["b"], ["c"]], [["a", "b"], ["c"]], [["a", "b", "c"]]):
        one, other = kept.fit(model), dropped.fit(model)
        assert one.deviance == pytest.approx(other.deviance, abs=1e-8)
        assert one.expected == pytest.approx(other.expected)
        assert one.df == other.df


def test_deviance_among_those_who_answered_has_its_distribution_when_missing_is_masked() -> None:
    """The mean of 200 deviances with 2 degrees of freedom is within 5.5 of its standard errors (0.14)."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(SAMPLES):
        people = _people(2000, rng)
        people.loc[people["a"].isna().to_numpy() & (rng.random(2000) < 0.7), "b"] = None  # not at random
        (table,) = _source("0.2", people).answer([mq.Query(by=("a", "b"))])
        kept = table.drop_missing()
        fit = kept.fit([["a"], ["b"]])
        assert fit.df == 2
        found.append(fit.deviance - kept.fit([["a", "b"]]).deviance)
    assert abs(np.mean(found) - 2) < SIGMAS * np.sqrt(4 / SAMPLES)


def test_newton_and_em_agree_on_a_restricted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from masquerade.estimate import indirect  # noqa: PLC0415

    (table,) = _source("0.2", _people(3000, np.random.default_rng(5))).answer([mq.Query(by=("a", "b", "c"))])
    kept = table.drop_missing()
    fast = kept.fit([["a", "c"], ["b", "c"]])
    monkeypatch.setattr(indirect, "is_small", lambda *_: False)
    slow = kept.fit([["a", "c"], ["b", "c"]])
    assert fast.deviance == pytest.approx(slow.deviance, abs=1e-4)
    assert fast.expected == pytest.approx(slow.expected, abs=0.5)


class _Counting:
    """A source that notes what it is asked."""

    def __init__(self, source: mq.Tally) -> None:
        self.source, self.asked = source, []
        self.schema, self.guarantee = source.schema, source.guarantee

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        self.asked += queries
        return self.source.answer(queries)


def test_source_of_answers_asks_nothing_more_and_states_the_shares() -> None:
    people = _people(4000, np.random.default_rng(6))
    counting = _Counting(_source(None, people))
    source = people_who_answered(counting)
    assert isinstance(source, AnsweredTally)
    assert [len(variable) for variable in source.schema.variables] == [3, 2, 2]
    queries = [mq.Query(by=("a", "c")), mq.Query(by="b", where={"c": "u"}), mq.Query(by="b")]
    tables = source.answer(queries)
    assert counting.asked == queries
    assert [table.values.shape for table in tables] == [(3, 2), (2,), (2,)]
    missing = source.missing_answers()
    shares = {share.name: share for share in missing.shares}
    for name in ("a", "b"):
        truth = people[name].isna().mean()
        assert shares[name].share == pytest.approx(truth)
        assert shares[name].stderr == pytest.approx(np.sqrt(truth * (1 - truth) / 4000))
    assert "a is missing (not stated) for 2" in missing.text
    assert people_who_answered(mq.tally(people[["c"]])).__class__.__name__ != "AnsweredTally"
    with pytest.raises(InputError, match="'answered' or 'category'"):
        people_who_answered(counting, "at-random")


def test_mean_over_those_who_answered_equals_the_records_without_missing_ones() -> None:
    people = _people(900, np.random.default_rng(7))
    source = people_who_answered(_source(None, people))

    def is_x_and_yes(codes: np.ndarray) -> np.ndarray:
        return (codes[:, 0] == 0) & (codes[:, 1] == 0)

    value, error = source.expect(is_x_and_yes, ("a", "b"))  # type: ignore[attr-defined]
    complete = people.dropna()
    truth = ((complete["a"] == "x") & (complete["b"] == "yes")).mean()
    assert value == pytest.approx(truth)
    assert error == pytest.approx(np.sqrt(truth * (1 - truth) / len(complete)), rel=1e-3)


def test_reductions_follow_each_other() -> None:
    cells = np.arange(24.0).reshape(2, 3, 4)
    first = TableReduction.none(3).take({1: (2, 0), 2: (1, 3)})
    second = TableReduction((1, 0), (), ()).take({})
    steps = [
        (first, first.apply(cells)),
        (first.then((1,), {2: 1}), cells[:, [2, 0]][..., 3].sum(axis=0)),
        (first.then((2, 1), {0: 1}), cells[1][[2, 0]][:, [1, 3]].T),
    ]
    for reduction, expected in steps:
        assert np.array_equal(reduction.apply(cells), expected)
    joined = TableReduction((0, 1, 2)).follow(first)
    assert np.array_equal(joined.apply(cells), first.apply(cells))
    assert second.is_complete(2)
    assert not first.is_complete(3)
    for one, other in pairwise([first, first.take({1: (1,)})]):
        assert len(other.apply(cells)[0]) < len(one.apply(cells)[0])
