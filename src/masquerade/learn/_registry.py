"""Kinds of model, and who reads them: ours, and those whose learners other packages register.

A learner of another package is an entry point of the group ``masquerade.learners`` that leads to an entry for
the catalogue. The kind in the files of its models is the entry point's name; its `model` reads them.
Nothing is loaded before a kind is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from masquerade.core.plugins import load_plugin, plugins

# where our own models are read: reading a tree needs no network
OWN: Mapping[str, str] = {
    "association_rules": "masquerade.learn.rules:Rules",
    "bayesian_network": "masquerade.learn.network:BayesianNetwork",
    "decision_tree": "masquerade.learn.tree_model:DecisionTree",
    "frequent_itemsets": "masquerade.learn.itemsets:Itemsets",
    "linear_classifier": "masquerade.learn.linear:LinearClassifier",
    "naive_bayes": "masquerade.learn.bayes:NaiveBayes",
    "structure": "masquerade.learn.structure_search:LearnedStructure",
}


class Model(Protocol):
    """What every model offers."""

    def to_dict(self) -> dict[str, Any]:
        """Return the model as plain JSON values, which begin with `model_file.header` of its kind."""


class Reader(Protocol):
    """What turns plain JSON values back into a model: its class."""

    def from_dict(self, values: Mapping[str, Any]) -> Model:
        """Return the model that plain values describe; what is none is an `InputError`."""


def kinds() -> tuple[str, ...]:
    """Return every kind of model that can be read, ours first; nothing is loaded."""
    return (*OWN, *(name for name in plugins("learners") if name not in OWN))


def reader(kind: str) -> Reader:
    """Return what reads models of a kind: their class."""
    if kind in OWN:
        module, _, name = OWN[kind].partition(":")
        own: Reader = getattr(import_module(module), name)
        return own
    found: Reader = load_plugin("learners", kind, _problem).model()
    return found


def _problem(part: Any) -> str | None:
    """Say why a registered learner cannot read models, or None."""
    model = getattr(part, "model", None)
    reads = callable(model) and callable(getattr(model(), "from_dict", None))
    return None if reads else "its 'model' must return the class of its models, which has 'from_dict'"
