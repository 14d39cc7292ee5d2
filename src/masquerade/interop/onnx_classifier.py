"""Classifiers as ONNX: naive Bayes and decision trees for any ONNX runtime, without masquerade.

Every feature is a separate input, a column of labels (text, whole numbers or booleans). The outputs are
``label`` and ``probabilities``, with classes in the order of the target. The operators of ONNX compute in
double precision, in the same way as the model. An unknown label causes an error in the runtime, since ONNX
forbids an index out of bounds. Numbers that fall into bins must be given as the labels of the bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from masquerade import __version__
from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.core.util.atomic import write_whole
from masquerade.learn.classifiers.bayes import NaiveBayes
from masquerade.learn.classifiers.prediction_rows import TIE
from masquerade.learn.classifiers.tree_model import DecisionTree

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # old enough for runtimes since 2022
MOST_NODES: Final = 1 << 20
OWN: Final = "masquerade:"  # prefix of tensors that are neither inputs nor outputs
OUTPUTS: Final = ("label", "probabilities")


def to_onnx(model: NaiveBayes | DecisionTree) -> bytes:
    """Return a classifier as an ONNX model.

    Parameters
    ----------
    model : NaiveBayes or DecisionTree
        The classifier.

    Returns
    -------
    bytes
        The ONNX model.

    Raises
    ------
    InputError
        If the model is of a different type, labels have mixed types, or the package onnx is missing.

    Examples
    --------
    >>> tree = mq.learn.decision_tree(mq.tally(mq.data.students()), "sleep")
    >>> type(mq.interop.to_onnx(tree)).__name__
    'bytes'
    """
    if not isinstance(model, (NaiveBayes, DecisionTree)):
        raise InputError(f"ONNX is for naive Bayes and decision trees. Got a {type(model).__name__} instead.")
    graph = _Graph()
    if isinstance(model, NaiveBayes):
        probabilities, best = _naive_bayes(graph, model)
        asked = model.features
    else:
        probabilities, best = _tree(graph, model)
        asked = tuple(one for one in model.features if one.name in model.used_features)
    return graph.model(asked, model.target, probabilities, best)


def write_onnx(model: NaiveBayes | DecisionTree, path: str | Path) -> None:
    """Write a classifier to an ONNX file, atomically.

    Parameters
    ----------
    model : NaiveBayes or DecisionTree
        The classifier.
    path : str or Path
        File to write.

    Returns
    -------
    None
        The file is complete, or unchanged if writing failed.

    Raises
    ------
    InputError
        If the model cannot be written as ONNX.

    Examples
    --------
    >>> import pathlib
    >>> tree = mq.learn.decision_tree(mq.tally(mq.data.students()), "sleep")
    >>> mq.interop.write_onnx(tree, "tree.onnx")
    >>> pathlib.Path("tree.onnx").exists()
    True
    """
    write_whole(Path(path), to_onnx(model))


def _naive_bayes(graph: _Graph, model: NaiveBayes) -> tuple[str, str]:
    """Sum logarithms, ln P(c) + Σ ln P(x | c); rows impossible in every class get the class probabilities."""
    with np.errstate(divide="ignore"):
        prior = graph.constant(np.log(model.prior)[None, :])
        total = prior
        for feature, table in zip(model.features, model.probabilities, strict=True):
            logs = graph.constant(np.ascontiguousarray(np.log(table).T))
            own = graph.add("Gather", [logs, graph.codes(feature)], axis=0)
            total = graph.add("Add", [total, own])
    highest = graph.add("ReduceMax", [total], axes=[1], keepdims=1)
    impossible = graph.add("Equal", [highest, graph.constant(np.array(-np.inf))])
    scores = graph.add("Where", [impossible, prior, total])
    highest = graph.add("ReduceMax", [scores], axes=[1], keepdims=1)
    shifted = graph.add("Sub", [scores, highest])
    near = graph.add("GreaterOrEqual", [shifted, graph.constant(np.array(-TIE))])
    best = graph.add("ArgMax", [graph.add("Cast", [near], to=graph.kind.INT64)], axis=1, keepdims=0)
    return graph.add("Softmax", [shifted], axis=1), best


def _tree(graph: _Graph, model: DecisionTree) -> tuple[str, str]:
    """Descend level by level, for all rows together, as `DecisionTree.apply` does."""
    used = model.used_features
    if not used:
        raise InputError("A tree without splits cannot be written as ONNX: it is one row of probabilities.")
    if len(model.nodes) > MOST_NODES:
        raise InputError(f"A tree of more than {MOST_NODES:,} nodes cannot be written as ONNX.")
    asks = np.zeros(len(model.nodes), dtype=np.int64)
    first = np.full(len(model.nodes), -1, dtype=np.int64)
    for place, node in enumerate(model.nodes):
        if node.split is not None:
            asks[place], first[place] = used.index(node.split.feature), node.split.branches[0]
    columns = [
        graph.add("Unsqueeze", [graph.codes(model.variable(name)), graph.constant(np.array([1]))])
        for name in used
    ]
    codes = graph.add("Concat", columns, axis=1)
    start = graph.add("Mul", [graph.codes(model.variable(used[0])), graph.constant(np.array(0))])
    at, below_of, asked_by = start, graph.constant(first), graph.constant(asks)
    for _ in range(model.depth):
        below = graph.add("Gather", [below_of, at], axis=0)
        column = graph.add(
            "Unsqueeze", [graph.add("Gather", [asked_by, at], axis=0), graph.constant(np.array([1]))]
        )
        taken = graph.add("GatherElements", [codes, column], axis=1)
        step = graph.add("Squeeze", [taken, graph.constant(np.array([1]))])
        inner = graph.add("GreaterOrEqual", [below, graph.constant(np.array(0))])
        at = graph.add("Where", [inner, graph.add("Add", [below, step]), at])
    shares = graph.constant(np.stack([node.probabilities for node in model.nodes]))
    best = graph.constant(np.array([node.best for node in model.nodes]))
    return graph.add("Gather", [shares, at], axis=0), graph.add("Gather", [best, at], axis=0)


class _Graph:
    """Operators and constants of a model, with numbered names."""

    def __init__(self) -> None:
        try:
            import onnx  # noqa: PLC0415  (an extra)
            from onnx import helper, numpy_helper  # noqa: PLC0415
        except ImportError:
            raise InputError("ONNX files need onnx: pip install 'masquerade[onnx]'") from None
        self.onnx: Any = onnx
        self.helper: Any = helper
        self.numpy: Any = numpy_helper
        self.kind: Any = onnx.TensorProto
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._codes: dict[str, str] = {}

    def add(self, operator: str, inputs: Sequence[str], *, domain: str = "", **attributes: Any) -> str:
        """Add an operator with one output, and return the output's name."""
        name = f"{OWN}t{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def constant(self, values: np.ndarray[Any, Any]) -> str:
        """Add a constant, and return its name."""
        name = f"{OWN}c{len(self.constants)}"
        self.constants.append(self.numpy.from_array(values, name))
        return name

    def codes(self, variable: Variable) -> str:
        """Return the codes of a feature's labels; an unknown label is out of bounds, which is an error."""
        if variable.name in self._codes:
            return self._codes[variable.name]
        if variable.name in OUTPUTS or variable.name.startswith(OWN):
            raise InputError(f"A feature cannot be called {variable.name!r} in ONNX: the name is reserved.")
        size, kind = len(variable), _kind(variable)
        given = variable.name
        numbers = {"keys_int64s": [int(label) for label in variable.categories]} if kind is not str else None
        keys: dict[str, Any] = numbers or {"keys_strings": list(variable.categories)}
        if kind is bool:
            given = self.add("Cast", [given], to=self.kind.INT64)
        keys |= {"values_int64s": list(range(size)), "default_int64": size}
        places = self.add("LabelEncoder", [given], domain="ai.onnx.ml", **keys)
        self._codes[variable.name] = self.add("Gather", [self.constant(np.arange(size)), places], axis=0)
        return self._codes[variable.name]

    def model(self, features: Sequence[Variable], target: Variable, probabilities: str, best: str) -> bytes:
        """Return the complete model, checked by ONNX's checker."""
        tensor, kind = self.helper.make_tensor_value_info, _kind(target)
        kinds = {str: self.kind.STRING, int: self.kind.INT64, bool: self.kind.BOOL}
        labels: np.ndarray[Any, Any] = np.array(target.categories, dtype=object if kind is str else kind)
        named = self.add("Gather", [self.constant(labels), best], axis=0)
        self.nodes.append(self.helper.make_node("Identity", [named], ["label"]))
        self.nodes.append(self.helper.make_node("Identity", [probabilities], ["probabilities"]))
        graph = self.helper.make_graph(
            self.nodes,
            target.name,
            [tensor(one.name, kinds[_kind(one)], ["N"]) for one in features],
            [
                tensor("label", kinds[kind], ["N"]),
                tensor("probabilities", self.kind.DOUBLE, ["N", len(target)]),
            ],
            self.constants,
        )
        opsets = [self.helper.make_opsetid("", OPSET), self.helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = self.helper.make_model(
            graph, opset_imports=opsets, producer_name="masquerade", producer_version=__version__
        )
        model.ir_version = IR_VERSION
        self.onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())


def _kind(variable: Variable) -> type:
    kinds = {type(label) for label in variable.categories}
    if len(kinds) != 1:
        raise InputError(
            f"The categories of {variable.name!r} have several types: a column in ONNX has one type."
        )
    [kind] = kinds
    if kind is int and any(not -(2**63) <= int(label) < 2**63 for label in variable.categories):
        raise InputError(f"The categories of {variable.name!r} exceed the 64-bit integers of ONNX.")
    return kind
