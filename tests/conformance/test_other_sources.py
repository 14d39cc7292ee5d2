"""Sources that hold other records than the cases: baskets, projections, mixed and opened rows; silence."""

import pickle

import numpy as np
import pandas as pd
import pytest
from tests.conformance.cases import QUERIES, case
from tests.conformance.sources import SOURCES, pooled
from tests.unit.protocols.k_anonymity.threshold.world import Insiders, World

import masquerade as mq
from masquerade.protocols.k_anonymity.threshold.class_opening import open_reports
from masquerade.protocols.k_anonymity.threshold.row_schema import Form
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.people.opened import OpenedRows
from masquerade.testing import Oracle, Subject, check_tally, tables_are_values

ITEMS = ("bread", "milk", "beer", "eggs")


def clear_people(n=900):
    return case("independent").clear.iloc[:n].reset_index(drop=True)


def test_baskets(tmp_path):
    generator = np.random.default_rng(2)
    held = generator.random((800, 4)) < [0.6, 0.4, 0.2, 0.5]
    lines = [" ".join(np.array(ITEMS)[row]) for row in held]
    (tmp_path / "baskets.txt").write_text("\n".join(lines) + "\n")
    baskets = mq.read_baskets(tmp_path / "baskets.txt")
    codes = baskets.codes(baskets.schema)
    frame = pd.DataFrame({item: baskets.schema.decode(item, codes[item]) for item in baskets.items})
    check_tally(mq.tally(baskets), frame)


@pytest.mark.parametrize("dimensions", [None, (400, 300)])
def test_projections_are_exact_or_as_near_as_they_say(dimensions):
    clear = clear_people()
    owners = {"u": ["A", "B"], "v": ["C", "D"]}
    source = mq.projection_tally(
        clear, owners, schema=case("independent").policy.schema, dimensions=dimensions
    )
    if dimensions is None:
        check_tally(source, clear)
    else:
        check_tally(source, truth=clear)


def test_opened_rows():
    schema = mq.Schema({"zip": ["1", "2", "3"], "illness": ["polio", "stroke"]})
    form = Form(schema, ("zip",), ("illness",))
    generator = np.random.default_rng(3)
    rows = [
        {"zip": str(z), "illness": schema["illness"].categories[generator.integers(2)]}
        for z in generator.choice([1, 2, 3], 60, p=[0.6, 0.38, 0.02])
    ]
    insiders = Insiders(World(form.terms("spring", 10)).layout)
    reports = b"".join(insiders.report(*form.fill(row)) for row in rows)
    opening = open_reports(insiders.layout, reports, form.readable)
    source = OpenedRows(opening, form, accept_incomplete=True)
    frame = pd.DataFrame(rows)
    sizes = frame["zip"].map(frame["zip"].value_counts())
    check_tally(source, frame[sizes >= 10])


def pooled_and_counted(monkeypatch):
    """Return pooled parties and the messages that they have got."""
    sent = []
    exchange = LocalTransport.exchange

    def counted(self, party, message):
        sent.append(party)
        return exchange(self, party, message)

    monkeypatch.setattr(LocalTransport, "exchange", counted)
    return pooled(case("joint")), sent


def test_a_table_of_pooled_parties_sends_nothing_after_it_was_answered(monkeypatch):
    source, sent = pooled_and_counted(monkeypatch)
    known = case("joint")
    begun = len(sent)
    subject = Subject(source, QUERIES, Oracle([known.disguised], known.policy), messages=lambda: len(sent))
    assert len(sent) > begun  # the counter counts
    assert list(tables_are_values(subject)) == []


@pytest.mark.parametrize("name", ["clear records", "disguised records", "cached", "merged"])
def test_sources_in_memory_and_policies_pickle(name):
    (made,) = [source.make(case("strata")) for source in SOURCES if source.name == name]
    again = pickle.loads(pickle.dumps(made))  # noqa: S301
    for ours, theirs in zip(again.answer(QUERIES), made.answer(QUERIES), strict=True):
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.stderr(), theirs.stderr())
    policy = case("strata").policy
    assert pickle.loads(pickle.dumps(policy)).id == policy.id  # noqa: S301


MODELS = {
    "network": lambda source: mq.learn.bayesian_network(source, {"A": (), "B": ("A",)}),
    "structure": lambda source: mq.learn.structure(source, order=["A", "B", "C", "D"]),
    "naive Bayes": lambda source: mq.learn.naive_bayes(source, "A"),
    "tree": lambda source: mq.learn.decision_tree(source, "A"),
    "rules": lambda source: mq.learn.association_rules(source, 0.1, 0.2),
    "linear": lambda source: mq.learn.linear_classifier(source, "A"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::masquerade.core.errors.MasqueradeWarning")
def test_models_pickle(name):
    model = MODELS[name](mq.tally(case("independent").clear, schema=case("independent").policy))
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert again.to_dict() == model.to_dict()


def test_selected_variables():
    clear = clear_people()
    policy = case("independent").policy
    disguised = mq.simulate(clear, policy, seed=3)
    chosen = mq.tally(disguised, policy).select(["D", "A", "B"])
    check_tally(chosen, disguised[["A", "B", "D"]], policy.select(["A", "B", "D"]))


@pytest.mark.parametrize("design", [{}, {"strata": "h"}, {"strata": "h", "clusters": "unit"}], ids=str)
def test_records_of_a_survey(design):
    """Errors are the design's and have tests of their own; all else is as everywhere."""
    clear = clear_people(3000)
    policy = case("independent").policy
    places = np.arange(len(clear))
    disguised = mq.simulate(clear, policy, seed=4).assign(h=places // 1000, unit=places // 5)
    check_tally(mq.SurveyRecords(disguised, policy, **design), truth=clear)
