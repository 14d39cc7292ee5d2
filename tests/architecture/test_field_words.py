"""A stranger finds a protocol by the field's word for it."""

import ast

import pytest
from tests.architecture.modules import ROOT

WHERE = {
    "mixnet": "protocols/mixnet",
    "private set intersection": "protocols/linkage",
    "secure aggregation": "protocols/secure_aggregation",
    "MPC": "protocols/mpc",
    "distributed point function": "crypto",
    "oblivious PRF": "crypto",
    "threshold reporting": "protocols/k_anonymity",
    "k-anonymity": "protocols/k_anonymity",
    "randomized response": "channels",
    "PRAM": "channels",
}


READMES = {
    "mixnet": "protocols/mixnet",
    "private set intersection": "protocols/linkage",
    "secure aggregation": "protocols/secure_aggregation",
    "MPC": "protocols/mpc",
    "distributed point function": "protocols/mpc",
    "oblivious PRF": "protocols/k_anonymity/threshold",
    "threshold reporting": "protocols/k_anonymity/threshold",
    "k-anonymity": "protocols/k_anonymity/suppression",
    "randomized response": "survey/collector",
}


def first_paragraphs(package):
    """Return the name of a package in words, and the first two paragraphs of its docstring."""
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    name = package.rpartition("/")[2].replace("_", " ")
    return " ".join([name, *text.split("\n\n")[:2]]).replace("\n", " ")


def title_and_first_paragraph(package):
    """Return the title and the first paragraph of a package's README."""
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    return " ".join(text.split("\n\n")[:2]).replace("\n", " ")


@pytest.mark.parametrize("word", sorted(WHERE))
def test_field_word_names_its_package(word):
    assert word.lower() in first_paragraphs(WHERE[word]).lower()


@pytest.mark.parametrize("word", sorted(READMES))
def test_field_word_begins_the_readme(word):
    assert word.lower() in title_and_first_paragraph(READMES[word]).lower()
