"""Several structures as one: how often each link occurred among them, and among samples drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.errors import InputError, Refusal
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Cached, Tally, check_source
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.networks.graph import Link, Parents, descendants, links
from masquerade.learn.networks.network_plot import network_plot
from masquerade.learn.networks.structure_search import searched

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AveragedNetwork(Printed):
    """How often each link occurred among several structures, and the structure of the frequent ones.

    >>> linked, alone = {"exams": (), "pills": ("exams",)}, {"exams": (), "pills": ()}
    >>> found = mq.learn.averaged([linked, linked, alone])
    >>> round(found.frequency["exams", "pills"], 2), found.structures
    (0.67, 3)
    """

    structure: dict[str, tuple[str, ...]]
    frequency: dict[Link, float]
    structures: int

    @printable
    def summary(self) -> str:
        """Return the links by frequency; those in the averaged structure are marked."""
        kept = set(links(self.structure))
        ordered = sorted(self.frequency.items(), key=lambda item: -item[1])
        rows = [f"{'*' if link in kept else ' '} {link[0]} → {link[1]}  {f:.3f}" for link, f in ordered]
        return "\n".join([f"averaged over {self.structures} structures (* = kept)", *rows])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the averaged structure; the wider a link, the more often it occurred."""
        note = f"width: how often a link occurred among {self.structures} structures"
        return network_plot(self.structure, None, ax, weights=self.frequency, note=note)


def averaged(structures: Sequence[Parents], threshold: float = 0.5) -> AveragedNetwork:
    """Return inclusion frequencies of links over several structures, and their averaged structure.

    A pair of nodes is linked if it is linked in more than `threshold` of the structures, in its more
    frequent direction (a tie: from the earlier node); a link that would close a cycle with more frequent
    ones is turned, which cannot close another.
    Reference: Friedman, Goldszmidt & Wyner (1999); Scutari & Nagarajan (2013).
    Error: frequencies over resamples say how stable a link is; they are not probabilities of the link.

    >>> linked, alone = {"exams": (), "pills": ("exams",)}, {"exams": (), "pills": ()}
    >>> mq.learn.averaged([linked, linked, alone]).structure
    {'exams': (), 'pills': ('exams',)}
    """
    if not structures:
        raise InputError("averaged() needs at least one structure.")
    if not 0 <= threshold < 1:
        raise InputError(f"The threshold must be in [0, 1). Got {threshold} instead.")
    nodes = list(structures[0])
    if any(set(structure) != set(nodes) for structure in structures):
        raise InputError("averaged() needs structures over the same nodes.")
    counts = {link: 0 for structure in structures for link in links(structure)}
    for structure in structures:
        for link in links(structure):
            counts[link] += 1
    place = {name: i for i, name in enumerate(nodes)}
    pairs = {tuple(sorted(link, key=place.__getitem__)) for link in counts}
    wanted = sorted(
        (-(counts.get((a, b), 0) + counts.get((b, a), 0)), place[a], place[b], a, b) for a, b in pairs
    )
    kept: dict[str, tuple[str, ...]] = dict.fromkeys(nodes, ())
    for together, _, _, a, b in wanted:
        if -together <= threshold * len(structures):
            continue
        likelier = ((a, b), (b, a)) if counts.get((a, b), 0) >= counts.get((b, a), 0) else ((b, a), (a, b))
        parent, child = next(link for link in likelier if link[0] not in descendants(kept, link[1]))
        kept[child] = (*kept[child], parent)
    ordered = {name: tuple(sorted(parents, key=place.__getitem__)) for name, parents in kept.items()}
    frequency = {link: count / len(structures) for link, count in sorted(counts.items())}
    return AveragedNetwork(ordered, frequency, len(structures))


class Redrawn:
    """A source whose reports are drawn anew, with replacement, from those behind the tables of another one.

    Every table is drawn by itself, always in the same way: no record is looked at, and tables that overlap
    agree in what they come from, not in what was drawn.
    """

    def __init__(self, source: Tally, seed: int) -> None:
        self.source, self.seed = source, seed
        self.schema, self.guarantee = source.schema, source.guarantee

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of the source."""
        return self.source.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer with tables drawn anew."""
        tables = self.source.answer(queries)
        return [self._drawn(query, table) for query, table in zip(queries, tables, strict=True)]

    def _drawn(self, query: Query, table: CountTable) -> CountTable:
        generator = np.random.default_rng([self.seed, int(query.id[:16], 16)])
        evidence = table.evidence.drawn(generator)
        if evidence is None:
            raise InputError(f"The counts of {', '.join(table.names)} do not tell what was reported.")
        return CountTable(table.axes, evidence.values, table.n, evidence)


def resampled_network(
    source: Tally,
    order: Sequence[str] | None = None,
    *,
    samples: int = 100,
    threshold: float = 0.5,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> AveragedNetwork:
    """Return how often each link is found in structures learnt from reports that were drawn anew.

    Every sample is learnt as `structure` learns, with its `options`; `progress` is told how many of how many
    are done. The source is asked each question once.
    Reference: Friedman, Goldszmidt & Wyner (1999); Efron (1979).
    Cost: as many searches as samples.
    Error: a frequency says how stable a link is under chance, and is not the probability of the link. Tables
    are drawn one by one from the evidence behind them (`Redrawn`), which leaves out what chance does to
    several of them at once.

    >>> source = mq.tally(mq.data.students()[["pills", "sleep"]])
    >>> found = mq.learn.resampled_network(source, ["pills", "sleep"], samples=5)
    >>> found.structure, found.structures
    ({'pills': (), 'sleep': ('pills',)}, 5)
    """
    check_source(source)
    if samples < 1 or int(samples) != samples:
        raise InputError(f"'samples' must be a whole number from 1. Got {samples} instead.")
    asked = Cached(source)
    found = []
    for sample in range(int(samples)):
        found.append(searched(Cached(Redrawn(asked, seed + sample)), order, **options))
        if progress is not None:
            progress(sample + 1, int(samples))
    return averaged(found, threshold)
