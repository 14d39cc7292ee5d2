"""All experiments by name, in the order of the papers; a module is loaded only when it is needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module

from masquerade.core import InputError, did_you_mean
from masquerade_experiments.experiment import Experiment, Pending


@dataclass(frozen=True, slots=True)
class Planned:
    """An experiment that can run: its id and its module."""

    id: str
    module: str

    def load(self) -> Experiment:
        """Return the experiment."""
        experiment: Experiment = import_module(self.module).EXPERIMENT
        return experiment


Entry = Planned | Pending

MODULES: dict[str, tuple[str, ...]] = {
    "ma_sivakumar_2005": ("table_2", "figure_4", "figure_5"),
    "ma_2006": (
        "figure_2_2",
        "figure_2_3",
        "figure_3_1",
        "figure_3_2",
        "figure_3_3",
        "figure_3_4a",
        "figure_3_4b",
        "figure_5_1",
        "table_5_2",
        "figure_5_4",
        "figure_5_5",
        "figure_5_7",
        "figure_5_8",
        "figure_5_9",
        "figure_5_10",
        "figure_6_1",
        "figure_6_2",
        "figure_6_3",
        "figure_7_3",
        "figure_7_4",
        "figure_7_5",
        "figure_7_8",
        "figure_7_9",
    ),
    "meng_2004": ("table_6", "table_7", "table_8"),
    "zhan_2004": ("figure_1", "figure_2"),
    "wright_2005": ("k_anonymity_tables", "frequency_timing", "bayes_timing"),
}

PENDING: tuple[Pending, ...] = ()


def id_of(folder: str, module: str) -> str:
    """Return the id of the experiment in a module.

    >>> id_of("ma_2006", "figure_3_4a")
    'ma-2006-fig-3.4a'
    """
    numbered = re.fullmatch(r"(figure|table)_(.+)", module)
    if numbered:
        kind = {"figure": "fig", "table": "table"}[numbered[1]]
        item = f"{kind}-{numbered[2].replace('_', '.')}"
    else:
        item = module.removesuffix("_tables").replace("_", "-")
    return f"{folder.replace('_', '-')}-{item}"


ENTRIES: tuple[Entry, ...] = (
    *(
        Planned(id_of(folder, module), f"masquerade_experiments.{folder}.{module}")
        for folder, modules in MODULES.items()
        for module in modules
    ),
    *PENDING,
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The requested experiments, in the order of the catalogue; `named` are those given by their full id."""

    entries: tuple[Entry, ...]
    named: frozenset[str]


def select(names: Iterable[str], entries: Sequence[Entry] | None = None) -> Selection:
    """Return the experiments that the given names select.

    A name is an id (``ma-2006-fig-5.4``), the start of an id up to a dash or dot (``ma-2006``), a pattern
    (``*-table-*``) or ``all``; several can be joined by commas.
    """
    known = ENTRIES if entries is None else entries
    asked = [part.strip() for name in names for part in name.split(",") if part.strip()]
    if not asked:
        raise InputError("No experiment is named: give ids, a paper such as 'ma-2006', a pattern, or 'all'.")
    chosen: set[str] = set()
    for name in asked:
        found = {entry.id for entry in known if stands_for(name.lower(), entry.id)}
        if not found:
            raise InputError(f"There is no experiment {name!r}.{hint(name.lower(), known)}")
        chosen |= found
    return Selection(
        tuple(entry for entry in known if entry.id in chosen),
        frozenset(name.lower() for name in asked) & chosen,
    )


def stands_for(name: str, identity: str) -> bool:
    """Return True if a name selects the experiment with this id, possibly among others."""
    if name in {"all", identity}:
        return True
    if any(sign in name for sign in "*?["):
        return fnmatchcase(identity, name)
    return identity.startswith((f"{name}-", f"{name}."))


def hint(name: str, known: Sequence[Entry]) -> str:
    """Return a hint: the id or paper closest to an unknown name, or the option that lists all."""
    papers = dict.fromkeys("-".join(re.split(r"(?<=-\d{4})-", entry.id)[:1]) for entry in known)
    return did_you_mean(name, [*papers, *(entry.id for entry in known), "all"]) or " --list shows them all."
