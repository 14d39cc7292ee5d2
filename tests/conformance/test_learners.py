"""Every learner gives the same model wherever the same disguised records lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import isclose
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.conformance.cases import Case
from tests.conformance.sources import PEOPLE, SERVED, SOURCES, Source, in_spark, summed_up

import masquerade as mq

RECORDS = 4000
POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "sex": {"categories": ["f", "m"]},
            "age": {"categories": [20, 40, 60], "channel": {"kind": "symmetric", "p": 0.2}},
            "smoker": {"categories": ["yes", "no"]},
            "drinks": {"categories": ["never", "seldom", "often"]},
            "insured": {"categories": [True, False]},
            "ill": {"categories": ["it's so", "no"], "channel": {"kind": "binary", "p1": 0.1, "p2": 0.15}},
        },
        "joint": [{"variables": ["smoker", "drinks"], "channel": {"kind": "symmetric", "p": 0.3}}],
    }
)
STRUCTURE = {
    "age": (),
    "sex": (),
    "smoker": ("sex", "age"),
    "drinks": ("smoker",),
    "insured": ("age",),
    "ill": ("smoker", "age"),
}
ORDER = ["sex", "age", "smoker", "drinks", "insured", "ill"]
LEARNERS = {
    "naive Bayes": lambda source: mq.learn.naive_bayes(source, target="ill"),
    "tree": lambda source: mq.learn.decision_tree(source, target="ill", max_depth=3, significance=None),
    "itemsets and rules": lambda source: mq.learn.association_rules(source, 0.15, 0.5),
    "K2": lambda source: mq.learn.structure(source, order=ORDER, max_parents=2),
    "parameters": lambda source: mq.learn.bayesian_network(source, STRUCTURE),
    "least squares": lambda source: mq.learn.linear_classifier(source, target="ill", loss="squares"),
    "logistic": lambda source: mq.learn.linear_classifier(source, target="ill", loss="logistic"),
    "pocket": lambda source: mq.learn.linear_classifier(source, target="ill", steps=500),
}
# of a handful of people, nearly everything has a support of 15%
FOR_PEOPLE = {
    **LEARNERS,
    "itemsets and rules": lambda source: mq.learn.association_rules(source, 0.6, 0.5, max_len=2),
}
ROOT = 1e-7  # a standard error of zero is the root of a rounding error, some 1e-16
# a query costs a tenth of a second there
QUICK = ("naive Bayes", "tree")
SPARK_SUMS = Source("Spark, summed up by the engine", lambda case: summed_up(in_spark(case)), needs="session")
MULTIPLIED = next(source for source in SOURCES if source.name == "scalar products of vertical parties")
LEFT_OUT = {"disguised records", "cached", "DuckDB over CSV, summed up by the engine"}
COMPARED = [
    source
    for source in (*SOURCES, *SERVED)
    if source.samples == 1 and not source.clear and source.name not in LEFT_OUT
]


@cache
def people() -> Case:
    """Return records with dependencies that learners can find."""
    generator = np.random.default_rng(41)

    def draw(chance):
        return generator.random(RECORDS) < chance

    male, age = draw(0.5), generator.choice(3, RECORDS, p=[0.4, 0.35, 0.25])
    smokes = draw(0.15 + 0.3 * male + 0.1 * (age == 1))
    drinks = np.where(draw(0.2 + 0.5 * smokes), 2, np.where(draw(0.5), 1, 0))
    clear = pd.DataFrame(
        {
            "sex": np.where(male, "m", "f"),
            "age": np.array([20, 40, 60])[age],
            "smoker": np.where(smokes, "yes", "no"),
            "drinks": np.array(["never", "seldom", "often"])[drinks],
            "insured": draw(0.3 + 0.25 * age),
            "ill": np.where(draw(0.1 + 0.35 * smokes + 0.2 * age), "it's so", "no"),
        }
    )
    return Case("people", POLICY, clear, mq.simulate(clear, POLICY, seed=5))


@cache
def in_memory(learner: str) -> Any:
    return LEARNERS[learner](mq.tally(people().disguised, POLICY)).to_dict()


@cache
def made(source: Source) -> mq.Tally:
    return source.make(people())


def difference(one: Any, other: Any, where: str = "", *, nothing: float = 1e-9) -> str | None:
    """Return where two models differ: numbers by more than 1e-9 of the larger, all else at all."""
    if isinstance(one, float) and isinstance(other, float):
        same = isclose(one, other, rel_tol=1e-9, abs_tol=nothing)
        return None if same else f"{where}: {one!r} and {other!r}"
    if type(one) is not type(other):
        return f"{where}: {type(one)} and {type(other)}"
    if isinstance(one, Mapping):
        if list(one) != list(other):
            return f"{where}: {list(one)} and {list(other)}"
        pairs = [(one[key], other[key], f"{where}.{key}") for key in one]
    elif isinstance(one, Sequence) and not isinstance(one, str):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)} entries"
        pairs = [(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else f"{where}: {one!r} and {other!r}"
    return next((found for pair in pairs if (found := difference(*pair, nothing=nothing))), None)


@pytest.fixture(params=COMPARED, ids=lambda source: source.name)
def source(request) -> mq.Tally:
    if request.param.needs:
        request.getfixturevalue(request.param.needs)
    return made(request.param)


@pytest.mark.filterwarnings("ignore::masquerade.core.errors.MasqueradeWarning")
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_model_does_not_depend_on_where_the_records_lie(source, learner):
    assert difference(in_memory(learner), LEARNERS[learner](source).to_dict()) is None


@pytest.mark.filterwarnings("ignore::masquerade.core.errors.MasqueradeWarning")
@pytest.mark.parametrize("learner", LEARNERS)
def test_scalar_products_teach_what_the_joined_clear_records_do(learner):
    clear = LEARNERS[learner](mq.tally(people().clear, schema=POLICY)).to_dict()
    assert difference(clear, LEARNERS[learner](made(MULTIPLIED)).to_dict()) is None


@cache
def in_memory_of(learner: str, records: int) -> Any:
    """Return the model of the first records, or how the learner declines so few."""
    return taught(learner, mq.tally(people().disguised.iloc[:records], POLICY))


def taught(learner: str, source: mq.Tally) -> Any:
    try:
        return FOR_PEOPLE[learner](source).to_dict()
    except mq.MasqueradeError as error:
        return {"declined": f"{type(error).__name__}: {error}"}


@pytest.mark.filterwarnings("ignore::masquerade.core.errors.MasqueradeWarning")
@pytest.mark.parametrize("source", PEOPLE, ids=lambda source: source.name)
@pytest.mark.parametrize("learner", LEARNERS)
def test_people_teach_what_their_records_in_one_place_do(source, learner):
    beside = in_memory_of(learner, source.records)
    assert difference(beside, taught(learner, made(source)), nothing=ROOT) is None


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("learner", QUICK)
def test_spark_sums_up_what_learners_need(learner):
    assert difference(in_memory(learner), LEARNERS[learner](made(SPARK_SUMS)).to_dict()) is None


def test_the_models_have_something_to_get_wrong():
    """Links, splits, rules and coefficients are there; else equality would mean nothing."""
    assert len(in_memory("K2")["parents"]) == 6
    assert sum(map(len, in_memory("K2")["parents"].values())) > 3
    assert len(in_memory("tree")["nodes"]) > 5
    assert len(in_memory("itemsets and rules")["support"]) > 10


@pytest.mark.parametrize("kind", ["another number", "another label", "one less"])
def test_a_difference_is_found(kind):
    model = {"a": [1.0, 2.0], "b": {"c": "x"}}
    other = {
        "another number": {"a": [1.0, 2.0 + 1e-8], "b": {"c": "x"}},
        "another label": {"a": [1.0, 2.0], "b": {"c": "y"}},
        "one less": {"a": [1.0], "b": {"c": "x"}},
    }[kind]
    assert difference(model, other) is not None
    assert difference(model, {"a": [1.0, 2.0 + 1e-12], "b": {"c": "x"}}) is None
