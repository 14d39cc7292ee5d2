"""A learnt structure, and how strongly counts speak for each of its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.errors import InputError
from masquerade.core.link_test import link_tests
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.tally import Tally, check_source
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.model_file import check_header, entry, header
from masquerade.learn.networks.graph import Link, PartialGraph, ancestral_order, cpdag, links, to_networkx
from masquerade.learn.networks.network_plot import network_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Strength:
    """The test of one link, given the child's other parents.

    `statistic` is the deviance D, twice the log-likelihood of the reports that the link adds; `df` and
    `p_value` are those of `link_tests`: the chance of reports so far from independence if the link were not
    there and had been chosen beforehand. A search picks the largest of many statistics, so this is neither
    the probability of the link nor an honest significance level: it ranks links and exposes doubtful ones.
    `frequency` is how often the link was found in samples drawn anew from the reports, None where none were.
    Files of earlier versions hold G² of estimated counts instead, and its `design_effect`.
    """

    parent: str
    child: str
    statistic: float
    df: float
    p_value: float
    design_effect: float | None = None
    frequency: float | None = None

    def figures(self) -> dict[str, float]:
        """Return the figures by name."""
        older = {} if self.design_effect is None else {"design_effect": self.design_effect}
        drawn = {} if self.frequency is None else {"frequency": self.frequency}
        return {"statistic": self.statistic, **older, "df": self.df, "p_value": self.p_value, **drawn}


def link_strengths(source: Tally, structure: Mapping[str, Sequence[str]]) -> tuple[Strength, ...]:
    """Return the strength of every link of a structure, each tested by `link_tests` given the other parents.

    Cost: one batch of one question for each node with parents, then the fits.
    """
    check_source(source)
    asked = {child: tuple(parents) for child, parents in structure.items() if parents}
    names = {child: in_order(source.schema, (*parents, child)) for child, parents in asked.items()}
    tables = dict(zip(asked, source.answer([Query(by=names[child]) for child in asked]), strict=True))
    links = [(parent, child) for child in asked for parent in in_order(source.schema, asked[child])]
    places = []
    for parent, child in links:
        given = [axis for axis, name in enumerate(names[child]) if name not in (parent, child)]
        places.append((*given, names[child].index(parent), names[child].index(child)))
    tests = link_tests([tables[child] for _, child in links], places, partial(np.random.default_rng, 0))
    return tuple(
        Strength(parent, child, test.statistic, test.df, test.p_value)
        for (parent, child), test in zip(links, tests, strict=True)
    )


def in_order(schema: Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return names in the order of the schema."""
    return tuple(name for name in schema if name in names)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LearnedStructure(Printed):
    """A structure, the strength of its links, and the rule that found it.

    Found on shares, where no count was opened, it has no strengths.

    >>> found = mq.learn.structure(mq.tally(mq.data.students()), order=["exams", "pills", "sleep", "year"])
    >>> print(found.summary())
    4 nodes, 3 links by K2, score bic, likelihood
    link             deviance      df     p-value
    pills → sleep        74.2     1.0     1.2e-18
    exams → pills        30.1     1.0     6.2e-08
    exams → year         16.1     2.0     0.00034
    p-values are those of links chosen beforehand: they rank links, they are no probabilities
    """

    structure: dict[str, tuple[str, ...]]
    strengths: tuple[Strength, ...]
    score: str
    correction: dict[str, object]
    order: tuple[str, ...] | None = None

    @property
    def links(self) -> list[Link]:
        """Return the links as (parent, child)."""
        return links(self.structure)

    def cpdag(self) -> PartialGraph:
        """Return what data can tell of the directions."""
        return cpdag(self.structure)

    def with_frequencies(self, frequency: Mapping[Link, float]) -> LearnedStructure:
        """Return the structure with how often each link was found in samples (`resampled_network`)."""
        told = [replace(s, frequency=frequency.get((s.parent, s.child), 0.0)) for s in self.strengths]
        return replace(self, strengths=tuple(told))

    def to_networkx(self) -> Any:
        """Return a networkx.DiGraph; links carry the figures of their `Strength` as attributes."""
        graph = to_networkx(self.structure)
        for item in self.strengths:
            graph.edges[item.parent, item.child].update(item.figures())
        return graph

    @printable
    def summary(self) -> str:
        """Return the links with their strengths, weakest last."""
        how = "hill climbing" if self.order is None else "K2"
        rule = " ".join(str(value) for value in self.correction.values())
        title = f"{len(self.structure)} nodes, {len(self.links)} links by {how}, score {self.score}, {rule}"
        width = max([4, *(len(f"{a} → {b}") for a, b in self.links)])
        older = any(s.design_effect is not None for s in self.strengths)
        columns = ("G²", "design effect") if older else ("deviance", "")
        drawn = any(s.frequency is not None for s in self.strengths)
        head = f"{'link':<{width}}{columns[0]:>12}{'df':>8}{columns[1]:>{15 * older}}{'p-value':>12}"
        head += f"{'found in':>11}" * drawn
        rows = [
            f"{f'{s.parent} → {s.child}':<{width}}{s.statistic:>12.1f}{s.df:>8.1f}"
            f"{f'{s.design_effect or 1:>15.2f}' if older else ''}{s.p_value:>12.2g}"
            f"{'' if s.frequency is None else f'{s.frequency:>11.0%}'}"
            for s in sorted(self.strengths, key=lambda s: (s.p_value, -s.statistic))
        ]
        if not self.strengths:
            return "\n".join([title, *(f"{a} → {b}" for a, b in self.links), *self._untold()])
        notes = ["p-values are those of links chosen beforehand: they rank links, they are no probabilities"]
        if drawn:
            notes.append("found in: samples drawn anew from the reports in which the link was found too")
        return "\n".join([title, head, *rows, *notes, *self._untold()])

    def _untold(self) -> list[str]:
        """Return what is to be said of arrows that a search drew and the counts cannot tell."""
        if self.order is not None:
            return []
        place = {name: i for i, name in enumerate(self.structure)}
        pairs = sorted(sorted(map(place.__getitem__, link)) for link in self.cpdag().undirected)
        if not pairs:
            return []
        names = list(self.structure)
        listed = ", ".join(f"{names[a]} – {names[b]}" for a, b in pairs)
        return [f"counts do not tell the direction of {listed}"]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the structure, parents above children; the wider a link, the more the counts speak for it."""
        found = {(s.parent, s.child): s.statistic / (s.design_effect or 1.0) for s in self.strengths}
        most = max(found.values(), default=1.0) or 1.0
        weights = {link: (value / most) ** 0.5 for link, value in found.items()}
        note = "width: root of the deviance" if found else ""
        return network_plot(self.structure, None, ax, weights=weights, note=note)

    def to_dict(self) -> dict[str, object]:
        """Return the structure as plain JSON values."""
        return {
            **header("structure"),
            "parents": {name: list(parents) for name, parents in self.structure.items()},
            "strengths": [{"parent": s.parent, "child": s.child, **s.figures()} for s in self.strengths],
            "score": self.score,
            "correction": dict(self.correction),
            "order": None if self.order is None else list(self.order),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LearnedStructure:
        """Return the structure that `to_dict` gave; anything else is an `InputError`."""
        check_header(data, "structure")
        order = entry(data, "order", list, NoneType)
        score, rule = entry(data, "score", str), dict(entry(data, "correction", dict))
        parents = entry(data, "parents", dict)
        try:
            found = {name: texts(named) for name, named in parents.items()}
            strengths = tuple(strength_of(item) for item in entry(data, "strengths", list))
            loaded = cls(found, strengths, score, rule, None if order is None else texts(order))
        except (KeyError, TypeError) as error:
            raise InputError(f"the structure is damaged: {error}.") from None
        ancestral_order(found)
        if strengths and sorted((s.parent, s.child) for s in strengths) != sorted(loaded.links):
            raise InputError("the structure is damaged: its strengths are not those of its links.")
        return loaded


def texts(values: object) -> tuple[str, ...]:
    """Return a list of texts as a tuple; anything else is a `TypeError`."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("names must be lists of texts")
    return tuple(values)


def strength_of(values: Mapping[str, Any]) -> Strength:
    """Return the strength that plain values describe; anything else is a `KeyError` or `TypeError`."""
    figures = {name: values[name] for name in ("statistic", "df", "p_value")}
    figures |= {name: values[name] for name in ("design_effect", "frequency") if name in values}
    if not all(type(figure) in (int, float) and figure >= 0 for figure in figures.values()):
        raise TypeError("the figures of a strength must be numbers from 0")
    parent, child = texts([values["parent"], values["child"]])
    return Strength(parent, child, **{name: float(figure) for name, figure in figures.items()})
