"""Predictions for disguised rows, against Bayes' rule by brute force over every truth."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from tests.conformance.cases import SPECS, case

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError, UnknownValue
from masquerade.evaluate import disguised_view
from masquerade.learn.bayes import naive_bayes


def brute_force(model, policy, row):
    """Return P(class | reported features) from the exact rows of every channel, truth by truth.

    Variables that are neither target nor feature get some distribution, which must not matter.
    """
    names = [feature.name for feature in model.features]
    tables = dict(zip(names, model.probabilities, strict=True))
    stratum = None if policy.stratum_variable is None else row[policy.stratum_variable]
    result = np.zeros(len(model.target))
    for cell in product(*(range(size) for size in policy.schema.shape(policy.schema))):
        truth = dict(zip(policy.schema, cell, strict=True))
        c = truth[model.target.name]
        chance = model.prior[c]
        for name, code in truth.items():
            if name in tables:
                chance *= tables[name][c, code]
            elif name != model.target.name:
                chance *= (code + 1) / sum(range(1, len(policy.schema[name]) + 1))
        for group in policy.groups_of(stratum):
            own = np.ravel_multi_index([truth[name] for name in group.names], group.sizes)
            sums = 0.0
            for report, p in group.channel.row(int(own)).items():
                codes = np.unravel_index(report, group.report_sizes)
                shown = {
                    name: policy.observed[name].categories[code]
                    for name, code in zip(group.names, codes, strict=True)
                }
                if all(shown[name] == row[name] for name in group.names if name in tables):
                    sums += float(p)
            chance *= sums
        result[c] += chance
    return result / result.sum()


CHOICES = [
    ("independent", "A", ["B", "C", "D"]),
    ("independent", "D", ["A", "B"]),
    ("joint", "B", ["D", "A", "C"]),  # features disguised together
    ("joint", "B", ["A", "C"]),  # with an outsider, through the marginal channel
    ("joint", "A", ["D", "B"]),  # the target together with a feature
    ("not lumpable", "C", ["A", "B"]),
    ("not lumpable", "A", ["C", "B"]),  # and no marginal channel: the report depends on the class
    ("not lumpable", "D", ["A", "C", "B"]),
    ("more reports than truths", "B", ["A", "C", "D"]),
    ("strata", "D", ["A", "B", "C"]),
    ("strata", "D", ["B", "A"]),  # the stratum is no feature, but a column
]


@pytest.mark.parametrize(("name", "target", "features"), CHOICES)
def test_predictions_are_bayes_rule_over_all_truths(name, target, features):
    policy = case(name).policy
    model = naive_bayes(mq.tally(case(name).disguised, policy), target, features)
    rows = case(name).disguised.drop_duplicates().head(40).reset_index(drop=True)
    view = disguised_view(model, policy)
    found = view.predict_proba(rows)
    wanted = np.array([brute_force(model, policy, row) for row in rows.to_dict("records")])
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    assert (view.predict(rows) == np.array(model.target.categories)[wanted.argmax(axis=1)]).all()
    np.testing.assert_allclose(np.exp(view.predict_log_proba(rows)).sum(axis=1), 1)
    assert [variable.name for variable in view.features] == features


def test_undisguised_rows_are_predicted_as_by_the_model_itself():
    chosen = case("independent")
    model = naive_bayes(mq.tally(chosen.disguised, chosen.policy), "D")
    view = disguised_view(model, chosen.policy.undisguised())
    np.testing.assert_allclose(view.predict_proba(chosen.clear), model.predict_proba(chosen.clear))


def test_seeing_through_the_disguise_beats_taking_it_at_face_value():
    """Asymmetric reports: "yes" is mostly a lie, and the view knows."""
    policy = mq.Policy.build({"c": ["u", "v"], "x": ["yes", "no"]}, {"x": mq.channels.binary("0.05", "0.6")})
    frame = pd.DataFrame(
        {"c": ["u"] * 60 + ["v"] * 40, "x": ["no"] * 55 + ["yes"] * 5 + ["yes"] * 35 + ["no"] * 5}
    )
    model = naive_bayes(mq.tally(frame, schema=policy), "c")
    assert model.predict({"x": ["yes"]}).tolist() == ["v"]
    # without alpha: P(u)·(5/60·.95 + 55/60·.6) = .3775 > P(v)·(35/40·.95 + 5/40·.6) = .3625
    assert disguised_view(model, policy).predict({"x": ["yes"]}).tolist() == ["u"]


def test_a_stranger_in_the_group_is_refused():
    policy = case("not lumpable").policy
    model = naive_bayes(mq.tally(case("not lumpable").disguised, policy), "B", ["C", "D"])
    with pytest.raises(InputError, match="what is reported of C depends on A"):
        disguised_view(model, policy)


def test_policies_that_do_not_fit_are_refused():
    chosen = case("strata")
    model = naive_bayes(mq.tally(chosen.disguised, chosen.policy), "C", ["A", "B"])
    with pytest.raises(InputError, match="tells the strata by 'C'"):
        disguised_view(model, chosen.policy)
    with pytest.raises(SchemaError, match="no variable 'A'"):
        disguised_view(model, mq.Policy.build({"B": [1, 2, 3], "C": [True, False]}, {}))
    other = mq.Policy.build({"A": ["no", "yes"], "B": [1, 2, 3], "C": [True, False]}, {})
    with pytest.raises(InputError, match="categories of 'A' are not the same"):
        disguised_view(model, other)


def test_rows_have_the_labels_of_reports():
    chosen = case("more reports than truths")
    model = naive_bayes(mq.tally(chosen.disguised, chosen.policy), "B", ["A"])
    view = disguised_view(model, chosen.policy)
    reports = list(chosen.policy.observed["A"].categories)
    assert len(reports) == 4  # 0 to 3 cards
    assert view.predict_proba({"A": reports}).shape == (4, 3)
    with pytest.raises(UnknownValue, match="column 'A', row 1"):
        view.predict({"A": ["yes"]})


def test_every_policy_of_the_conformance_suite_is_covered():
    assert {name for name, _, _ in CHOICES} == set(SPECS)
