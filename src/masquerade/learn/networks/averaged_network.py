"""Averages of structures: how often each link occurs in several structures, or in resamples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.answered_tally import MissingAnswers, missing_answers_of, people_who_answered
from masquerade.core.errors import InputError, Refusal
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Cached, Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable
from masquerade.learn.model_file import missing_lines
from masquerade.learn.networks.graph import Link, Parents, descendants, links
from masquerade.learn.networks.network_plot import network_plot
from masquerade.learn.networks.structure_search import search_structure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AveragedNetwork(Printed):
    """Frequencies of links among several structures, and the structure of the frequent links.

    Attributes
    ----------
    structure : dict of str to tuple of str
        Parents of every node in the averaged structure.
    frequency : dict of (str, str) to float
        Share of the structures with each link (parent, child).
    structures : int
        Number of structures.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.

    Examples
    --------
    >>> linked, alone = {"exams": (), "pills": ("exams",)}, {"exams": (), "pills": ()}
    >>> found = mq.learn.average_structures([linked, linked, alone])
    >>> round(found.frequency["exams", "pills"], 2), found.structures
    (0.67, 3)
    """

    structure: dict[str, tuple[str, ...]]
    frequency: dict[Link, float]
    structures: int
    missing: MissingAnswers | None = None

    @printable
    def summary(self) -> str:
        """Return the links by frequency; a star marks links of the averaged structure."""
        kept = set(links(self.structure))
        ordered = sorted(self.frequency.items(), key=lambda item: -item[1])
        rows = [f"{'*' if link in kept else ' '} {link[0]} → {link[1]}  {f:.3f}" for link, f in ordered]
        title = f"averaged over {self.structures} structures (* = kept)"
        return "\n".join([title, *rows, *missing_lines(self.missing)])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the averaged structure; the width and the label of a link show its frequency."""
        note = f"width and percentage: how often a link occurred among {self.structures} structures"
        labels = {link: f"{share:.0%}" for link, share in self.frequency.items()}
        return network_plot(self.structure, None, ax, weights=self.frequency, labels=labels, note=note)


def average_structures(structures: Sequence[Parents], threshold: float = 0.5) -> AveragedNetwork:
    """Average several structures: the frequency of each link, and the structure of frequent links.

    A pair of nodes is linked if it is linked in more than `threshold` of the structures, in its more frequent
    direction (ties: from the earlier node). A link that would close a cycle with more frequent links is
    reversed, which cannot close another cycle.

    Parameters
    ----------
    structures : sequence of mapping
        Parents of every node, over the same nodes.
    threshold : float, default 0.5
        Share of the structures, from 0 to below 1.

    Returns
    -------
    AveragedNetwork
        Frequencies and the averaged structure.

    Raises
    ------
    InputError
        If there is no structure, or the nodes differ.

    Notes
    -----
    Reference: Friedman, Goldszmidt & Wyner (1999); Scutari & Nagarajan (2013).
    Error: frequencies over resamples show how stable a link is; they are not probabilities of the link.

    Examples
    --------
    >>> linked, alone = {"exams": (), "pills": ("exams",)}, {"exams": (), "pills": ()}
    >>> mq.learn.average_structures([linked, linked, alone]).structure
    {'exams': (), 'pills': ('exams',)}
    """
    if not structures:
        raise InputError("average_structures() needs at least one structure.")
    if not 0 <= threshold < 1:
        raise InputError(f"The threshold must be in [0, 1). Got {threshold} instead.")
    nodes = list(structures[0])
    if any(set(structure) != set(nodes) for structure in structures):
        raise InputError("average_structures() needs structures over the same nodes.")
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


class ResampledTally:
    """A source whose reports are drawn, with replacement, from the reports of another source's tables.

    Every table is drawn separately and reproducibly, without access to records. Overlapping tables have the
    same underlying reports, but different draws.
    """

    def __init__(self, source: Tally, seed: int) -> None:
        self.source, self.seed = source, seed
        self.schema, self.guarantee = source.schema, source.guarantee

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of the source."""
        return self.source.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Return resampled tables."""
        tables = self.source.answer(queries)
        return [self._draw_table(query, table) for query, table in zip(queries, tables, strict=True)]

    def _draw_table(self, query: Query, table: CountTable) -> CountTable:
        generator = np.random.default_rng([self.seed, int(query.id[:16], 16)])
        evidence = table.evidence.resample(generator)
        if evidence is None:
            raise InputError(f"The counts of {', '.join(table.names)} have no reports to resample.")
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
    """Estimate how often each link is found in structures learned from resampled reports.

    Parameters
    ----------
    source : Tally
        Source of counts. Each query is made once.
    order : sequence of str, optional
        Variables, parents first, as in `structure`.
    samples : int, default 100
        Number of resamples.
    threshold : float, default 0.5
        Share of the samples above which a pair is linked.
    seed : int, default 0
        Seed of the resamples.
    progress : callable, optional
        Takes the number of samples done and the number of samples.
    **options : object
        Options of `structure`.

    Returns
    -------
    AveragedNetwork
        Frequencies and the averaged structure.

    Raises
    ------
    InputError
        If `samples` is less than 1, or the source's counts do not contain reports.

    Notes
    -----
    Reference: Friedman, Goldszmidt & Wyner (1999); Efron (1979).
    Cost: one search per sample.
    Error: a frequency shows how stable a link is under chance; it is not the probability of the link. Tables
    are drawn separately (`ResampledTally`), which ignores the dependence between tables.

    Examples
    --------
    >>> source = mq.tally(mq.data.students()[["pills", "sleep"]])
    >>> found = mq.learn.resampled_network(source, ["pills", "sleep"], samples=5)
    >>> found.structure, found.structures
    ({'pills': (), 'sleep': ('pills',)}, 5)
    """
    source = people_who_answered(source, str(options.pop("missing", "answered")))
    if samples < 1 or int(samples) != samples:
        raise InputError(f"'samples' must be a whole number, at least 1. Got {samples} instead.")
    asked = Cached(source)
    found = []
    for sample in range(int(samples)):
        found.append(search_structure(Cached(ResampledTally(asked, seed + sample)), order, **options))
        if progress is not None:
            progress(sample + 1, int(samples))
    return replace(average_structures(found, threshold), missing=missing_answers_of(source))
