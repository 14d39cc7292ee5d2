"""From a source of counts to what a session is to learn."""

from __future__ import annotations

import warnings
from typing import Any

from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.learn.bayes import naive_bayes
from masquerade.learn.network import bayesian_network
from masquerade.learn.rules import association_rules
from masquerade.learn.structure_search import structure
from masquerade.learn.tree import decision_tree
from masquerade.services.parties.session import Goal


def learnt(source: Tally, goal: Goal) -> dict[str, Any]:
    """Return a model as plain values; tables are listed with their standard errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a service has nobody to warn; flags are in the model itself
        return LEARNERS[goal.model](source, goal)


def _network(source: Tally, goal: Goal) -> dict[str, Any]:
    found: Any = goal.structure
    if found is None:
        found = structure(source, order=goal.order, max_parents=goal.max_parents).structure
    return bayesian_network(source, found).to_dict()


def _bayes(source: Tally, goal: Goal) -> dict[str, Any]:
    return naive_bayes(source, target=str(goal.target)).to_dict()


def _tree(source: Tally, goal: Goal) -> dict[str, Any]:
    return decision_tree(source, target=str(goal.target)).to_dict()


def _rules(source: Tally, goal: Goal) -> dict[str, Any]:
    found = association_rules(source, min_support=goal.min_support, min_confidence=goal.min_confidence)
    return found.to_dict()


def _tables(source: Tally, goal: Goal) -> dict[str, Any]:
    answers = source.answer([Query(by=by) for by in goal.tables])
    listed = [
        {
            "by": list(by),
            "categories": [list(axis.categories) for axis in table.axes],
            "n": table.n,
            "values": table.values.tolist(),
            "stderr": table.stderr().tolist(),
        }
        for by, table in zip(goal.tables, answers, strict=True)
    ]
    return {"masquerade": 1, "tables": listed}


LEARNERS = {
    "network": _network,
    "naive-bayes": _bayes,
    "tree": _tree,
    "rules": _rules,
    "tables": _tables,
}
