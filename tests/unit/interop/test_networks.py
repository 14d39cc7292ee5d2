"""XMLBIF and UAI: round trips, opened by pyAgrum and pgmpy, and what is refused."""

from __future__ import annotations

import warnings
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from pgmpy.readwrite import BIFReader, UAIReader, XMLBIFReader

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.interop import (
    from_uai,
    from_xmlbif,
    read_uai,
    read_xmlbif,
    to_uai,
    to_xmlbif,
    write_uai,
    write_xmlbif,
)
from masquerade.learn.networks.files.xml_text import parse_xml


def pyagrum():
    """Return pyAgrum, whose wrapper warns while it is loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("pyagrum")


def posterior(network):
    """Return P(c | b = z), in the order of the categories of c."""
    return network.query("c", {"b": "z"}).probabilities


def test_round_trips_are_exact(network):
    for back in (from_xmlbif(to_xmlbif(network), network.schema), from_uai(to_uai(network), network.schema)):
        assert back.schema == network.schema
        for own, read in zip(network.tables, back.tables, strict=True):
            assert own.parents == read.parents
            assert np.array_equal(own.probabilities, read.probabilities)


def test_standard_errors_travel_in_xmlbif():
    schema = mq.Schema({"a": ["yes", "no"], "b": ["u", "v"]})
    policy = mq.Policy.build(schema, {"a": mq.channels.binary("1/4")})
    clear = pd.DataFrame({"a": ["yes", "no", "no", "no"] * 500, "b": ["u", "u", "v", "v"] * 500})
    source = mq.tally(mq.simulate(clear, policy, seed=20261117), policy)
    learnt = mq.learn.bayesian_network(source, {"a": (), "b": ("a",)}, nonnegative=True)
    back = from_xmlbif(to_xmlbif(learnt))
    for own, read in zip(learnt.tables, back.tables, strict=True):
        assert np.array_equal(own.stderr, read.stderr)
        assert np.any(own.stderr > 0)


def test_pyagrum_opens_what_we_write_and_we_what_it_writes(network, tmp_path):
    gum = pyagrum()
    write_xmlbif(network, tmp_path / "own.bifxml")
    write_uai(network, tmp_path / "own.uai")
    mq.learn.write_bif(network, tmp_path / "own.bif")
    for name in ("own.bifxml", "own.bif"):
        inference = gum.LazyPropagation(gum.loadBN(str(tmp_path / name)))
        inference.setEvidence({"b": "z"})
        assert inference.posterior("c").tolist() == pytest.approx(posterior(network), abs=1e-6)
    numbered = gum.loadBN(str(tmp_path / "own.uai"))
    assert np.array(numbered.cpt("2").tolist()) == pytest.approx(network["b"].probabilities, abs=1e-6)
    opened = gum.loadBN(str(tmp_path / "own.bifxml"))
    gum.saveBN(opened, str(tmp_path / "their.bifxml"))
    gum.saveBN(opened, str(tmp_path / "their.uai"))
    assert posterior(read_xmlbif(tmp_path / "their.bifxml")) == pytest.approx(posterior(network), abs=1e-5)
    their = read_uai(tmp_path / "their.uai")  # with comments
    [table] = [one for one in their.tables if len(one.child) == 3]
    assert table.probabilities == pytest.approx(network["b"].probabilities, abs=1e-5)


def test_pgmpy_opens_what_we_write(network, tmp_path):
    write_xmlbif(network, tmp_path / "own.xml")
    write_uai(network, tmp_path / "own.uai")
    mq.learn.write_bif(network, tmp_path / "own.bif")
    for model in (
        XMLBIFReader(str(tmp_path / "own.xml")).get_model(),
        BIFReader(str(tmp_path / "own.bif")).get_model(),
    ):
        assert model.get_cpds("b").values == pytest.approx(network["b"].probabilities.T)


# P(x2 | x0, x1) = 0.01·(10·x0 + x1 + 1) for x2 = 0; the format (UAI 2008, "Evaluation file format"): the
# child is the last of its scope, and the last of a scope varies quickest
DEFINED = """BAYES
3
2 3 2
3
1 0
1 1
3 0 1 2

2
0.5 0.5

3
0.2 0.3 0.5

12
0.01 0.99 0.02 0.98 0.03 0.97 0.11 0.89 0.12 0.88 0.13 0.87
"""


def test_uai_is_read_as_it_is_defined_and_tools_differ(tmp_path):
    own = from_uai(DEFINED)["x2"].probabilities
    assert own.shape == (2, 3, 2)
    assert own[..., 0] == pytest.approx(np.array([[0.01, 0.02, 0.03], [0.11, 0.12, 0.13]]))
    assert from_uai(to_uai(from_uai(DEFINED)))["x2"].probabilities == pytest.approx(own)
    path = tmp_path / "defined.uai"
    path.write_text(DEFINED)
    # pyAgrum: the child is the quickest, but the first parent before the last
    network = pyagrum().loadBN(str(path))
    their = network.cpt("2")
    read = np.array([[their[{"0": i, "1": j}][0] for j in range(3)] for i in range(2)])
    assert read == pytest.approx(own[..., 0].reshape(3, 2).T, abs=1e-6)
    assert read != pytest.approx(own[..., 0], abs=1e-3)
    # pgmpy: the child is the slowest, so that what it reads is no conditional distribution
    table = UAIReader(str(path)).get_model().get_cpds("var_2")
    assert table.variables[0] == "var_2"
    assert table.values.ravel() == pytest.approx(own.ravel())
    assert table.values.sum(axis=0) != pytest.approx(np.ones((2, 3)), abs=0.1)


def test_negative_estimates_are_not_written(network):
    table = network["a"]
    wrong = mq.learn.ConditionalTable(table.child, (), np.array([-0.1, 1.1]), table.stderr, table.reliable)
    for write in (to_xmlbif, to_uai):
        with pytest.raises(InputError, match="project"):
            write(mq.learn.BayesianNetwork((wrong,)))


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]><a>&c;</a>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><a>&b;</a>'


@pytest.mark.parametrize("text", [BOMB, OUTSIDE, "<a>" * 30 + "</a>" * 30, "<a>", "", "<a>\ud800</a>", "a"])
def test_hostile_xml_is_refused(text):
    with pytest.raises(InputError):
        parse_xml(text)


def test_declarations_of_elements_are_read_over():
    assert parse_xml("<!DOCTYPE BIF [<!ELEMENT BIF (NETWORK)*>]><BIF/>").tag == "BIF"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("<FOR>a</FOR>", "<FOR>aa</FOR>", "not declared"),
        ("<OUTCOME>no</OUTCOME>", "<OUTCOME>yes</OUTCOME>", "each once"),
        ("<OUTCOME>no</OUTCOME>", "", "1 numbers"),
        ("<GIVEN>a</GIVEN>", "<GIVEN>b</GIVEN>", "twice|circle|cycle"),
        ("<NETWORK>", "<NETWORKS>", "well-formed"),
        ("<TABLE>", "<TABLE>0.5 ", "numbers"),
        ("<TABLE>", "<TABLE><A/>", "numbers"),
    ],
)
def test_what_is_wrong_with_xmlbif_is_said(network, old, new, told):
    with pytest.raises(InputError, match=told):
        from_xmlbif(to_xmlbif(network).replace(old, new))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("MARKOV\n1\n2\n1\n1 0\n2 0.5 0.5", "BAYES"),
        ("BAYES 1 2 1 1 0 2 0.5", "2 numbers"),
        ("BAYES 1 2 1 1 0 2 0.5 0.6", "sum to 1"),
        ("BAYES 1 2 1 1 0 2 0.5 0.5 1", "text after the last table"),
        ("BAYES 1 2 1 1 1 2 0.5 0.5", "at most 0"),
        ("BAYES 1 2 1 2 0 0 2 0.5 0.5", "at most 1"),
        ("BAYES 2 2 2 2 1 0 1 0 2 .5 .5 2 .5 .5", "two tables"),
        ("BAYES 1 2 1 1 0 2 nan nan", "finite"),
        ("BAYES 99999999999 2", "whole number"),
        ("BAYES 0", "there must be variables"),
        ("", "BAYES"),
    ],
)
def test_what_is_wrong_with_uai_is_said(text, told):
    with pytest.raises(InputError, match=told):
        from_uai(text)


def test_a_schema_must_fit(network):
    with pytest.raises(InputError, match="schema"):
        from_uai(to_uai(network), mq.Schema({"a": ["yes", "no"]}))
    with pytest.raises(InputError, match="schema"):
        from_xmlbif(to_xmlbif(network), mq.Schema({"a": ["yes", "nope"]}))
