"""Models as readable JSON files: versioned, checked on load, no pickle.

A file contains one object: ``{"masquerade_model": 1, "kind": "naive_bayes", …}``. The model's `to_dict`
writes the other entries, and its `from_dict` reads them. Fields of models and of their parts are written and
read by type: see `part_values` and `part_of`.

A learner of another package is an entry point of the group ``masquerade.learners`` that refers to an entry of
the catalogue. The kind in its model files is the entry point's name, and the class that the entry's `model`
returns reads these files. Nothing is imported until a file of that kind is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any, Protocol, TypeVar

import numpy as np

from masquerade.core.answered_tally import TAKEN, MissingAnswers
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.missing_shares import MissingShare
from masquerade.core.schema import Schema, Variable, category
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import read_json
from masquerade.core.util.plugins import load_plugin, plugins

T = TypeVar("T")
FORMAT = 1
MOST_BYTES = 1 << 26
VERSION_KEY = "masquerade_model"
# classes of built-in models, imported when needed: reading a tree does not load networks
OWN: Mapping[str, str] = {
    "association_rules": "masquerade.learn.rules.rules_model:AssociationRules",
    "bayesian_network": "masquerade.learn.networks.network:BayesianNetwork",
    "decision_tree": "masquerade.learn.classifiers.tree_model:DecisionTree",
    "frequent_itemsets": "masquerade.learn.rules.itemsets:Itemsets",
    "k_means": "masquerade.learn.clusters:Clusters",
    "label_tree": "masquerade.learn.classifiers.label_tree:LabelTree",
    "linear_classifier": "masquerade.learn.classifiers.linear:LinearClassifier",
    "naive_bayes": "masquerade.learn.classifiers.bayes:NaiveBayes",
    "structure": "masquerade.learn.networks.structure_search:LearnedStructure",
}
# JSON types of fields; the array of a node without parents is one number
PLAIN: Mapping[str, tuple[type, ...]] = {
    "Flags": (list, bool),
    "Floats": (list, int, float, str),
    "bool": (bool,),
    "float": (int, float),
    "int": (int,),
    "str": (str,),
}
# entries whose range is the same in all models
SHARES = frozenset(
    {"fdr", "level", "min_confidence", "min_support", "p_value", "q_value", "shares", "significance"}
)
NOT_NEGATIVE = frozenset({"alpha", "n", "negative", "prior", "ridge"})
FINITE = frozenset({"centres", "confidence", "numbers", "support", "values"})
ROUNDING = 1e-9  # amount by which a share may exceed 1


class Model(Protocol):
    """A model that can be written to a file."""

    def to_dict(self) -> dict[str, Any]:
        """Return the model as plain JSON values that start with `model_file.header`."""


class Saved:
    """Base of models with a method `save`."""

    __slots__ = ()

    def save(self: Model, path: str | Path) -> None:
        """Write the model as a JSON file."""
        save(self, path)


def save(model: Model, path: str | Path) -> None:
    """Write a model to a JSON file, atomically.

    Parameters
    ----------
    model : model
        A model of this package, or an object with `to_dict` that starts with `mq.extend.header`.
    path : str or Path
        File to write.

    Returns
    -------
    None
        The file is complete, or unchanged if writing failed.

    Raises
    ------
    InputError
        If the model contains undefined numbers.

    Examples
    --------
    >>> model = mq.learn.naive_bayes(mq.tally(mq.data.students()), "sleep")
    >>> mq.learn.save(model, "model.json")
    >>> mq.learn.load("model.json").features == model.features
    True
    """
    values = model.to_dict()
    check_header(values, None)
    write_whole(Path(path), json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def load(path: str | Path) -> Any:
    """Read a model from a file that `save` wrote.

    Parameters
    ----------
    path : str or Path
        File to read.

    Returns
    -------
    object
        The model, of the class that wrote it.

    Raises
    ------
    InputError
        If the file is not a valid model.

    Examples
    --------
    >>> model = mq.learn.naive_bayes(mq.tally(mq.data.students()), "sleep")
    >>> mq.learn.save(model, "model.json")
    >>> type(mq.learn.load("model.json")).__name__
    'NaiveBayes'
    """
    target = Path(path)
    values = read_json(target, most=MOST_BYTES)
    try:
        return model_of(values)
    except InputError as error:
        raise InputError(f"{Path(path)}: {error}") from None


def model_of(values: Any) -> Any:
    """Return the model that plain JSON values describe."""
    return reader(check_header(values, None)).from_dict(values)


def kinds() -> tuple[str, ...]:
    """Return every kind of model that can be read, built-in ones first, without importing any."""
    return (*OWN, *(name for name in plugins("learners") if name not in OWN))


def reader(kind: str) -> Any:
    """Return the class that reads models of a kind."""
    if kind in OWN:
        module, _, name = OWN[kind].partition(":")
        return getattr(import_module(module), name)
    return load_plugin("learners", kind, _problem).model()


def _problem(part: Any) -> str | None:
    """Return the reason why a registered learner cannot read models, or None."""
    model = getattr(part, "model", None)
    reads = callable(model) and callable(getattr(model(), "from_dict", None))
    return None if reads else "its 'model' must return the class of its models, which has 'from_dict'"


def header(kind: str) -> dict[str, Any]:
    """Return the first entries of a model file.

    Parameters
    ----------
    kind : str
        Name of the entry point of the learner.

    Returns
    -------
    dict
        Format version and kind, to be followed by the model's own entries.

    Examples
    --------
    >>> mq.extend.header("naive_bayes")
    {'masquerade_model': 1, 'kind': 'naive_bayes'}
    """
    return {VERSION_KEY: FORMAT, "kind": kind}


def check_header(values: Any, kind: str | None) -> str:
    """Check the first entries of a model file.

    Parameters
    ----------
    values : mapping
        Content of the file.
    kind : str or None
        The kind that is expected. None accepts every known kind.

    Returns
    -------
    str
        The kind of the model.

    Raises
    ------
    InputError
        If the values are not a model, or are of a different version or kind.

    Examples
    --------
    >>> mq.extend.check_header({"masquerade_model": 1, "kind": "naive_bayes"}, "naive_bayes")
    'naive_bayes'
    """
    if not isinstance(values, Mapping) or VERSION_KEY not in values:
        raise InputError(f"not a model: it must be a JSON object with {VERSION_KEY!r}: {FORMAT}.")
    version = values[VERSION_KEY]
    if type(version) is not int or version != FORMAT:
        raise InputError(f"model format {version!r} is not known; this version reads {FORMAT}.")
    found = values.get("kind")
    if not isinstance(found, str) or found not in kinds():
        raise InputError(f"unknown kind of model {found!r}.{did_you_mean(found, kinds())}")
    if kind is not None and found != kind:
        raise InputError(f"the model is of kind {found!r}, not {kind!r}.")
    return found


def entry(values: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """Return one entry of a model file after checking its type.

    Parameters
    ----------
    values : mapping
        Content of the file.
    name : str
        Name of the entry.
    *kinds : type
        Accepted types.

    Returns
    -------
    object
        The entry.

    Raises
    ------
    InputError
        If the entry is missing or of a different type.

    Examples
    --------
    >>> mq.extend.entry({"target": "smoker"}, "target", str)
    'smoker'
    """
    if not isinstance(values, Mapping):
        raise InputError(f"a part of a model must be an object with {name!r}.")
    if name not in values:
        raise InputError(f"the model lacks {name!r}.")
    found = values[name]
    if type(found) not in kinds:  # exact types: in Python, True is an int
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InputError(f"{name!r} must be of type {wanted}. Got {type(found).__name__} instead.")
    if type(found) in (int, float):
        _check_range(name, found)
    return found


def number(values: Mapping[str, Any], name: str) -> float:
    """Return an entry, which must be a finite number."""
    found = float(entry(values, name, int, float))
    if not isfinite(found):
        raise InputError(f"{name!r} must contain finite numbers.")
    return found


def part_values(part: Any, *names: str) -> dict[str, Any]:
    """Return the named fields of a model or of a part of it, or all fields, as plain JSON values."""
    if isinstance(part, Variable) and not names:
        # without missing categories, files stay identical to files of earlier versions
        names = ("name", "categories", "missing") if part.missing else ("name", "categories")
    return {name: plain(getattr(part, name)) for name in names or (field.name for field in fields(part))}


def plain(value: Any) -> Any:
    """Return a value as plain JSON: arrays and tuples as lists, variables and parts of models as objects."""
    if isinstance(value, np.ndarray):
        return number_values(value) if value.dtype.kind == "f" else value.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return part_values(value) if is_dataclass(value) else value


def part_of(
    part: Callable[..., T], values: Any, shapes: Mapping[str, Sequence[int]], called: str = "", **known: Any
) -> T:
    """Return a model, or a part of it, from the plain values that `part_values` wrote, checked by type.

    `shapes` are the shapes of its arrays. Fields in `known` are taken from there instead of `values`.
    `called` is put before the names of arrays in messages.
    """
    if not isinstance(values, Mapping):
        raise InputError("a part of a model must be a JSON object.")
    found: dict[str, Any] = {}
    for field in fields(part):  # type: ignore[arg-type]
        if field.name in known:
            continue
        name, (kind, _, missing) = field.name, str(field.type).partition(" | ")
        if missing and entry(values, name, *PLAIN[kind], NoneType) is None:
            found[name] = None
        elif kind in ("Floats", "Flags"):
            given = entry(values, name, *PLAIN[kind])
            found[name] = array_of(given, shapes[name], f"{called}{name}", flags=kind == "Flags")
        else:
            found[name] = number(values, name) if kind == "float" else entry(values, name, *PLAIN[kind])
    return part(**found, **known)


def variable_of(values: Any) -> Variable:
    """Return a variable from plain values."""
    if not isinstance(values, Mapping):
        raise InputError("a variable must be an object with 'name' and 'categories'.")
    missing = tuple(entry(values, "missing", list)) if "missing" in values else ()
    return Variable(entry(values, "name", str), tuple(entry(values, "categories", list)), missing)


def missing_values(missing: MissingAnswers | None) -> dict[str, Any]:
    """Return the entry on missing answers of a model file; none if no answer could be missing."""
    if missing is None:
        return {}
    shares = [part_values(share) for share in missing.shares]
    return {"missing": {"taken": missing.taken, "variables": shares}}


def missing_of(values: Mapping[str, Any]) -> MissingAnswers | None:
    """Return the missing answers of a model file; raise InputError if they are not valid."""
    if "missing" not in values:
        return None
    entries = entry(values, "missing", dict)
    taken = entry(entries, "taken", str)
    if taken not in TAKEN:
        raise InputError(f"'taken' of missing answers must be one of {', '.join(TAKEN)}.")
    shares = [
        MissingShare(
            entry(item, "name", str),
            tuple(map(category, entry(item, "labels", list))),
            number(item, "share"),
            number(item, "stderr"),
        )
        for item in entry(entries, "variables", list)
    ]
    return MissingAnswers(tuple(shares), taken)


def missing_lines(missing: MissingAnswers | None) -> list[str]:
    """Return the line of a summary on missing answers."""
    return [] if missing is None else [missing.text]


def target_and_features(values: Any, kind: str) -> tuple[Variable, tuple[Variable, ...]]:
    """Return the target and the features of a classifier; raise InputError if a variable occurs twice."""
    check_header(values, kind)
    target = variable_of(entry(values, "target", dict))
    features = tuple(variable_of(item) for item in entry(values, "features", list))
    Schema((target, *features))
    return target, features


def number_values(array: Floats) -> Any:
    """Return an array as nested lists. JSON has no infinity, so it is written as the text "inf"."""
    if np.isnan(array).any():
        raise InputError("A model with undefined numbers cannot be saved.")
    return _finite(np.asarray(array, dtype=float).tolist())


def array_of(values: Any, shape: Sequence[int], name: str, *, flags: bool = False) -> Any:
    """Return nested lists as an array of the given shape; raise InputError for anything else."""
    wanted = "times true or false" if flags else "numbers"
    try:
        array = np.array(_leaves(values, _flag if flags else _number), dtype=bool if flags else float)
    except (TypeError, ValueError, OverflowError):
        what = wanted.removeprefix("times ")
        raise InputError(f"{name!r} must be {what} in lists of equal length.") from None
    if array.shape != tuple(shape):
        size, found = ("×".join(map(str, sizes)) or "one" for sizes in (shape, array.shape))
        raise InputError(f"{name!r} must be {size} {wanted}. Got {found}.")
    if np.isnan(array).any():
        raise InputError(f"{name!r} has undefined numbers.")
    if not flags:
        _check_range(name, array)
    return array


def _check_range(name: str, values: Any) -> None:
    """Raise InputError if a number is impossible for its name: a share of 7, a negative standard error."""
    field = name.replace(" ", ".").rpartition(".")[2]
    numbers = np.asarray(values, dtype=float)
    if field in SHARES and not np.all((numbers >= 0) & (numbers <= 1 + ROUNDING)):
        raise InputError(f"{name!r} must be between 0 and 1.")
    if (field in NOT_NEGATIVE or field.endswith("stderr")) and np.any(numbers < 0):
        raise InputError(f"{name!r} must not be negative: numbers and standard errors of 0 or more.")
    if field in FINITE and not np.all(np.isfinite(numbers)):
        raise InputError(f"{name!r} must contain finite numbers.")


def _finite(values: Any) -> Any:
    if isinstance(values, list):
        return [_finite(value) for value in values]
    return values if np.isfinite(values) else str(values)


def _leaves(values: Any, leaf: Callable[[Any], Any]) -> Any:
    return [_leaves(value, leaf) for value in values] if isinstance(values, list) else leaf(values)


def _number(value: Any) -> float:
    if value in ("inf", "-inf") or type(value) in (int, float):
        return float(value)
    raise TypeError


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise TypeError
