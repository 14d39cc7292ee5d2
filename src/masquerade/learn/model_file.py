"""Models as readable JSON files: versioned, checked on load, no pickle.

A file holds one object: ``{"masquerade_model": 1, "kind": "naive_bayes", …}``. The rest is what the model's
own `to_dict` says and its `from_dict` reads back; the helpers here keep those two short and strict.

A learner of another package is an entry point of the group ``masquerade.learners`` that leads to an entry for
the catalogue. The kind in the files of its models is the entry point's name; its `model` reads them.
Nothing is loaded before a kind is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from masquerade.core.atomic import write_whole
from masquerade.core.axes import Floats
from masquerade.core.errors import FileError, InputError, did_you_mean
from masquerade.core.plugins import load_plugin, plugins
from masquerade.core.schema import Variable

FORMAT = 1
VERSION_KEY = "masquerade_model"
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


def save(model: Model, path: str | Path) -> None:
    """Write a model as JSON; the file is replaced whole or not at all."""
    values = model.to_dict()
    check_header(values, None)
    write_whole(Path(path), json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def load(path: str | Path) -> Any:
    """Return the model in a file that `save` wrote; what is none is refused in one line."""
    target = Path(path)
    try:
        values = json.loads(target.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{target}: cannot be read ({error.strerror}).") from None
    except json.JSONDecodeError as error:
        raise FileError(f"{target}: line {error.lineno}: not valid JSON ({error.msg}).") from None
    except (UnicodeDecodeError, RecursionError):
        raise FileError(f"{target}: not a model file, nor any JSON text.") from None
    try:
        return model_of(values)
    except InputError as error:
        raise InputError(f"{target}: {error}") from None


def model_of(values: Any) -> Any:
    """Return the model that plain JSON values describe."""
    return reader(check_header(values, None)).from_dict(values)


def kinds() -> tuple[str, ...]:
    """Return every kind of model that can be read, ours first; nothing is loaded."""
    return (*OWN, *(name for name in plugins("learners") if name not in OWN))


def reader(kind: str) -> Any:
    """Return what reads models of a kind: their class."""
    if kind in OWN:
        module, _, name = OWN[kind].partition(":")
        return getattr(import_module(module), name)
    return load_plugin("learners", kind, _problem).model()


def _problem(part: Any) -> str | None:
    """Say why a registered learner cannot read models, or None."""
    model = getattr(part, "model", None)
    reads = callable(model) and callable(getattr(model(), "from_dict", None))
    return None if reads else "its 'model' must return the class of its models, which has 'from_dict'"


def header(kind: str) -> dict[str, Any]:
    """Return how the values of every model begin."""
    return {VERSION_KEY: FORMAT, "kind": kind}


def check_header(values: Any, kind: str | None) -> str:
    """Return the kind of model that values describe; refuse another version or a kind other than `kind`."""
    if not isinstance(values, Mapping) or VERSION_KEY not in values:
        raise InputError(f"not a model: it must be a JSON object with {VERSION_KEY!r}: {FORMAT}.")
    version = values[VERSION_KEY]
    if type(version) is not int or version != FORMAT:
        raise InputError(f"model format {version!r} is not known; this version reads {FORMAT}.")
    found = values.get("kind")
    if not isinstance(found, str) or found not in kinds():
        raise InputError(f"there is no kind of model {found!r}.{did_you_mean(found, kinds())}")
    if kind is not None and found != kind:
        raise InputError(f"the model is of kind {found!r}, not {kind!r}.")
    return found


def entry(values: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """Return one of the values, which must be there and of one of the types."""
    if name not in values:
        raise InputError(f"the model lacks {name!r}.")
    found = values[name]
    if type(found) not in kinds:  # true is no number
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InputError(f"{name!r} must be of type {wanted}. Got {type(found).__name__} instead.")
    return found


def number(values: Mapping[str, Any], name: str) -> float:
    """Return one of the values, which must be a finite number."""
    found = float(entry(values, name, int, float))
    if not isfinite(found):
        raise InputError(f"{name!r} must hold finite numbers.")
    return found


def variable_values(variable: Variable) -> dict[str, Any]:
    """Return a variable as plain values."""
    return {"name": variable.name, "categories": list(variable.categories)}


def variable_of(values: Any) -> Variable:
    """Return the variable that plain values describe."""
    if not isinstance(values, Mapping):
        raise InputError("a variable must be an object with 'name' and 'categories'.")
    return Variable(entry(values, "name", str), tuple(entry(values, "categories", list)))


def number_values(array: Floats) -> Any:
    """Return an array as nested lists; JSON has no infinity, so it is written as the text "inf"."""
    if np.isnan(array).any():
        raise InputError("A model with undefined numbers cannot be saved.")
    return _finite(np.asarray(array, dtype=float).tolist())


def array_of(values: Any, shape: Sequence[int], name: str) -> Floats:
    """Return nested lists as an array of the given shape; anything else is an `InputError`."""
    try:
        array = np.array(_numbers(values), dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name!r} must be numbers in lists of equal length.") from None
    if array.shape != tuple(shape):
        wanted, found = ("×".join(map(str, sizes)) or "one" for sizes in (shape, array.shape))
        raise InputError(f"{name!r} must be {wanted} numbers. Got {found}.")
    if np.isnan(array).any():
        raise InputError(f"{name!r} has undefined numbers.")
    return array


def _finite(values: Any) -> Any:
    if isinstance(values, list):
        return [_finite(value) for value in values]
    return values if np.isfinite(values) else str(values)


def _numbers(values: Any) -> Any:
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    if values in ("inf", "-inf") or type(values) in (int, float):
        return float(values)
    raise TypeError
