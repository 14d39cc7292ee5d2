"""Several structures as one: how often each link occurred among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from masquerade.core.errors import InputError
from masquerade.learn.graph import Link, Parents, descendants, links
from masquerade.learn.network_plot import network_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False)
class AveragedNetwork:
    """How often each link occurred among several structures, and the structure of the frequent ones."""

    structure: dict[str, tuple[str, ...]]
    frequency: dict[Link, float]
    structures: int

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
