"""Batches: the numbers of an open survey change only by `k` reports or more.

A *cell* is a group of reports defined by undisguised facts: all reports of a version, of one mode, with one
category of a clear variable, or counted by a quota. All numbers shown at one time are computed from one set
of published reports, so that their sums and differences reveal nothing more. The next set is the largest one
for which each cell either stays the same or gains and loses at least `k` reports in total. Valid sets are
closed under union, so removing the reports of cells with too few changes, until none is left, finds the
largest. A withdrawn report counts until a batch removes it. Equal reports are exchangeable, so counts of
equal reports suffice.

If rows are exported while the survey is open, cells are the combinations of version, mode and all clear
variables (`joint`), because a row shows all of them together. Every other cell is a union of these.

Published sets are kept in memory only: stored next to all reports, they would show which reports came last.
After a restart it is therefore unknown what was shown before, and only reports that arrived since the start
are certain to be new. Versions (or combinations) that had reports at the start are *sealed*: no number
depends on them until `k` reports have arrived in them. Then all their reports count, and a table is shown if
each of its cells has had `k` arrivals or has never had a report. This holds even if the store was lost or
restored.

Batches hide who answered and when; the channel's γ hides the answer. An attacker who can submit k - 1 reports
learns the k-th report, which is disguised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey.collector.quotas import Quota

LEAST_BATCH: Final = 10
Content = tuple[int, tuple[int, ...]]  # mode and codes
Counts = Mapping[str, Mapping[Content, int]]  # number of equal reports, by policy
Dimension = tuple[str | int, ...]
Cell = tuple[Dimension, int]  # a dimension and one of its categories
Block = tuple[str | int, ...]  # reports that are published independently of others
TOTAL: Final[Cell] = (("total",), 0)
MODES_DIMENSION: Final[Dimension] = ("mode",)


def check_batch(k: int) -> int:
    """Return the size of a batch; raise InputError if it is below 10.

    >>> check_batch(12)
    12
    """
    if k < LEAST_BATCH:
        raise InputError(
            f"A batch must have at least {LEAST_BATCH} reports: smaller steps show who answered, and when. "
            f"Got {k}."
        )
    return k


def variable_dimension(name: str) -> Dimension:
    """Return the dimension of a clear variable."""
    return ("variable", name)


def quota_dimension(index: int) -> Dimension:
    """Return the dimension of a quota: reports that it counts, and all others."""
    return ("quota", index)


def clear_variables(policy: Policy) -> list[str]:
    """Return the variables that reports contain undisguised."""
    return [name for name in policy.schema if name not in policy.disguised and name in policy.observed]


class CellPlan:
    """Blocks and cells of reports, for every version of a survey.

    Parameters
    ----------
    versions : mapping of str to Policy
        Policies by id.
    modes : int
        Number of modes.
    quotas : sequence of Quota
        Quotas whose counts are shown.
    joint : bool
        True if rows are shown: cells are then combinations of all clear variables.
    """

    def __init__(
        self, versions: Mapping[str, Policy], modes: int, quotas: Sequence[Quota] = (), *, joint: bool = False
    ) -> None:
        self._joint = joint
        self._clear: dict[str, list[tuple[Dimension, int]]] = {}
        self._counted: dict[str, list[tuple[Dimension, int, int]]] = {}
        self._sizes: dict[str, dict[Dimension, int]] = {}
        for name, policy in versions.items():
            columns = [variable.name for variable in policy.observed.variables]
            clear = clear_variables(policy)
            self._clear[name] = [(variable_dimension(it), columns.index(it)) for it in clear]
            self._counted[name] = [
                (
                    quota_dimension(i),
                    columns.index(it.variable),
                    policy.observed[it.variable].code(it.category),
                )
                for i, it in enumerate(quotas)
                if it.variable in columns
                and not (joint and it.variable in clear)  # a quota on a clear variable counts entire blocks
                and it.category in policy.observed[it.variable].categories
            ]
            sizes = {dimension: 2 for dimension, _, _ in self._counted[name]}
            if not joint:
                sizes |= {variable_dimension(it): len(policy.observed[it]) for it in clear}
                sizes[MODES_DIMENSION] = modes
            self._sizes[name] = sizes

    def block(self, policy: str, content: Content) -> Block:
        """Return the block of a report."""
        if not self._joint:
            return (policy,)
        mode, codes = content
        return (policy, mode, *(codes[at] for _, at in self._clear[policy]))

    def cells(self, policy: str, content: Content) -> list[Cell]:
        """Return the cells of a report within its block."""
        mode, codes = content
        cells = [TOTAL, *((name, int(codes[at] == code)) for name, at, code in self._counted[policy])]
        if not self._joint:
            cells += [(MODES_DIMENSION, mode), *((name, codes[at]) for name, at in self._clear[policy])]
        return cells

    def categories(self, policy: str, dimension: Dimension) -> int:
        """Return the number of cells of a dimension within a block, 0 if its cells are entire blocks."""
        return self._sizes[policy].get(dimension, 0)

    def __contains__(self, policy: str) -> bool:
        return policy in self._sizes


class ReportBatches:
    """The published reports of an open survey, kept in memory only.

    Parameters
    ----------
    plan : CellPlan
        Cells of reports.
    k : int
        Least number of reports by which a cell changes.
    start : mapping
        Reports that exist at the start. It is unknown which of them were published before.
    untouched : bool
        True if no report was ever withdrawn before the start.

    Raises
    ------
    InputError
        If `k` is below 10.
    """

    def __init__(self, plan: CellPlan, k: int, start: Counts, *, untouched: bool) -> None:
        self._plan, self._k, self._untouched = plan, check_batch(k), untouched
        self._base: dict[str, dict[Content, int]] = {name: dict(reports) for name, reports in start.items()}
        self._sealed: set[Block] = set()
        self._before: set[tuple[Block, Cell]] = set()
        for policy, reports in start.items():
            for content in reports:
                block = plan.block(policy, content)
                self._sealed.add(block)
                self._before.update((block, cell) for cell in plan.cells(policy, content))
        self._blocks: set[Block] = set()  # blocks with published reports
        self._sizes: Counter[tuple[Block, Cell]] = Counter()
        self._arrived: Counter[tuple[Block, Cell]] = Counter()  # published reports, new since the start
        self._known: set[tuple[Block, Cell]] = set()  # cells with `k` arrivals at some time

    def advance(self, counts: Counts) -> bool:
        """Publish the largest batch; return True if anything changed."""
        moved: dict[Block, dict[Content, int]] = {}
        for policy in {*counts, *self._base}:
            now, base = counts.get(policy, {}), self._base.get(policy, {})
            for content in {content for content, _ in now.items() ^ base.items()}:
                change = now.get(content, 0) - base.get(content, 0)
                moved.setdefault(self._plan.block(policy, content), {})[content] = change
        published = [self._publish(block, changes) for block, changes in moved.items()]
        return any(published)

    def _publish(self, block: Block, changes: Mapping[Content, int]) -> bool:
        policy = str(block[0])
        batch: Mapping[Content, int]
        if block in self._sealed:
            if sum(change for change in changes.values() if change > 0) < self._k:
                return False
            self._sealed.remove(block)
            batch = changes
            for content, number in self._base[policy].items():  # from now on the entire block counts
                if self._plan.block(policy, content) == block:
                    self._count(block, content, number, arrived=0)
        else:
            batch = self._largest(policy, changes)
        if not batch:
            return False
        self._blocks.add(block)
        base = self._base.setdefault(policy, {})
        for content, change in batch.items():
            base[content] = base.get(content, 0) + change
            if not base[content]:
                del base[content]
            self._count(block, content, change, arrived=change)
        touched = {(block, cell) for it in batch for cell in self._plan.cells(policy, it)}
        self._known |= {cell for cell in touched if self._arrived[cell] >= self._k}
        return True

    def _count(self, block: Block, content: Content, change: int, arrived: int) -> None:
        for cell in self._plan.cells(str(block[0]), content):
            self._sizes[block, cell] += change
            self._arrived[block, cell] += arrived

    def _largest(self, policy: str, changes: Mapping[Content, int]) -> dict[Content, int]:
        """Return the largest subset of `changes` in which no cell changes by 1 to k - 1 reports."""
        batch, cells = dict(changes), {it: self._plan.cells(policy, it) for it in changes}
        sizes: Counter[Cell] = Counter()
        for content, change in batch.items():
            for cell in cells[content]:
                sizes[cell] += abs(change)
        while few := {cell for cell, number in sizes.items() if 0 < number < self._k}:
            for content in [it for it in batch if not few.isdisjoint(cells[it])]:
                change = batch.pop(content)
                for cell in cells[content]:
                    sizes[cell] -= abs(change)
        return batch

    def published_counts(self) -> dict[str, dict[Content, int]]:
        """Return the published reports. All numbers shown are computed from these alone."""
        counts: dict[str, dict[Content, int]] = {}
        for policy, reports in self._base.items():
            if (policy,) in self._blocks:
                counts[policy] = dict(reports)
                continue
            rows = {it: n for it, n in reports.items() if self._plan.block(policy, it) in self._blocks}
            if rows:
                counts[policy] = rows
        return {policy: reports for policy, reports in counts.items() if reports}

    def shows(self, policy: str, dimension: Dimension, code: int | None = None) -> bool:
        """Return True if a dimension of a published version, or one of its cells, may be shown."""
        codes = [it for it in range(self._plan.categories(policy, dimension)) if code in (None, it)]
        blocks = [block for block in self._blocks if block[0] == policy]
        return all(self._is_known(block, (dimension, code)) for block in blocks for code in codes)

    def _is_known(self, block: Block, cell: Cell) -> bool:
        """Return True if a cell never had a report, or had `k` arrivals since the start."""
        never = self._untouched and (block, cell) not in self._before and not self._sizes[block, cell]
        return never or (block, cell) in self._known


class SteppedCount:
    """A count that is shown in steps of at least `k`; None until `k` events have occurred since the start.

    >>> begun = SteppedCount(10, start=3)
    >>> [begun.advance(number) for number in (4, 12, 13, 20, 23)]
    [None, None, 13, 13, 23]
    """

    def __init__(self, k: int, start: int) -> None:
        self._k, self._last = check_batch(k), start
        self.shown: int | None = None

    def advance(self, number: int) -> int | None:
        """Return the number to show after `number` events."""
        if abs(number - self._last) >= self._k:
            self._last = self.shown = number
        return self.shown


def total(counts: Iterable[Mapping[Content, int]]) -> int:
    """Return the number of reports."""
    return sum(sum(reports.values()) for reports in counts)
