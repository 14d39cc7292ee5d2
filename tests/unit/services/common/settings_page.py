"""The tables of docs/settings.md, from the models that settings files are read with.

`python -m tests.unit.services.common.settings_page` writes them.
"""

from __future__ import annotations

import re
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tests.pages import Written

from masquerade.learn.catalogue import LEARNERS
from masquerade.learn.option_types import STRUCTURE
from masquerade.services.common.settings import (
    AnyPath,
    Bytes,
    Digest,
    Limits,
    Listen,
    Name,
    PeerSettings,
    Probe,
    PublicFile,
    PublicKey,
    SecretFile,
    Tls,
    Url,
)
from masquerade.services.counting.settings import KINDS as COUNTING
from masquerade.services.counting.settings import CountLimits, CountNoiseSettings
from masquerade.services.parties import kinds
from masquerade.services.parties.session import (
    ClusterTerms,
    KindName,
    LearnerName,
    LearningGoal,
    LinkErrorSettings,
    MarginSettings,
    NoiseSettings,
    SessionSpec,
)
from masquerade.services.parties.settings import KINDS as PARTIES
from masquerade.services.parties.settings import (
    BudgetSettings,
    CategorySettings,
    DataDependentSettings,
    DataSettings,
    RulesSettings,
    SessionConsent,
)
from masquerade.services.threshold.settings import KINDS as COLLECTING
from masquerade.services.threshold.settings import EpochSettings, OpenLimits, ServerSettings
from masquerade.survey.collector.settings import KINDS as SURVEYS
from masquerade.survey.collector.settings import QuotaSettings, SurveyLimits

ON_PAGE = Written(
    Path(__file__).parents[4] / "docs" / "settings.md",
    "<!-- settings: written by python -m tests.unit.services.common.settings_page -->",
    "<!-- end of settings -->",
)
WIDTH = 118
HEAD = ["| key | what it is | default |", "|---|---|---|"]

MODELS: dict[str, type[BaseModel]] = {**PARTIES, "session": SessionSpec, **COLLECTING, **COUNTING, **SURVEYS}
USES = {
    "party": "For `masquerade party serve`.",
    "miner": "For `masquerade miner serve`.",
    "session": "For `masquerade session create`.",
    "randomness": "For `masquerade collect randomness serve`.",
    "collector": "For `masquerade collect collector serve`.",
    "office": "For `masquerade collect enrol`.",
    "collection": "For `masquerade collect submit`.",
    "form": "Both servers and everybody have it; `form` in their files names it.",
    "count": "The miner, the leaders and the office have it; `count` in their files names it.",
    "count-miner": "For `masquerade count serve`.",
    "count-leader": "For `masquerade count serve`.",
    "count-randomness": "For `masquerade count serve`, for a suppression.",
    "count-office": "For `masquerade count enrol`.",
    "survey": "For `masquerade survey serve`.",
}
TITLES: dict[type[BaseModel], str] = {
    Listen: "`listen`",
    Probe: "`listen.probe`",
    Tls: "`tls`",
    PeerSettings: "A peer",
    Limits: "`limits`",
    OpenLimits: "`limits` of a collection",
    CountLimits: "`limits` of a count",
    CountNoiseSettings: "`noise` of a count",
    SurveyLimits: "`limits` of a survey",
    QuotaSettings: "A quota",
    DataSettings: "`data`",
    SessionConsent: "A consent",
    RulesSettings: "`rules`",
    DataDependentSettings: "`data_dependent`",
    CategorySettings: "`most_categories`",
    LearningGoal: "`learn`",
    ClusterTerms: "`clusters`",
    LinkErrorSettings: "`link_error`",
    MarginSettings: "`margins`",
    NoiseSettings: "`noise`",
    BudgetSettings: "`budget`",
    EpochSettings: "`epoch`",
    ServerSettings: "A server of a collection",
}
HEX = "64 hexadecimal digits"
# the least that each learner is told
EXAMPLES: dict[str, dict[str, Any]] = {
    name: {"model": name, **({"target": "A"} if ("target",) in entry.needs else {})}
    for name, entry in LEARNERS.items()
}
EXAMPLES["network"]["order"] = ["A"]
EXAMPLES["tables"]["tables"] = [["A"]]
EXAMPLES["k-means"]["k"] = 2
EXAMPLES["survival"] |= {"time": "A", "event": "B"}
EXAMPLES["logistic"]["features"] = ["B"]


def alternatives(names: Iterable[Any]) -> str:
    """Return the allowed values as text."""
    *most, last = (f"`{name}`" for name in names)
    return f"{', '.join(most)} or {last}"


WORDS: list[tuple[Any, str]] = [
    (Bytes, "size"),
    (Digest, "digest"),
    (PublicKey, HEX),
    (Url, "address"),
    (AnyPath, "path"),
    (PublicFile, "file"),
    (SecretFile, "secret file"),
    (Name, "name"),
    (KindName, alternatives(kinds.BUILT_IN)),
    (LearnerName, alternatives(LEARNERS)),
    (bool, "true or false"),
    (int, "whole number"),
    (float, "number"),
]
UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


class Part(NamedTuple):
    """A model inside another: the key that it stands under, `peers.NAME` say, and whether in a list."""

    key: str
    model: type[BaseModel] | None
    listed: bool = False


def part_of(name: str, hint: Any) -> Part:
    """Return the description of a field."""
    plain = stripped(hint)
    if get_origin(plain) in {Union, types.UnionType}:  # a model or a list of it: the description says so
        plain = next((each for each in get_args(plain) if is_model(each)), plain)
    origin, inner = get_origin(plain), get_args(plain)
    if is_model(plain):
        return Part(name, plain)
    if origin is tuple and is_model(inner[0]):
        return Part(name, inner[0], listed=True)
    if origin is dict and is_model(inner[1]):
        return Part(f"{name}.NAME", inner[1])
    return Part(name, None)


def is_model(hint: Any) -> bool:
    """Return True if a hint is a model."""
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def stripped(hint: Any) -> Any:
    """Return a hint without `| None`."""
    if get_origin(hint) in {Union, types.UnionType}:
        options = [option for option in get_args(hint) if option is not type(None)]
        return options[0] if len(options) == 1 else hint
    return hint


def hints_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the hints of a model's fields, as they are written."""
    found = get_type_hints(model, include_extras=True)
    return {name: found[name] for name in model.model_fields}


def worded(hint: Any, field: FieldInfo | None = None) -> str:
    """Return a type in words, nothing where the description says enough."""
    hint = stripped(hint)
    for known, words in WORDS:
        if hint is known or (get_origin(hint) is Annotated and hint == known):
            return words + (bounds(field) if hint in {int, float} else "")
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal and len(inner) > 1:
        return alternatives(inner)
    if origin is tuple:
        below = worded(inner[0])
        plural = below if below.endswith("`") else f"{below}s"  # of words that are given, any number
        return f"list of {plural}" if below else "list"
    if origin is dict:
        below = worded(inner[1])
        return f"{below} for each" if below else ""
    if "[0-9a-f]{64}" in pattern_of(hint, field):
        return HEX
    if origin is Annotated:
        return worded(inner[0])
    return ""


def pattern_of(hint: Any, field: FieldInfo | None) -> str:
    """Return the pattern that a text must have."""
    given = [*(field.metadata if field else ()), *getattr(hint, "__metadata__", ())]
    marks = [mark for one in given for mark in (one.metadata if isinstance(one, FieldInfo) else [one])]
    return next((found for mark in marks if (found := getattr(mark, "pattern", None))), "")


def bounds(field: FieldInfo | None) -> str:
    """Return between which numbers a number lies."""
    found = {
        side: getattr(mark, side)
        for mark in (field.metadata if field else ())
        for side in ("ge", "gt", "le", "lt")
        if hasattr(mark, side)
    }
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    if {"ge", "le"} <= set(found):
        return f", {found['ge']} to {found['le']}"
    return "".join(f", {words[side]} {value}" for side, value in found.items())


def default_of(field: FieldInfo, hint: Any) -> str:
    """Return a default as one writes it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see there"
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if hint == Bytes:
        return next((f"{value // size} {unit}" for unit, size in UNITS if value % size == 0), str(value))
    if isinstance(value, (int, float)):
        return f"{value:g}" if value < 10_000 else f"{value:_}"
    return f"`{value}`"


def table(model: type[BaseModel]) -> str:
    """Return the keys of a model as a table."""
    lines = [*HEAD]
    for name, hint in hints_of(model).items():
        field, part = model.model_fields[name], part_of(name, hint)
        key, about = f"`{part.key}`", field.description or ""
        if part.model is not None:
            key = f"[{key}](#{anchor(TITLES[part.model])})"
        kind = "list" if part.listed else "" if part.model is not None else worded(hint, field)
        if kind:
            about += f" *{kind[0].upper()}{kind[1:]}.*"
        cells = (key, about, default_of(field, hint))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines if model is not LearningGoal else [*lines, *options()])


def options() -> Iterator[str]:
    """Yield what learners are told in a session, as the catalogue of learners has it."""
    for entry in LEARNERS.values():
        least = EXAMPLES[entry.name]
        unsaid = {option.name: option.default for option in entry.options} | LearningGoal(**least).options
        for option in entry.options:
            if not option.for_summary:
                kind, default = option.kind, None if option.name in least else unsaid[option.name]
                form = kind.form.words if kind.form else worded(kind.typed) or "text"
                about = "Its links." if kind is STRUCTURE else option.help
                about = about.replace("--", "").replace("; repeat for more", "")
                shown = "none" if default in (None, ()) else f"`{default}`".replace("False", "false")
                cells = (
                    f"`{option.name}`",
                    f"Of `{entry.name}`: {about} *{form[0].upper()}{form[1:]}.*",
                    shown,
                )
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def anchor(title: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def said(model: type[BaseModel]) -> str:
    """Return the first line of a model's docstring."""
    return (model.__doc__ or "").strip().partition("\n")[0]


def file_of(kind: str) -> str:
    """Return the name of a file of settings; a survey's questionnaire is survey.yaml, not its settings."""
    return "`collector.yaml` of a survey" if kind in SURVEYS else f"`{kind}.yaml`"


def parts() -> dict[type[BaseModel], dict[str, list[str]]]:
    """Return the parts of all files in order of appearance: under which keys, in which files."""
    found: dict[type[BaseModel], dict[str, list[str]]] = {}
    for kind, model in MODELS.items():
        for part in inside(model):
            assert part.model is not None
            found.setdefault(part.model, {}).setdefault(part.key, []).append(file_of(kind))
    return found


def inside(model: type[BaseModel], below: str = "") -> Iterator[Part]:
    """Yield the parts of a model, and theirs."""
    for name, hint in hints_of(model).items():
        part = part_of(f"{below}{name}", hint)
        if part.model is not None:
            yield part
            yield from inside(part.model, f"{part.key}.")


def listed(names: list[str]) -> str:
    """Return names in a sentence."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def placed(places: Mapping[str, list[str]]) -> str:
    """Return where a part stands."""
    keys: dict[str, list[str]] = {}
    for key, files in places.items():
        keys.setdefault(listed(files), []).append(f"`{key}`")
    return f"Under {', and '.join(f'{listed(some)} in {files}' for files, some in keys.items())}."


def generated() -> str:
    """Return a section for each file, and one for each part."""
    found = []
    for kind, model in MODELS.items():
        found += [f"## {file_of(kind)}", wrapped(f"{said(model)} {USES[kind]}"), table(model)]
    found += ["## Parts", "Some keys have keys of their own below them."]
    for model, places in parts().items():
        found += [f"### {TITLES[model]}", wrapped(f"{said(model)} {placed(places)}"), table(model)]
    return "\n\n".join(found)


def wrapped(text: str) -> str:
    """Return text in lines."""
    return "\n".join(textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    ON_PAGE.write(generated())
