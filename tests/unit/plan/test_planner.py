"""Plans: two inputs give the third, the policy is what was planned, bad input is told what is possible."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.plan.candidates import Task, candidates, format_rounded_down
from masquerade.plan.expected_errors import expected_errors
from masquerade.plan.questions import tables_of

SURVEY = {"smoker": ["yes", "no"], "region": ["north", "south", "west"], "age": list(range(6))}
SCHEMA = mq.Schema(SURVEY)


def task(queries="pairs", per="record", schema=SCHEMA, prior=None):
    shares = {name: np.full(len(schema[name]), 1 / len(schema[name])) for name in schema}
    shares.update({name: np.asarray(values) for name, values in (prior or {}).items()})
    return Task(schema, tables_of(queries, schema), shares, per, frozenset(prior or ()))


def test_two_inputs_give_the_third_both_ways():
    first = mq.plan(SURVEY, privacy=3, n=20_000, queries="smoker×region, age")
    people = mq.plan(SURVEY, privacy=3, error=first.error, queries="smoker×region, age")
    assert people.n == pytest.approx(20_000, rel=0.01)
    assert people.design == first.design
    privacy = mq.plan(SURVEY, n=20_000, error=first.error * 1.0001, queries="smoker×region, age")
    assert privacy.epsilon == pytest.approx(3, rel=0.01)
    found = mq.plan(SURVEY, privacy=3, detect=0.1)
    assert mq.plan(SURVEY, n=found.n, detect=0.1).epsilon == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("per", ["record", "variable"])
def test_the_policy_has_the_errors_that_were_planned(per):
    """The closed forms of every design against the exact channels of the policy it writes."""
    for prior in (None, {"smoker": [0.2, 0.8], "age": [0.3, 0.25, 0.2, 0.1, 0.1, 0.05]}):
        given = task("smoker×region, age, smoker×region×age", per, prior=prior)
        for way in candidates(given):
            made = mq.plan(
                SURVEY,
                privacy=2,
                n=1000,
                queries="smoker×region, age, smoker×region×age",
                per=per,
                prior=prior,
            )
            chosen = type(made)(given, way, 2.0, made.goal, (way,), made.schema)
            errors = expected_errors(chosen.policy, given.tables, given.shares)
            closed = way.variances(2.0)
            for item, value in zip(errors, closed, strict=True):
                # budgets are rounded down to six digits; an optimum for the prior may be a little better
                assert item.variance == pytest.approx(value, rel=0.02 if prior else 1e-4)
                assert item.variance <= value * (1 + 1e-4)


@pytest.mark.parametrize("privacy", [1.5, {"gamma": 4}, {"breach": (0.05, 0.5)}, {"epsilon": "0.7"}])
@pytest.mark.parametrize("per", ["record", "variable"])
def test_the_guarantee_is_never_above_what_was_asked(privacy, per):
    made = mq.plan(SURVEY, privacy=privacy, n=5000, per=per)
    figures = mq.privacy(made.policy)
    bound = made.epsilon + 1e-12
    if per == "record":
        assert math.log(figures.record_gamma) <= bound
    else:
        assert all(item.epsilon <= bound for item in figures.variables)


def test_no_design_is_below_the_floor():
    for per in ("record", "variable"):
        for epsilon in (0.3, 1.0, 3.0, 6.0):
            given = task("singles", per)
            for way in candidates(given):
                assert np.all(way.variances(epsilon) >= given.floor(epsilon) * (1 - 1e-9))


def test_the_best_channels_beat_symmetric_ones_where_there_are_many_categories():
    schema = mq.Schema({"town": list(range(40))})
    made = mq.plan(schema, privacy=1, n=10_000, queries="singles")
    frame = made.alternatives
    assert made.design == "best channels"
    assert frame["gap"].iloc[0] < 0.1 < 1 < frame["gap"].iloc[1]


def test_frames_words_and_values(tmp_path):
    made = mq.plan(SURVEY, privacy=2, n=10_000, error=0.3)
    frame = made.alternatives
    assert {
        "design",
        "reports",
        "bytes",
        "epsilon_variable",
        "epsilon_record",
        "epsilon_central",
        "stderr",
    } <= set(frame)
    assert frame["chosen"].sum() == 1
    assert (frame["epsilon_central"] <= frame["epsilon_record"] + 1e-12).all()
    assert list(made.queries["query"]) == ["smoker×region", "smoker×age", "region×age"]
    assert made.queries["margin"].max() == pytest.approx(made.error)
    assert "thought it 5% likely can think it at most 28% likely" in made.sentence()
    assert made.explain().startswith(made.sentence())
    assert "equally common" in made.explain()
    assert json.loads(json.dumps(made.to_dict()))["n"] == 10_000
    made.save(tmp_path / "policy.yaml")
    assert mq.Policy.load(tmp_path / "policy.yaml").id == made.policy.id


def test_a_plan_keeps_how_columns_are_read():
    values = {
        "masquerade": 1,
        "variables": {
            "age": {"bins": [0, 18, 65, 120], "missing": "none"},
            "sex": {"categories": ["m", "f"]},
        },
    }
    made = mq.plan(mq.Policy.from_dict(values), privacy=1, n=100)
    assert made.policy.fields[0].edges == (0, 18, 65, 120)
    assert made.policy.fields[0].missing == "none"


def test_variables_that_nobody_asks_for_are_left_out_and_clear_ones_stay():
    made = mq.plan(SURVEY, privacy=1, n=100, queries="smoker", clear=["region"])
    assert list(made.policy.schema) == ["smoker", "region"]
    assert made.policy.disguised == ("smoker",)
    assert "age" in made.cannot[0]


def test_learners_name_their_tables():
    schema = mq.Schema({name: [0, 1] for name in "abcd"})
    assert len(tables_of("pairs", schema)) == 6
    assert len(tables_of("structure(max_parents=2)", schema)) == 4 + 6 + 4
    assert tables_of("learner:naive_bayes(target=d)", schema) == (("a", "d"), ("b", "d"), ("c", "d"))
    assert len(tables_of("rules(size=3)", schema)) == 14
    assert len(tables_of("tree(d, depth=2)", schema)) == 6
    assert tables_of([mq.Query(by="b", where={"a": 1}), "c*d", ("a",)], schema) == (
        ("a", "b"),
        ("c", "d"),
        ("a",),
    )


def test_a_pilot_is_asked_as_a_release():
    policy = mq.Policy.build(SURVEY, {"smoker": mq.channels.binary("0.1")})
    people = pd.DataFrame({"smoker": ["yes"] * 200 + ["no"] * 800, "region": "west", "age": 3})
    pilot = mq.tally(mq.simulate(people, policy, seed=1), policy)
    made = mq.plan(SURVEY, privacy=2, n=1000, queries="smoker", prior=pilot)
    assert made.task.shares["smoker"][0] == pytest.approx(0.2, abs=0.06)
    assert "the shares given for" in made.explain()


def test_a_prior_from_a_file(tmp_path):
    file = tmp_path / "shares.yaml"
    file.write_text("smoker: {yes: 0.2, no: 0.8}\n", encoding="utf-8")
    made = mq.plan(SURVEY, privacy=2, n=1000, queries="smoker", prior=file)
    assert made.task.shares["smoker"] == pytest.approx([0.2, 0.8])
    assert math.isnan(made.alternatives["gap"].iloc[0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"privacy": 1}, "Got 'privacy'"),
        ({}, "Give 'n', the number of people"),
        ({"n": 100, "per": "variable"}, "'privacy' of each variable"),
        ({"n": 0, "error": 0.1}, "at least 1"),
        ({"privacy": 1, "n": 2.5}, "a number of people"),
        ({"privacy": 0, "n": 10}, "'epsilon' must be above 0"),
        ({"privacy": {"delta": 1}, "n": 10}, "one of 'epsilon', 'gamma' and 'breach'"),
        ({"privacy": 1, "error": 3}, "0.03 for ±3 points"),
        ({"privacy": 1, "error": 0.1, "detect": 0.1}, "one goal at a time"),
        ({"privacy": 1, "detect": 2}, "between 0 and 1"),
        ({"privacy": 1, "detect": 0.1, "queries": "singles"}, "between two variables"),
        ({"privacy": 1, "n": 10, "queries": "smokr"}, "Did you mean 'smoker'"),
        ({"privacy": 1, "n": 10, "queries": "structur(max_parents=2)"}, "Did you mean 'structure'"),
        ({"privacy": 1, "n": 10, "queries": "naive_bayes(tall)"}, "names one variable"),
        ({"privacy": 1, "n": 10, "queries": ""}, "no table is named"),
        ({"privacy": 1, "n": 10, "per": "person"}, "'record' or 'variable'"),
        ({"privacy": 1, "n": 10, "prior": {"smoker": [0.5, 0.6]}}, "2 shares that sum to 1"),
        ({"privacy": 1, "n": 10, "prior": {"smoke": [0.5, 0.5]}}, "Did you mean 'smoker'"),
        ({"privacy": 1, "n": 10, "prior": pd.DataFrame({"smoker": ["yes"]})}, "Clear data are not accepted"),
        ({"privacy": 1, "n": 10, "clear": list(SURVEY)}, "nothing to plan"),
        ({"n": 50, "error": 0.01}, "even clear data need"),
    ],
)
def test_bad_input_is_told_what_would_be_right(arguments, said):
    with pytest.raises(MasqueradeError, match=said):
        mq.plan(SURVEY, **arguments)


def test_an_impossible_target_says_what_would_be_possible():
    with pytest.raises(
        InputError, match=r"Possible: [\d,]+ people; ε = [\d.]+ with 3,000; ±[\d.]+ points"
    ) as caught:
        mq.plan(SURVEY, privacy=1.5, n=3000, error=0.04)
    said = str(caught.value)
    people = int(said.split("Possible: ")[1].split(" people", maxsplit=1)[0].replace(",", ""))
    assert mq.plan(SURVEY, privacy=1.5, n=people, error=0.04).n == people
    epsilon = float(said.split("ε = ")[2].split(" with", maxsplit=1)[0])
    assert mq.plan(SURVEY, privacy=epsilon * 1.005, n=3000, error=0.04)


def test_data_are_refused_as_a_schema():
    with pytest.raises(InputError, match="would publish them"):
        mq.plan(pd.DataFrame({"a": [1]}), privacy=1, n=10)


def test_the_package_can_be_called_whatever_was_loaded_first():
    import masquerade.plan as package  # noqa: PLC0415

    assert package(SURVEY, privacy=1, n=10).n == 10
    assert mq.plan(SURVEY, privacy=1, n=10).n == 10


@pytest.mark.parametrize("picture", ["error", "needed", "queries", "detectable"])
def test_pictures_are_drawn_on_axes_of_their_own_or_given(picture):
    made = mq.plan(SURVEY, privacy=3, error=0.1)
    axes = getattr(made, f"plot_{picture}")()
    assert axes.figure is not None
    assert getattr(made, f"plot_{picture}")(ax=axes) is axes


def test_budgets_are_rounded_down():
    assert format_rounded_down(1.5) == "1.5"
    assert float(format_rounded_down(2 / 3)) <= 2 / 3
