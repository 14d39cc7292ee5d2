"""The catalogue of learners: options as people type them, what is asked, what is named."""

import inspect

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, SchemaError
from masquerade.learn import catalogue
from masquerade.sources.records import Records

SCHEMA = mq.Schema({"a": ["x", "y"], "b": [1, 2], "c": [True, False]})
TYPED = {
    "network": {"structure": "b<-a; c<-a,b"},
    "structure": {"max_parents": 1},
    "rules": {"min_support": 0.1, "rhs": ["c=true"]},
    "naive-bayes": {"target": "c"},
    "tree": {"target": "c", "significance": 1},
    "linear": {"target": "c", "loss": "squares"},
    "k-means": {"k": 2, "names": "b,c", "scores": ["c=1,0"]},
    "tables": {"tables": ["a,b", "c"]},
    "survival": {"time": "b", "event": "c", "by": "a", "category": "true"},
    "logistic": {"target": "c", "features": "a,b", "interactions": ["a,b"], "category": "true"},
}


def source(n=400):
    generator = np.random.default_rng(1)
    codes = {name: generator.integers(0, 2, n).astype(np.uint8) for name in SCHEMA}
    return Records(codes, mq.Policy.clear(SCHEMA))


class Asked:
    """A source that keeps the variables of every question."""

    def __init__(self, inner):
        self.inner, self.seen = inner, []
        self.schema, self.guarantee, self.check = inner.schema, inner.guarantee, inner.check

    def answer(self, queries):
        self.seen += [{*query.by, *(name for name, _ in query.where)} for query in queries]
        return self.inner.answer(queries)


def test_every_learner_of_the_package_is_tried_here():
    assert list(TYPED) == list(catalogue.LEARNERS)
    assert catalogue.names()[: len(TYPED)] == tuple(TYPED)


@pytest.mark.parametrize("name", TYPED)
def test_a_learner_learns_from_typed_options_and_asks_what_it_says(name):
    entry = catalogue.learner(name)
    options = entry.read(TYPED[name], SCHEMA)
    asked = Asked(source())
    model = entry.fit(asked, options)
    assert entry.summary(model, options)
    assert isinstance(model.to_dict(), dict)
    if entry.model is not None:
        assert isinstance(model, entry.model())
    assert asked.seen or name == "rules"  # a source of records answers supports without tables
    assert all(entry.asks(options, names) for names in asked.seen)
    assert set(entry.variables(options)) <= set(SCHEMA)


@pytest.mark.parametrize("name", ["structure", "rules", "naive-bayes", "tree", "linear", "k-means"])
def test_defaults_are_those_of_the_functions(name):
    functions = {
        "structure": mq.learn.structure,
        "rules": mq.learn.association_rules,
        "naive-bayes": mq.learn.naive_bayes,
        "tree": mq.learn.decision_tree,
        "linear": mq.learn.linear_classifier,
        "k-means": mq.learn.k_means,
    }
    entry = catalogue.learner(name)
    needed = {key: TYPED[name][key] for needs in entry.needs for key in needs}
    options = entry.read(needed, SCHEMA)
    for key, parameter in inspect.signature(functions[name]).parameters.items():
        in_python_alone = key in ("start", "progress")
        if parameter.default is not parameter.empty and not in_python_alone:
            expected = list(parameter.default) if parameter.default == () else parameter.default
            assert options[key] == expected, key


def test_tables_nobody_said_are_not_asked():
    network = catalogue.learner("network")
    options = network.read({"structure": "b<-a"}, SCHEMA)
    assert network.asks(options, {"a", "b"})
    assert not network.asks(options, {"a", "c"})
    ordered = network.read({"order": "a,b", "max_parents": 1}, SCHEMA)
    assert network.asks(ordered, {"a", "b"})
    assert not network.asks(ordered, {"a", "c"})
    bayes = catalogue.learner("naive-bayes")
    assert not bayes.asks({"target": "c"}, {"a", "b"})
    assert not catalogue.learner("tables").asks({"tables": [("a", "b")]}, {"c"})


def test_a_network_is_found_where_an_order_is_given():
    network = catalogue.learner("network")
    found = network.fit(source(), network.read({"order": "c,a,b"}, SCHEMA))
    assert set(found.structure) == set(SCHEMA)
    assert network.variables(network.read({"order": "c,a"}, SCHEMA)) == ("c", "a")


def test_what_cannot_be_meant_is_refused():
    network = catalogue.learner("network")
    with pytest.raises(InputError, match="structure or order is missing"):
        network.read({}, SCHEMA)
    with pytest.raises(InputError, match="Give only one of --structure or --order"):
        network.read({"structure": "a<-b", "order": "a,b"}, SCHEMA, lambda option: option.flag)
    with pytest.raises(InputError, match=r"has no option 'strukture'. Did you mean 'structure'?"):
        network.read({"strukture": "a<-b"}, SCHEMA)
    with pytest.raises(SchemaError, match="target: the policy has no variable 'd'"):
        catalogue.learner("tree").read({"target": "d"}, SCHEMA)
    with pytest.raises(InputError, match="There is no learner 'forest'"):
        catalogue.learner("forest")


def test_survival_and_regression_say_what_they_cannot_do_between_parties():
    ages = mq.Schema({"age": list(range(101)), "dose": list(range(101)), "sick": ["no", "yes"]})
    regression, curves = catalogue.learner("logistic"), catalogue.learner("survival")
    with pytest.raises(InputError, match=r"Continuous variables are not possible.*Group 'age' into bins"):
        regression.rehearse(ages, regression.read({"target": "sick", "features": "age,dose"}, ages))
    wrong = {"target": "sick", "features": "age", "interactions": ["age,dose"]}
    with pytest.raises(InputError, match="two or more features"):
        regression.rehearse(ages, regression.read(wrong, ages))
    falling = mq.Schema({"week": [3, 2, 1], "sick": ["no", "yes"]})
    with pytest.raises(InputError, match="must rise in the order"):  # before anything is counted
        curves.rehearse(falling, curves.read({"time": "week", "event": "sick"}, falling))
    with pytest.raises(InputError, match="event is missing"):
        curves.read({"time": "week"}, falling)
    [query] = regression.rehearse(ages, regression.read({"target": "sick", "features": "age"}, ages))
    assert set(query.by) == {"age", "sick"}
    assert not regression.asks({"target": "sick", "features": ("age",)}, {"dose"})
