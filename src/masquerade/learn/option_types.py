"""Types of learners' options, as users type them: names, links, structures, items, scores of categories.

An `OptionType` parses a value, checks it against the available variables, and returns the variables it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from masquerade.core.errors import InputError, SchemaError, did_you_mean
from masquerade.core.util.formatting import category_text
from masquerade.core.util.json_text import read_json

if TYPE_CHECKING:
    from masquerade.core.schema import Category, Schema, Variable
    from masquerade.learn.networks.scores import Correction

Structure = dict[str, tuple[str, ...]]
_BACKWARD = re.compile(r"\s*(?:<-|←)\s*")
_FORWARD = re.compile(r"\s*(?:->|→)\s*")


@dataclass(frozen=True, slots=True)
class OptionType:
    """A type of option: what is typed, how it is parsed, and which variables it names.

    `typed` is `bool`, `int`, `float`, `str`, a `Literal`, or `list[str]` for an option that may be repeated.
    `read` takes the typed value or the value in a file, the available variables, and the name of the option
    for messages. `form` describes the value in a file, with lists and mappings, if it differs from the typed
    value. `names` takes the result of `read`, or a value of that form.
    """

    typed: Any
    metavar: str | None = None
    least: int | None = None
    read: Callable[[Any, Schema, str], Any] = lambda typed, _schema, _option: typed
    names: Callable[[Any], Iterable[str]] = lambda _value: ()
    form: FileForm | None = None

    def to_file_value(self, value: Any, option: str) -> Any:
        """Return a value in the canonical form of a file, without looking up variables."""
        if self.form is not None:
            if not self.form.holds(value):
                raise InputError(f"{option} must be {self.form.words}.")
            return self.form.plain(value)
        if get_origin(self.typed) is Literal:
            choices = get_args(self.typed)
            if value not in choices:
                words = ", ".join(map(repr, choices[:-1]))
                raise InputError(f"{option} must be {words} or {choices[-1]!r}.")
            return value
        wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[self.typed]
        value = plain_number(value) if self.typed in (int, float) else value
        fits = isinstance(value, (int, float) if self.typed is float else self.typed)
        if not fits or (self.typed is not bool and isinstance(value, bool)):
            raise InputError(f"{option} must be {wanted}.")
        if self.least is not None and value < self.least:
            raise InputError(f"{option} must be at least {self.least}. Got {value} instead.")
        return value


@dataclass(frozen=True, slots=True)
class FileForm:
    """The form of a value in a file: its description, its check, and its canonical version."""

    words: str
    holds: Callable[[Any], bool]
    plain: Callable[[Any], Any]


def _number(description: str, holds: Callable[[float], bool]) -> OptionType:
    """Return the type of numbers that pass a check; `description` completes "must be …" in the message."""

    def read(typed: float, _schema: Schema, option: str) -> float:
        if not holds(typed):
            raise InputError(f"{option} must be {description}. Got {typed:g} instead.")
        return typed

    return OptionType(float, read=read)


def whole_number(least: int) -> OptionType:
    """Return the type of whole numbers from `least` on."""
    return OptionType(int, least=least)


def one_of(*choices: str) -> OptionType:
    """Return the type of texts that are one of the choices."""
    return OptionType(Literal[choices])


def variable_named(name: str, schema: Schema, option: str) -> Variable:
    """Return a variable of the policy."""
    if name not in schema:
        raise SchemaError(f"{option}: the policy has no variable {name!r}.{did_you_mean(name, schema)}")
    return schema[name]


def names_in(text: str | Sequence[str], schema: Schema, option: str) -> tuple[str, ...]:
    """Return the variables in "A,B" or in a list. A text that is itself a variable is one name."""
    if isinstance(text, str) and text in schema:
        return (text,)
    names = tuple(part.strip() for part in text.split(",")) if isinstance(text, str) else tuple(text)
    for name in names:
        if not name:
            raise InputError(f"{option} {text!r}: variables are given as A,B.")
        variable_named(name, schema, option)
        if names.count(name) > 1:
            raise InputError(f"{option} names {name!r} twice.")
    return names


def owners_in(text: str, schema: Schema, option: str) -> dict[str, tuple[str, ...]]:
    """Return the variables of each owner, from "north=A,B; south=C"."""
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        owner, equals, names = (piece.strip() for piece in part.partition("="))
        if not owner or not equals or owner in found:
            raise InputError(f"{option} {text!r}: owners are given once each, as 'north=A,B; south=C'.")
        found[owner] = names_in(names, schema, option)
    return found


def _links_in(texts: Iterable[str | Sequence[str]], schema: Schema, option: str) -> list[tuple[str, str]]:
    """Return the links in "PARENT->CHILD", or in pairs."""
    found = []
    for text in texts:
        ends = _link_ends(text)
        if len(ends) != 2 or not all(ends):
            raise InputError(f"{option} {text!r}: a link is given as 'PARENT->CHILD'.")
        for end in ends:
            variable_named(end, schema, option)
        found.append((ends[0], ends[1]))
    return found


def _link_ends(text: str | Sequence[str]) -> list[str]:
    return _FORWARD.split(text.strip()) if isinstance(text, str) else [*text]


def structure_in(given: str | Mapping[str, Sequence[str]], schema: Schema, option: str) -> Structure:
    """Return the parents of every node, from a mapping, a file or "CHILD<-PARENT,PARENT; CHILD<-…"."""
    found: Structure = {}
    if isinstance(given, str):
        path = Path(given)
        in_file = path.suffix.lower() in {".json", ".bif"}
        found = _structure_of_file(path, option) if in_file else _structure_of_text(given, option)
    else:
        for child, parents in given.items():
            _add_node(found, child, parents, option)
    named = dict.fromkeys([*found, *(parent for parents in found.values() for parent in parents)])
    for name in named:
        variable_named(name, schema, option)
    listed = schema if isinstance(given, str) else named  # a mapping keeps its order
    structure = {name: found.get(name, ()) for name in listed if name in named}
    from masquerade.learn.networks.graph import ancestral_order  # noqa: PLC0415  (loads numpy)

    ancestral_order(structure)
    return structure


def _structure_of_text(text: str, option: str) -> Structure:
    found: Structure = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        child, *rest = _BACKWARD.split(part)
        parents = [parent.strip() for parent in rest[0].split(",")] if rest and rest[0] else []
        if not child or len(rest) > 1 or not all(parents):
            raise InputError(f"{option} {part!r}: parents are given as 'CHILD<-PARENT,PARENT; …'.")
        _add_node(found, child, parents, option)
    if not found:
        raise InputError(f"{option} names no node: parents are given as 'CHILD<-PARENT,PARENT; …'.")
    return found


def _structure_of_file(path: Path, option: str) -> Structure:
    from masquerade.learn import model_file  # noqa: PLC0415  (these load numpy)
    from masquerade.learn.networks import network_files  # noqa: PLC0415  (these load numpy)

    if path.suffix.lower() == ".bif":
        return dict(network_files.read_bif(path).structure)
    values = read_json(path)
    if not isinstance(values, dict) or "masquerade_model" in values:
        model = model_file.load(path)
        if not hasattr(model, "structure"):
            raise InputError(f"{path}: this model of kind {values['kind']!r} has no structure.")
        return {name: tuple(parents) for name, parents in model.structure.items()}
    found: Structure = {}
    for child, parents in values.items():
        if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
            raise InputError(f"{path}: the parents of {child!r} must be a list of names.")
        _add_node(found, child, parents, option)
    if not found:
        raise InputError(f"{path}: names no node.")
    return found


def _add_node(found: Structure, child: str, parents: Sequence[str], option: str) -> None:
    if child in found:
        raise InputError(f"{option} gives the parents of {child!r} twice.")
    if len(set(parents)) < len(parents):
        raise InputError(f"{option} names a parent of {child!r} twice.")
    found[child] = tuple(parents)


def _correction_in(text: str, _schema: Schema, option: str) -> Correction:
    from masquerade.learn.networks.scores import correction_called  # noqa: PLC0415  (loads numpy)

    return correction_called(text, option)


def _items_in(
    texts: Sequence[str | Sequence[Any]], schema: Schema, option: str
) -> list[str | tuple[str, Category]] | None:
    """Return items: a variable represents all of its categories, VARIABLE=CATEGORY one of them."""
    found: list[str | tuple[str, Category]] = []
    for text in texts:
        if not isinstance(text, str):
            own = variable_named(text[0], schema, option)
            found.append((own.name, category_called(own, category_text(text[1]), option)))
            continue
        name, equals, label = text.partition("=")
        while equals and name.strip() not in schema and "=" in label:  # a name may contain "="
            more, equals, label = label.partition("=")
            name = f"{name}={more}"
        if text in schema or not equals:
            found.append(variable_named(text, schema, option).name)
        else:
            variable = variable_named(name.strip(), schema, option)
            found.append((variable.name, category_called(variable, label.strip(), option)))
    return found or None


def category_called(variable: Variable, text: str, option: str) -> Category:
    """Return the category that a text represents: 3 for "3", true for "true"."""
    forms = [category_text(label) for label in variable.categories]
    found = [label for label, form in zip(variable.categories, forms, strict=True) if form == text]
    if not found:
        found = [
            label
            for label in variable.categories
            if isinstance(label, bool) and str(label).lower() == text.lower()
        ]
    if len(found) > 1:
        raise SchemaError(f"{option}: {variable.name!r} has several categories that are written {text!r}.")
    if not found:
        hint = did_you_mean(text, forms)
        raise SchemaError(f"{option}: {text!r} is not a category of {variable.name!r}.{hint}")
    return found[0]


def _scores_in(texts: Sequence[str] | Mapping[str, Any], schema: Schema, option: str) -> dict[str, Any]:
    """Return scores of categories from "V=1,2,5" or "V=indicator", or from a mapping by variable."""
    if isinstance(texts, Mapping):
        return {variable_named(name, schema, option).name: given for name, given in texts.items()}
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        if not equals:
            raise InputError(f"{option} {text!r}: numbers are given as VARIABLE=1,2,5 or VARIABLE=indicator.")
        variable = variable_named(name.strip(), schema, option)
        try:
            given: Any = [float(part) for part in numbers.split(",")]
        except ValueError:
            given = numbers.strip()
        found[variable.name] = given
    return found


def _centres_in(given: Any, _schema: Schema, option: str) -> list[list[float]]:
    """Return points, each as "1,2.5" or a list of numbers."""
    try:
        found = [
            [float(number) for number in (point.split(",") if isinstance(point, str) else point)]
            for point in given
        ]
    except ValueError:
        raise InputError(f"{option}: a point is given as numbers, such as 1,2.5.") from None
    if len({len(point) for point in found}) != 1:
        raise InputError(f"{option}: all points must have one number per variable.")
    return found


def _all_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) and item for item in value)


def _is_link(value: Any) -> bool:
    return len(_link_ends(value)) == 2 if isinstance(value, str) else _all_texts(value) and len(value) == 2


def _is_item(value: Any) -> bool:
    pair = isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[0], str)
    return isinstance(value, str) or (pair and not isinstance(value[1], (list, tuple, dict)))


def _is_scores(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and (given == "indicator" or (isinstance(given, (list, tuple)) and all(map(_is_number, given))))
        for name, given in value.items()
    )


def plain_number(value: Any) -> Any:
    """Return a Decimal from a file as a float; return any other value unchanged."""
    return float(value) if isinstance(value, Decimal) else value


def _is_number(value: Any) -> bool:
    return isinstance(plain_number(value), (int, float)) and not isinstance(value, bool)


def _numbers(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: given if isinstance(given, str) else [plain_number(one) for one in given]
        for name, given in scores.items()
    }


def _lists(value: Any) -> Any:
    """Return the value with tuples as lists, as in JSON."""
    if isinstance(value, Mapping):
        return {name: _lists(item) for name, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def _many(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (list, tuple)) and bool(value) and all(map(holds, value))


def _item_name(item: Any) -> str:
    return str(item.partition("=")[0].strip() if isinstance(item, str) else item[0])


_NAMES = FileForm("a list of variables, such as [A, B]", lambda it: bool(it) and _all_texts(it), _lists)
_TABLES = FileForm("a list of lists of variables, such as [[A], [A, B]]", _many(_all_texts), _lists)
_LINKS = FileForm(
    "a list of links, such as [A->B] or [[A, B]]",
    _many(_is_link),
    lambda links: [_link_ends(link) for link in links],
)
_PARENTS = FileForm(
    "the parents of every node, such as {A: [], B: [A]}",
    lambda it: isinstance(it, Mapping) and bool(it) and all(map(_all_texts, it.values())),
    _lists,
)
_ITEMS = FileForm(
    "a list of items, each VARIABLE, VARIABLE=CATEGORY or [VARIABLE, CATEGORY]", _many(_is_item), _lists
)
_CENTRES = FileForm(
    "a list of lists of numbers, such as [[1, 2.5], [4, 0]]",
    _many(_many(_is_number)),
    lambda centres: [[plain_number(one) for one in centre] for centre in centres],
)
_SCORES = FileForm("the numbers of categories by variable, such as {A: [1, 2, 5]}", _is_scores, _numbers)


SWITCH = OptionType(bool)
NUMBER = OptionType(float)
WHOLE = OptionType(int)
NOT_NEGATIVE = _number("0 or more", lambda number: number >= 0)
SHARE = _number("above 0 and at most 1", lambda share: 0 < share <= 1)
LEVEL = _number("between 0 and 1, such as 0.95", lambda level: 0 < level < 1)
VARIABLE = OptionType(
    str,
    "VARIABLE",
    read=lambda name, schema, option: variable_named(name, schema, option).name,
    names=lambda name: (name,),
)
VARIABLES = OptionType(str, "A,B", read=names_in, names=lambda names: names, form=_NAMES)
TABLES = OptionType(
    list[str],
    "A,B",
    read=lambda texts, schema, option: tuple(names_in(text, schema, option) for text in texts),
    names=lambda tables: (name for names in tables for name in names),
    form=_TABLES,
)
LINKS = OptionType(
    list[str],
    "A->B",
    read=_links_in,
    names=lambda links: (name for link in links for name in link),
    form=_LINKS,
)
STRUCTURE = OptionType(
    str,
    "TEXT|FILE",
    read=structure_in,
    names=lambda structure: (name for child, parents in structure.items() for name in (child, *parents)),
    form=_PARENTS,
)
CORRECTION = OptionType(str, "RULE", read=_correction_in)
ITEMS = OptionType(
    list[str],
    "VARIABLE[=CATEGORY]",
    read=_items_in,
    names=lambda items: map(_item_name, items),
    form=_ITEMS,
)
CENTRES = OptionType(list[str], "1,2.5", read=_centres_in, form=_CENTRES)
SCORES = OptionType(list[str], "VARIABLE=1,2,5", read=_scores_in, names=lambda scores: scores, form=_SCORES)
