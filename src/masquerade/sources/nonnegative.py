"""Tables without negative counts: the visible second step after unbiased estimation."""

from __future__ import annotations

from masquerade.core.axes import Floats
from masquerade.core.covariance import reduce_cells
from masquerade.core.table import Projection
from masquerade.estimate.em import maximum_likelihood
from masquerade.estimate.simplex import clip_and_rescale, onto_simplex
from masquerade.estimate.symmetric import is_symmetric, symmetric_mle
from masquerade.sources.query_plan import Reading


def projected(values: Floats, method: Projection) -> Floats:
    """Return a table projected by geometry alone, its total kept."""
    project = onto_simplex if method == "simplex" else clip_and_rescale
    return project(values, float(values.sum()))


def most_likely(plan: Reading, observed: Floats) -> Floats:
    """Return the most likely counts behind an observed table, over the cells asked for.

    The likelihood belongs to whole groups: variables nobody asked for are summed out afterwards.
    """
    channels = [axis.matrix for axis in plan.axes]
    change = is_symmetric(channels[0]) if len(channels) == 1 and channels[0] is not None else None
    if change is not None:
        counts = symmetric_mle(observed, change)
    else:
        counts = maximum_likelihood(observed, channels).counts
    place: dict[int, int] = {}
    offset = 0
    for axis in plan.axes:
        place |= {at: offset + i for at, i in zip(axis.map.axes, axis.asked, strict=True)}
        offset += len(axis.truth_sizes)
    cells = counts.reshape([size for axis in plan.axes for size in axis.truth_sizes])
    return reduce_cells(cells, [place[at] for at in range(len(place))], {})
