"""Missing answers: never a number, left out or assumed to be at random, and always stated."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError
from masquerade.stats.missing_values import standardise

SIGMAS = 5.5  # false alarms below 4e-8 a comparison


def _policy(missing: object, categories: list[object], gamma: int = 9) -> mq.Policy:
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "visits": {
                    "categories": categories,
                    "missing": missing,
                    "channel": {"kind": "for_gamma", "gamma": gamma},
                },
                "age": {"categories": ["young", "old"]},
            },
        }
    )


def _people(n: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    visits = rng.choice([0, 1, 2, 3], n, p=[0.2, 0.3, 0.3, 0.2]).astype(float)
    visits[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"visits": visits, "age": rng.choice(["young", "old"], n)})


@pytest.mark.parametrize("missing", ["not stated", -1])
def test_mean_and_median_are_among_those_who_answered(missing: object) -> None:
    people = _people(20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)
        policy = _policy(missing, [0, 1, 2, 3, missing])
        source = mq.tally(mq.disguise(people, policy), policy)
    estimate = mq.stats.mean(source, "visits")
    assert abs(estimate.values[0] - people["visits"].mean()) < SIGMAS * estimate.stderr[0]
    assert "is missing" in estimate.notes[0]
    assert "Only people who answered are counted." in estimate.notes[0]
    assert mq.stats.quantile(source, "visits").values[0] in {1.0, 2.0}
    # the earlier estimate averaged the number −1 and was far off
    answered = people["visits"].fillna(-1).mean()
    assert abs(answered - people["visits"].mean()) > 10 * estimate.stderr[0]


def test_number_for_missing_values_warns_and_names_the_command_that_converts_it() -> None:
    with pytest.warns(MasqueradeWarning, match=r"the number -1 stands for missing values.*policy convert"):
        _policy(-1, [0, 1, 2, 3, -1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _policy("not stated", [0, 1, 2, 3, "not stated"])


def test_mean_of_bins_leaves_the_missing_class_out() -> None:
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "income": {
                    "bins": [0, 10, 20, 40],
                    "missing": ["not stated", "refused"],
                    "channel": {"kind": "for_gamma", "gamma": 9},
                }
            },
        }
    )
    variable = policy.schema["income"]
    assert variable.missing == ("not stated", "refused")
    assert variable.answered_codes == (0, 1, 2)
    rng = np.random.default_rng(4)
    income = rng.uniform(0, 40, 20_000)
    cell = pd.Series(income).where(rng.random(20_000) > 0.2)
    source = mq.tally(mq.disguise(pd.DataFrame({"income": cell}), policy), policy)
    estimate = mq.stats.mean(source, "income")
    middle = np.select([income < 10, income < 20], [5.0, 15.0], 30.0)[cell.notna().to_numpy()].mean()
    assert abs(estimate.values[0] - middle) < SIGMAS * estimate.stderr[0]
    assert mq.Policy.from_dict(policy.to_dict()).schema["income"].missing == variable.missing


def test_shares_are_over_all_or_among_those_who_answered() -> None:
    people = _people(20_000)
    policy = _policy("not stated", [0, 1, 2, 3, "not stated"])
    source = mq.tally(mq.disguise(people, policy), policy)
    everyone = mq.stats.shares(source, "visits")
    assert len(everyone.values) == 5
    assert "counted as categories" in everyone.notes[0]
    answered = mq.stats.shares(source, "visits", missing="answered")
    assert answered.values.sum() == pytest.approx(1.0)
    truth = people["visits"].value_counts(normalize=True).sort_index().to_numpy()
    assert np.all(np.abs(answered.values - truth) < SIGMAS * answered.stderr)


@pytest.mark.parametrize("flipped", [None, "0.25"])
def test_missing_at_random_is_unbiased_where_complete_cases_are_not(flipped: str | None) -> None:
    """b is missing for 60% or 10%, by a; P(b) = .36. Also where a itself is flipped for 25%."""
    rng = np.random.default_rng(7)
    n = 400_000
    a = rng.random(n) < 0.5
    b = rng.random(n) < np.where(a, 0.60, 0.12)
    lost = rng.random(n) < np.where(a, 0.60, 0.10)
    people = pd.DataFrame(
        {
            "a": np.where(a, "yes", "no"),
            "b": np.where(lost, None, np.where(b, "yes", "no")),
        }
    )
    channel = {} if flipped is None else {"channel": {"kind": "binary", "p": flipped}}
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": {"categories": ["yes", "no"], **channel},
                "b": {
                    "categories": ["yes", "no", "not stated"],
                    "missing": "not stated",
                    "channel": {"kind": "symmetric", "p": "0.15"},
                },
            },
        }
    )
    source = mq.tally(mq.disguise(people, policy), policy)
    at_random = mq.stats.shares(source, "b", missing="at-random", given="a")
    complete = mq.stats.shares(source, "b", missing="answered")
    truth = 0.5 * (0.60 + 0.12)
    assert abs(at_random.values[0] - truth) < SIGMAS * at_random.stderr[0]
    assert abs(complete.values[0] - truth) > 10 * complete.stderr[0]
    assert "at random given a" in at_random.notes[0]
    scored = mq.stats.mean(source, "b", scores={"yes": 1, "no": 0}, missing="at-random", given="a")
    assert scored.values[0] == pytest.approx(at_random.values[0])
    assert scored.stderr[0] == pytest.approx(at_random.stderr[0])


def test_gradient_of_standardised_shares_equals_differences() -> None:
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": {"categories": [1, 2, 3]},
                "b": {"categories": ["yes", "no", "not stated"], "missing": "not stated"},
            },
        }
    )
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "a": rng.integers(1, 4, 500),
            "b": rng.choice(["yes", "no", None], 500, p=[0.3, 0.5, 0.2]),
        }
    )
    (table,) = mq.tally(frame, schema=policy).answer([mq.Query(("a", "b"))])
    found = standardise(table, ())
    for place in np.ndindex(table.values.shape):
        step = np.zeros(table.values.shape)
        step[place] = 1e-4
        ends = [standardise(_moved(table, sign * step), ()).values for sign in (1, -1)]
        assert found.gradients[(slice(None), *place)] == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-7)


def _moved(table: mq.CountTable, step: np.ndarray) -> mq.CountTable:
    from dataclasses import replace  # noqa: PLC0415

    return replace(table, values=table.values + step)


def test_ways_of_missing_that_do_not_fit_are_refused() -> None:
    source = mq.tally(mq.data.students())
    with pytest.raises(InputError, match="'missing' must be"):
        mq.stats.mean(source, "year", missing="drop")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs the variables"):
        mq.stats.mean(source, "year", missing="at-random")
    with pytest.raises(InputError, match="needs the variables"):
        mq.stats.mean(source, "year", given="exams")
    with pytest.raises(SchemaError, match="no category that is an answer"):
        mq.Variable("x", ("a", "b"), missing=("a", "b"))
    with pytest.raises(SchemaError, match="is not a category"):
        mq.Variable("x", ("a", "b"), missing=("c",))


def test_draft_names_missing_values_in_words() -> None:
    import pyarrow as pa  # noqa: PLC0415

    from masquerade.disguising.column_summary import summaries  # noqa: PLC0415
    from masquerade.disguising.policy_draft import draft_variables  # noqa: PLC0415

    batch = pa.record_batch({"visits": pa.array([0, 1, None, 1, 2] * 20)})
    draft = draft_variables(summaries([batch], text=False))
    assert draft.variables()["variables"]["visits"] == {
        "categories": [0, 1, 2, "missing"],
        "missing": "missing",
    }
