"""Decision trees as plain JSON values and back; what is read is checked before it is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.learn import model_file
from masquerade.learn.tree_check import CRITERIA
from masquerade.learn.tree_model import DecisionTree, Node, Split

KIND = "decision_tree"
TESTED = ("statistic", "design_effect", "p_value")


def tree_to_dict(tree: DecisionTree) -> dict[str, Any]:
    """Return the tree as values that any JSON writer takes; nodes in their order, branches by place."""
    return {
        **model_file.header(KIND),
        "target": model_file.variable_values(tree.target),
        "features": [model_file.variable_values(feature) for feature in tree.features],
        "n": tree.n,
        "criterion": tree.criterion,
        "significance": tree.significance,
        "nodes": [node_values(node) for node in tree.nodes],
    }


def node_values(node: Node) -> dict[str, Any]:
    """Return a node as plain values; where it hangs follows from the splits."""
    values: dict[str, Any] = {
        "counts": model_file.number_values(node.counts),
        "records_stderr": node.records_stderr,
        "probabilities": model_file.number_values(node.probabilities),
        "stderr": model_file.number_values(node.stderr),
        "borrowed": node.borrowed,
        "split": None,
    }
    if node.split is not None:
        split = node.split
        values["split"] = {
            "feature": split.feature,
            "branches": list(split.branches),
            "gain": split.gain,
            "ratio": split.ratio,
            **{name: getattr(split, name) for name in TESTED},
        }
    return values


def tree_from_dict(values: Mapping[str, Any]) -> DecisionTree:
    """Return the tree that `tree_to_dict` wrote; anything else is an `InputError` that says what is wrong."""
    model_file.check_header(values, KIND)
    target = model_file.variable_of(model_file.entry(values, "target", dict))
    features = tuple(model_file.variable_of(item) for item in model_file.entry(values, "features", list))
    if len({feature.name for feature in features} | {target.name}) != len(features) + 1:
        raise InputError("a variable of the tree is listed twice.")
    n = model_file.entry(values, "n", int)
    criterion = model_file.entry(values, "criterion", str)
    if n < 0 or criterion not in CRITERIA:
        raise InputError("'n' is negative, or 'criterion' is none.")
    significance = maybe_number(values, "significance")
    nodes = nodes_of(model_file.entry(values, "nodes", list), target, features)
    return DecisionTree(target, features, nodes, n, criterion, significance)


def nodes_of(listed: Sequence[Any], target: Variable, features: Sequence[Variable]) -> tuple[Node, ...]:
    """Return nodes with their places worked out anew: breadth first, every node but the root hung once."""
    sizes = {feature.name: len(feature) for feature in features}
    places: list[tuple[int, int, int]] = [(-1, -1, 0)]
    asked: list[frozenset[str]] = [frozenset()]
    nodes: list[Node] = []
    for place, values in enumerate(listed):
        if place >= len(places):
            raise InputError(f"node {place} hangs nowhere.")
        if not isinstance(values, Mapping):
            raise InputError(f"node {place} must be an object.")
        try:
            split = split_of(model_file.entry(values, "split", dict, type(None)), sizes, len(places))
            nodes.append(node_of(values, len(target), places[place], split))
        except InputError as error:
            raise InputError(f"node {place}: {error}") from None
        if split is not None:
            if split.feature in asked[place]:
                raise InputError(f"node {place} asks about {split.feature!r} a second time.")
            places += [(place, code, nodes[-1].depth + 1) for code in range(len(split.branches))]
            asked += [asked[place] | {split.feature}] * len(split.branches)
    if len(nodes) != len(places):
        raise InputError(f"{len(places)} nodes are named, {len(nodes)} are there.")
    return tuple(nodes)


def node_of(
    values: Mapping[str, Any], classes: int, hangs: tuple[int, int, int], split: Split | None
) -> Node:
    """Return one node."""
    counts, chances, errors = (
        finite(model_file.array_of(model_file.entry(values, name, list), (classes,), name), name)
        for name in ("counts", "probabilities", "stderr")
    )
    spread = number(values, "records_stderr")
    if chances.min() < 0 or abs(chances.sum() - 1) > 1e-6 or errors.min() < 0 or spread < 0:
        raise InputError("probabilities do not add up to 1, or an error is negative.")
    borrowed = model_file.entry(values, "borrowed", bool)
    return Node(*hangs, counts, float(counts.sum()), spread, chances, errors, borrowed, split)


def split_of(values: Mapping[str, Any] | None, sizes: Mapping[str, int], following: int) -> Split | None:
    """Return a split, or None for a leaf; its branches must be the next places in line."""
    if values is None:
        return None
    feature = model_file.entry(values, "feature", str)
    if feature not in sizes:
        raise InputError(f"a split asks about {feature!r}, which is no feature.")
    places = list(range(following, following + sizes[feature]))
    if model_file.entry(values, "branches", list) != places:
        raise InputError(f"a split by {feature!r} must have the branches {places}.")
    tested = [maybe_number(values, name) for name in TESTED]
    return Split(feature, tuple(places), number(values, "gain"), number(values, "ratio"), *tested)


def number(values: Mapping[str, Any], name: str) -> float:
    """Return a finite number."""
    return float(finite(np.array(float(model_file.entry(values, name, int, float))), name))


def maybe_number(values: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number, or None."""
    return None if model_file.entry(values, name, int, float, type(None)) is None else number(values, name)


def finite(array: Floats, name: str) -> Floats:
    """Return numbers, all of them finite."""
    if not np.isfinite(array).all():
        raise InputError(f"{name!r} must hold finite numbers.")
    return array
