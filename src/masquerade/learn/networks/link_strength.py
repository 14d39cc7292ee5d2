"""A learned structure, and the evidence for each of its links."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.answered_tally import MissingAnswers
from masquerade.core.errors import InputError
from masquerade.core.links.deviance_test import link_tests
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.tally import Tally, check_source
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.model_file import (
    ROUNDING,
    check_header,
    entry,
    header,
    missing_lines,
    missing_of,
    missing_values,
)
from masquerade.learn.networks.copies import describe_copies, find_copies
from masquerade.learn.networks.graph import Link, PartialGraph, ancestral_order, cpdag, links, to_networkx
from masquerade.learn.networks.network_plot import network_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = sys.float_info.max
NO_LINK = (
    "no link raised the score, which is not a test: `masquerade stats associations` tests every pair, and "
    "`masquerade enough` lists the pairs that these records can show"
)


@dataclass(frozen=True, slots=True)
class Strength:
    """The test of one link, given the child's other parents.

    `statistic`, `df` and `p_value` are Pearson's test of `link_tests`: the probability of reports at
    least this far from independence if the link did not exist and had been chosen in advance. If the p-value
    is simulated, `samples` contains the number of simulated samples at least as far from independence, and
    the number of all samples. `deviance` measures the strength: twice the increase of the log-likelihood of
    the reports due to the link. A search selects the largest of many statistics, so the p-value is neither
    the probability of the link nor a valid significance level: it ranks links and shows doubtful links.
    `frequency` is the share of resamples in which the link was found, None without resampling. Files of
    earlier versions contain the deviance, or G² of estimated counts and its `design_effect`, as `statistic`.
    """

    parent: str
    child: str
    statistic: float
    df: float
    p_value: float
    design_effect: float | None = None
    frequency: float | None = None
    deviance: float | None = None
    samples: tuple[int, int] | None = None

    @property
    def strength(self) -> float:
        """Return the strength of the link: its deviance, or its statistic in files of earlier versions."""
        return self.statistic / (self.design_effect or 1.0) if self.deviance is None else self.deviance

    def figures(self) -> dict[str, Any]:
        """Return the numbers by name."""
        older = {} if self.design_effect is None else {"design_effect": self.design_effect}
        drawn: dict[str, Any] = {} if self.frequency is None else {"frequency": self.frequency}
        drawn |= {} if self.deviance is None else {"deviance": self.deviance}
        drawn |= {} if self.samples is None else {"samples": list(self.samples)}
        return {"statistic": self.statistic, **older, "df": self.df, "p_value": self.p_value, **drawn}


def link_strengths(source: Tally, structure: Mapping[str, Sequence[str]]) -> tuple[Strength, ...]:
    """Return the strength of every link of a structure, by `link_tests` given the other parents.

    Cost: one batch with one query per node with parents, then the fits.
    """
    return judge_links(source, structure)[0]


def judge_links(
    source: Tally, structure: Mapping[str, Sequence[str]]
) -> tuple[tuple[Strength, ...], tuple[tuple[str, ...], ...]]:
    """Return the strength of every link, and groups of variables that the reports cannot distinguish."""
    check_source(source)
    asked = {child: tuple(parents) for child, parents in structure.items() if parents}
    names = {child: schema_order(source.schema, (*parents, child)) for child, parents in asked.items()}
    tables = dict(zip(asked, source.answer([Query(by=names[child]) for child in asked]), strict=True))
    links = [(parent, child) for child in asked for parent in schema_order(source.schema, asked[child])]
    places = []
    for parent, child in links:
        given = [axis for axis, name in enumerate(names[child]) if name not in (parent, child)]
        places.append((*given, names[child].index(parent), names[child].index(child)))
    tests = link_tests([tables[child] for _, child in links], places, partial(np.random.default_rng, 0))
    strengths = tuple(
        Strength(
            parent,
            child,
            test.statistic,
            test.df,
            test.p_value,
            deviance=test.deviance,
            samples=test.samples,
        )
        for (parent, child), test in zip(links, tests, strict=True)
    )
    return strengths, find_copies(source.schema, links, tables)


def schema_order(schema: Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return names in the order of the schema."""
    return tuple(name for name in schema if name in names)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LearnedStructure(Printed):
    """A structure, the strength of its links, and the rule that found it.

    Attributes
    ----------
    structure : dict of str to tuple of str
        Parents of every node.
    strengths : tuple of Strength
        Tests of the links. Empty for a structure found by MPC, where no count is opened.
    score : str
        Name of the score.
    correction : dict
        The rule that accounts for noise.
    order : tuple of str or None
        Order of the variables; None for hill climbing.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.
    bic : tuple of float or None
        BIC of all reports under the structure that the search found, and under this one; None if it was not
        polished.
    copies : tuple of tuple of str
        Groups of linked variables that the reports cannot distinguish: see `copies.find_copies`.

    Examples
    --------
    >>> found = mq.learn.structure(mq.tally(mq.data.students()), order=["exams", "pills", "sleep", "year"])
    >>> print(found.summary())
    4 nodes, 3 links by K2, score bic, likelihood
    link                   X²      df     p-value
    pills → sleep        77.8     1.0     1.2e-18
    exams → pills        29.3     1.0     6.2e-08
    exams → year         16.0     2.0     0.00034
    p-values are for links chosen in advance: they only rank links, and are not probabilities
    """

    structure: dict[str, tuple[str, ...]]
    strengths: tuple[Strength, ...]
    score: str
    correction: dict[str, object]
    order: tuple[str, ...] | None = None
    missing: MissingAnswers | None = None
    bic: tuple[float, float] | None = None
    copies: tuple[tuple[str, ...], ...] = ()

    @property
    def links(self) -> list[Link]:
        """Return the links as (parent, child)."""
        return links(self.structure)

    def cpdag(self) -> PartialGraph:
        """Return the CPDAG: the directions that data can determine."""
        return cpdag(self.structure)

    def with_frequencies(self, frequency: Mapping[Link, float]) -> LearnedStructure:
        """Return the structure with the frequency of each link in resamples (`resampled_network`)."""
        updated = [replace(s, frequency=frequency.get((s.parent, s.child), 0.0)) for s in self.strengths]
        return replace(self, strengths=tuple(updated))

    def to_networkx(self) -> Any:
        """Return a networkx.DiGraph; the numbers of `Strength` are attributes of the links."""
        graph = to_networkx(self.structure)
        for item in self.strengths:
            graph.edges[item.parent, item.child].update(item.figures())
        return graph

    @printable
    def summary(self) -> str:
        """Return the links with their strengths, the weakest last."""
        how = "hill climbing" if self.order is None else "K2"
        rule = " ".join(str(value) for value in self.correction.values())
        title = f"{len(self.structure)} nodes, {len(self.links)} links by {how}, score {self.score}, {rule}"
        if self.bic is not None:
            before, after = self.bic
            title += f"\npolished by the joint likelihood: BIC of the reports {before:,.0f} → {after:,.0f}"
        width = max([4, *(len(f"{a} → {b}") for a, b in self.links)])
        older = any(s.design_effect is not None for s in self.strengths)
        earlier = any(s.deviance is None for s in self.strengths)  # a file of an earlier version
        columns = ("G²", "design effect") if older else ("deviance" if earlier else "X²", "")
        resampled = any(s.frequency is not None for s in self.strengths)
        head = f"{'link':<{width}}{columns[0]:>12}{'df':>8}{columns[1]:>{15 * older}}{'p-value':>12}"
        head += f"{'found in':>11}" * resampled
        rows = [
            f"{f'{s.parent} → {s.child}':<{width}}{s.statistic:>12.1f}{s.df:>8.1f}"
            f"{f'{s.design_effect or 1:>15.2f}' if older else ''}{s.p_value:>12.2g}"
            f"{'' if s.frequency is None else f'{s.frequency:>11.0%}'}"
            for s in sorted(self.strengths, key=lambda s: (s.p_value, -s.strength))
        ]
        if not self.strengths:
            lines = [f"{a} → {b}" for a, b in self.links]
            return "\n".join([title, *(lines or [NO_LINK]), *self._last_notes()])
        notes = ["p-values are for links chosen in advance: they only rank links, and are not probabilities"]
        notes += [
            f"p-value of {s.parent} → {s.child}: X² is at least as large in "
            f"{s.samples[0]} of {s.samples[1]} samples"
            for s in self.strengths
            if s.samples is not None
        ]
        if resampled:
            notes.append("found in: share of resamples in which the link was also found")
        return "\n".join([title, head, *rows, *notes, *self._last_notes()])

    def _last_notes(self) -> list[str]:
        """Return the notes on directions, on copies and on missing answers."""
        return [*self._direction_notes(), *describe_copies(self.copies), *missing_lines(self.missing)]

    def _direction_notes(self) -> list[str]:
        """Return a note on the directions that the counts do not determine."""
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
        """Draw the structure, parents above children; the width of a link shows its deviance.

        If the structure has frequencies of resamples (`with_frequencies`), each link has its percentage.
        """
        deviances = {(s.parent, s.child): s.strength for s in self.strengths}
        most = max(deviances.values(), default=1.0) or 1.0
        weights = {link: (value / most) ** 0.5 for link, value in deviances.items()}
        note = "width: root of the deviance" if deviances else ""
        shares = {(s.parent, s.child): s.frequency for s in self.strengths if s.frequency is not None}
        labels = {link: f"{share:.0%}" for link, share in shares.items()}
        note += ", percentage: resamples with the link" if labels else ""
        return network_plot(self.structure, None, ax, weights=weights, labels=labels, note=note)

    def to_dict(self) -> dict[str, object]:
        """Return the structure as plain JSON values."""
        return {
            **header("structure"),
            "parents": {name: list(parents) for name, parents in self.structure.items()},
            "strengths": [{"parent": s.parent, "child": s.child, **s.figures()} for s in self.strengths],
            "score": self.score,
            "correction": dict(self.correction),
            "order": None if self.order is None else list(self.order),
            **missing_values(self.missing),
            **({} if self.bic is None else {"bic": list(self.bic)}),
            **({"copies": [list(group) for group in self.copies]} if self.copies else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LearnedStructure:
        """Return the structure that `to_dict` described; raise InputError if the values are not valid."""
        check_header(data, "structure")
        order = entry(data, "order", list, NoneType)
        score, rule = entry(data, "score", str), dict(entry(data, "correction", dict))
        parents = entry(data, "parents", dict)
        try:
            found = {name: texts(named) for name, named in parents.items()}
            strengths = tuple(strength_of(item) for item in entry(data, "strengths", list))
            ordered = None if order is None else texts(order)
            bic = _both(data["bic"]) if "bic" in data else None
            copies = tuple(texts(group) for group in entry(data, "copies", list)) if "copies" in data else ()
            loaded = cls(found, strengths, score, rule, ordered, missing_of(data), bic, copies)
        except (KeyError, TypeError) as error:
            raise InputError(f"the structure is damaged: {error}.") from None
        ancestral_order(found)
        if not {name for group in copies for name in group} <= set(found):
            raise InputError("the structure is damaged: its copies are not among its nodes.")
        if strengths and sorted((s.parent, s.child) for s in strengths) != sorted(loaded.links):
            raise InputError("the structure is damaged: its strengths are not those of its links.")
        return loaded


def _both(values: object) -> tuple[float, float]:
    """Return two finite numbers; raise TypeError for anything else."""
    if not isinstance(values, list) or [type(value) for value in values] != [float, float]:
        raise TypeError("'bic' must be two numbers")
    before, after = values
    if not -LARGEST <= before <= after <= LARGEST:
        raise TypeError("'bic' must be two finite numbers in ascending order")
    return before, after


def texts(values: object) -> tuple[str, ...]:
    """Return a list of texts as a tuple; raise TypeError for anything else."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("names must be lists of texts")
    return tuple(values)


def strength_of(values: Mapping[str, Any]) -> Strength:
    """Return a strength from plain values; raise KeyError or TypeError if they are not valid."""
    figures = {name: values[name] for name in ("statistic", "df", "p_value")}
    optional = ("design_effect", "frequency", "deviance")
    figures |= {name: values[name] for name in optional if name in values}
    if not all(type(figure) in (int, float) and 0 <= figure <= LARGEST for figure in figures.values()):
        raise TypeError("the figures of a strength must be finite numbers of 0 or more")
    if max(figures["p_value"], figures.get("frequency", 0)) > 1 + ROUNDING:
        raise TypeError("'p_value' and 'frequency' must lie between 0 and 1")
    parent, child = texts([values["parent"], values["child"]])
    samples = values.get("samples")
    if samples is not None:
        if not isinstance(samples, list) or [type(number) for number in samples] != [int, int]:
            raise TypeError("'samples' must be two whole numbers")
        if not 0 <= samples[0] <= samples[1]:
            raise TypeError("'samples' must be two whole numbers in ascending order")
        samples = (samples[0], samples[1])
    numbers = {name: float(figure) for name, figure in figures.items()}
    return Strength(parent, child, **numbers, samples=samples)
