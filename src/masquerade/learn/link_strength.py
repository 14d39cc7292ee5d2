"""A learnt structure, and how strongly counts speak for each of its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.learn._information_gain import chi_square_tail
from masquerade.learn.graph import Link, PartialGraph, ancestral_order, cpdag, links, to_networkx
from masquerade.learn.model_file import check_header, entry, header
from masquerade.learn.network_plot import network_plot
from masquerade.learn.scores import LIKELIHOOD, Candidates, Uncorrected, candidates, excess_and_freedom, gains

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST_DENSE = 128
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Strength:
    """The test of one link, given the child's other parents.

    `statistic` is G², twice the log-likelihood that the link adds; `design_effect` how much the noise
    inflates it; `df` its degrees of freedom (unseen configurations and categories left out, and further
    reduced where noise is uneven). `p_value` is the chance of so large a statistic if the link were not
    there and had been chosen beforehand. A search picks the largest of many statistics, so this is neither
    the probability of the link nor an honest significance level: it ranks links and exposes doubtful ones.
    """

    parent: str
    child: str
    statistic: float
    design_effect: float
    df: float
    p_value: float

    def figures(self) -> dict[str, float]:
        """Return the figures by name."""
        return {name: getattr(self, name) for name in ("statistic", "design_effect", "df", "p_value")}


def link_strengths(source: Tally, structure: Mapping[str, Sequence[str]]) -> tuple[Strength, ...]:
    """Return the strength of every link of a structure.

    Formula: G²/δ̄ against χ² with df degrees of freedom, δ̄ as in `design_effects`; for tables of up to 128
    cells with Satterthwaite's correction: with a² the squared coefficient of variation of the eigenvalues of
    the inflation matrix, G²/(δ̄(1 + a²)) against χ² with df/(1 + a²).
    Reference: Rao & Scott (1981, 1984).
    Cost: one batch of one question for each node with parents, one covariance for each link.
    Error: the χ² law is that of large samples; clipped negative counts make p-values too large.
    """
    asked = {child: tuple(parents) for child, parents in structure.items() if parents}
    names = {child: in_order(source.schema, (*parents, child)) for child, parents in asked.items()}
    tables = source.answer([Query(by=names[child]) for child in asked])
    return tuple(
        strength(table, names[child], parent, child)
        for (child, parents), table in zip(asked.items(), tables, strict=True)
        for parent in in_order(source.schema, parents)
    )


def in_order(schema: Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return names in the order of the schema."""
    return tuple(name for name in schema if name in names)


def strength(table: CountTable, names: Sequence[str], parent: str, child: str) -> Strength:
    """Return the strength of parent → child from the table of the child and all its parents."""
    given = [axis for axis, name in enumerate(names) if name not in (parent, child)]
    link = candidates([table], [(*given, names.index(parent), names.index(child))])
    statistic = max(2 * float(gains(link, LIKELIHOOD, np.ones(1), Uncorrected())[0]), 0.0)
    excess, freedom = excess_and_freedom(link)
    df = float(freedom.sum())
    if df == 0:
        return Strength(parent, child, statistic, 1.0, 0.0, 1.0)
    effect = max(1.0, 1.0 + float(excess.sum()) / df)
    noisy = effect > 1 + ROUNDING
    spread = unevenness(link, df) if noisy and table.values.size <= LARGEST_DENSE else 1.0
    p_value = chi_square_tail(statistic / (effect * spread), df / spread)
    return Strength(parent, child, statistic, effect, df / spread, p_value)


def unevenness(link: Candidates, df: float) -> float:
    """Return 1 + a², a the coefficient of variation of the inflation matrix' eigenvalues.

    The matrix is the covariance of the residuals, each divided by the root of its expected count. Residuals
    of different configurations are correlated if the parents were disguised: only the dense covariance tells.
    """
    table, order = link.tables[0], link.places[0]
    cells = table.values.size
    place = np.arange(cells).reshape(table.values.shape).transpose(order).ravel()
    covariance = table.covariance.dense(cells)[np.ix_(place, place)] * (table.n / table.total) ** 2
    estimates = link.estimates.reshape(cells)
    excess = covariance - np.diag(estimates) + np.outer(estimates, estimates) / link.n
    maps, expected = residual_maps(link.counts[0])
    inflation = maps @ (excess + np.diag(expected)) @ maps.T
    mean = float(np.trace(inflation)) / df
    return max(1.0, float(np.sum(inflation**2)) / (df * mean**2)) if mean > 0 else 1.0


def residual_maps(counts: Floats) -> tuple[Floats, Floats]:
    """Return the map from counts to residuals over √expected counts, and the expected counts themselves."""
    configurations, values, categories = counts.shape
    cells = counts.size
    maps, expected = np.zeros((cells, cells)), np.zeros((configurations, values * categories))
    for j, table in enumerate(counts):
        total = table.sum()
        if total == 0:
            continue
        shares = [table.sum(axis=axis) / total for axis in (1, 0)]
        residual_z, residual_x = (np.eye(len(share)) - share[:, None] for share in shares)
        expected[j] = total * np.outer(*shares).ravel()
        root = np.sqrt(np.where(expected[j] > 0, expected[j], np.inf))
        here = slice(j * values * categories, (j + 1) * values * categories)
        both = residual_z[:, None, :, None] * residual_x[None, :, None, :]
        maps[here, here] = both.reshape(values * categories, -1) / root[:, None]
    return maps, expected.ravel()


@dataclass(frozen=True, slots=True, eq=False)
class LearnedStructure:
    """A structure, the strength of its links, and the rule that found it."""

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

    def to_networkx(self) -> Any:
        """Return a networkx.DiGraph; links carry the figures of their `Strength` as attributes."""
        graph = to_networkx(self.structure)
        for item in self.strengths:
            graph.edges[item.parent, item.child].update(item.figures())
        return graph

    def summary(self) -> str:
        """Return the links with their strengths, weakest last."""
        how = "hill climbing" if self.order is None else "K2"
        rule = " ".join(str(value) for value in self.correction.values())
        title = f"{len(self.structure)} nodes, {len(self.links)} links by {how}, score {self.score}, {rule}"
        width = max([4, *(len(f"{a} → {b}") for a, b in self.links)])
        head = f"{'link':<{width}}{'G²':>12}{'df':>8}{'design effect':>15}{'p-value':>12}"
        rows = [
            f"{f'{s.parent} → {s.child}':<{width}}{s.statistic:>12.1f}{s.df:>8.1f}{s.design_effect:>15.2f}"
            f"{s.p_value:>12.2g}"
            for s in sorted(self.strengths, key=lambda s: s.p_value)
        ]
        note = "p-values are those of links chosen beforehand: they rank links, they are no probabilities"
        return "\n".join([title, head, *rows, note])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the structure, parents above children; the wider a link, the more the counts speak for it."""
        found = {(s.parent, s.child): s.statistic / s.design_effect for s in self.strengths}
        most = max(found.values(), default=1.0) or 1.0
        weights = {link: (value / most) ** 0.5 for link, value in found.items()}
        note = "width: root of G² over its design effect" if found else ""
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
        if sorted((s.parent, s.child) for s in strengths) != sorted(loaded.links):
            raise InputError("the structure is damaged: its strengths are not those of its links.")
        return loaded


def texts(values: object) -> tuple[str, ...]:
    """Return a list of texts as a tuple; anything else is a `TypeError`."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("names must be lists of texts")
    return tuple(values)


def strength_of(values: Mapping[str, Any]) -> Strength:
    """Return the strength that plain values describe; anything else is a `KeyError` or `TypeError`."""
    figures = [values[name] for name in ("statistic", "design_effect", "df", "p_value")]
    if not all(type(figure) in (int, float) and figure >= 0 for figure in figures):
        raise TypeError("the figures of a strength must be numbers from 0")
    parent, child = texts([values["parent"], values["child"]])
    return Strength(parent, child, *map(float, figures))
