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


def first_paragraphs(package):
    """Return the name of a package in words, and the first two paragraphs of its docstring."""
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    name = package.rpartition("/")[2].replace("_", " ")
    return " ".join([name, *text.split("\n\n")[:2]]).replace("\n", " ")


@pytest.mark.parametrize("word", sorted(WHERE))
def test_field_word_names_its_package(word):
    assert word.lower() in first_paragraphs(WHERE[word]).lower()
