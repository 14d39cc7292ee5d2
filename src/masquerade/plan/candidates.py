"""The designs that a plan compares: variances in closed form, and their channels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels import optimum
from masquerade.channels.block_designs import best_design, best_subset_size, subset_second_moment
from masquerade.channels.policy.channel_models import KINDS
from masquerade.channels.privacy_level import gamma_of
from masquerade.core.axes import Floats
from masquerade.core.schema import Schema
from masquerade.core.util.formatting import counted
from masquerade.plan.block_search import BlockSearch, ListedDeal
from masquerade.plan.power import PairReports, pair_of_axes, symmetric_matrix
from masquerade.plan.questions import Table
from masquerade.plan.split import split_among_tables
from masquerade.plan.variance import BlockDeal, axis_moments, best_moment

MOST_JOINT = 1024  # most combinations in one joint channel
MOST_CLASSES = 1024  # most classes of a block
MOST_BLOCKS = 2**18
MOST_REPORTS = 2**22  # most blocks times classes
MOST_SOLVED = 8  # most categories for which the optimal channel for a prior is computed
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]
# probabilities to try for blocks that report cells; the other blocks report differences
SHARES = tuple(round(0.05 * step, 2) for step in range(1, 21))


@dataclass(frozen=True)
class Task:
    """The task of a plan: variables, tables, expected shares, and whether ε bounds a record or a variable."""

    schema: Schema
    tables: tuple[Table, ...]
    shares: Mapping[str, Floats]
    per: str
    given: frozenset[str] = frozenset()
    together: tuple[tuple[str, ...], ...] = ()

    @cached_property
    def units(self) -> tuple[tuple[str, ...], ...]:
        """Return the requested variables; those that are reported together form one unit."""
        used = {name: unit for unit in self.together for name in unit}
        return tuple(dict.fromkeys(used.get(name, (name,)) for name in self.variables))

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that occur in some table, in the schema's order."""
        used = {name for table in self.tables for name in table}
        used |= {name for unit in self.together if used.intersection(unit) for name in unit}
        return tuple(name for name in self.schema if name in used)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return the number of categories of each requested variable."""
        return {name: len(self.schema[name]) for name in self.variables}

    @cached_property
    def squares(self) -> Floats:
        """Return ‖θ‖² of every table under the prior."""
        norms = {name: float((self.shares[name] ** 2).sum()) for name in self.variables}
        return self.multiply_by_table(norms)

    @cached_property
    def by_width(self) -> list[tuple[Whole, Whole]]:
        """Return the tables by their number of variables, fewest first.

        Each entry has the indices of the tables, and the indices of their variables (tables × width).
        """
        place = {name: index for index, name in enumerate(self.variables)}
        found: dict[int, tuple[list[int], list[int]]] = {}
        for index, table in enumerate(self.tables):
            indices, members = found.setdefault(len(table), ([], []))
            indices.append(index)
            members.extend(map(place.__getitem__, table))
        return [
            (np.array(indices), np.array(members).reshape(len(indices), width))
            for width, (indices, members) in sorted(found.items())
        ]

    def multiply_by_table(self, values: Mapping[str, float]) -> Floats:
        """Return the product of the variables' values for each table."""
        known = np.array([values[name] for name in self.variables])
        products = np.empty(len(self.tables))
        for indices, members in self.by_width:
            product = known[members[:, 0]]
            for column in members.T[1:]:  # in the order of the table: floating-point products depend on it
                product = product * known[column]
            products[indices] = product
        return products

    @cached_property
    def cells(self) -> Floats:
        """Return the number of cells of every table."""
        return np.array([math.prod(self.sizes[name] for name in table) for table in self.tables], dtype=float)

    @cached_property
    def has_floors(self) -> bool:
        """Return True if the least possible variance is known, which is the case for a uniform prior."""
        return not self.given

    def floor(self, epsilon: float) -> Floats:
        """Return a lower bound of the mean cell variance of any mechanism with this ε, for each table.

        Formula: for one table alone, no mechanism is better than the optimal channel over its cells.
        """
        widths = [len(table) if self.per == "variable" else 1 for table in self.tables]
        best = [
            best_moment(int(cells), math.exp(min(epsilon * width, 500.0)))
            for cells, width in zip(self.cells, widths, strict=True)
        ]
        return np.asarray((np.array(best) - 1 / self.cells) / self.cells)


class Candidate(ABC):
    """A design: a way to disguise a record at any ε."""

    title = ""

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def variances(self, epsilon: float) -> Floats:
        """Return the variance of a cell's share from one record, averaged over the cells of each table."""

    def least_variance(self, epsilon: float) -> float:  # noqa: ARG002  (slow designs override this)
        """Return a lower bound of the largest of `variances` that takes little time."""
        return 0.0

    @abstractmethod
    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the ε that a report spends on each variable."""

    def record_epsilon(self, epsilon: float) -> float:
        """Return the ε of a whole record."""
        return sum(self.per_variable(epsilon).values())

    @abstractmethod
    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return the channels in the form of a policy file: 'variables', 'joint' and 'blocks'."""

    @abstractmethod
    def reports(self, epsilon: float) -> float:
        """Return the number of distinct reports."""

    @abstractmethod
    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return the channels of a record's reports on two variables; None if no record reports on both."""

    def cannot(self) -> list[str]:
        """Describe the queries that records of this design cannot answer."""
        return []


class Split(Candidate):
    """One channel per variable: the record's ε divided among them, or the full ε for each."""

    def __init__(self, task: Task, *, even: bool, symmetric: bool) -> None:
        super().__init__(task)
        self.even, self.symmetric = even, symmetric
        self._found: dict[float, Floats] = {}
        apart = task.per == "variable" or len(task.variables) == 1
        kind = "symmetric channels" if symmetric else "best channels"
        self.title = f"{kind}" if apart else f"{'even' if even else 'best'} split, {kind}"

    def epsilons(self, epsilon: float) -> Floats:
        """Return the ε of each requested variable."""
        names = self.task.variables
        if self.task.per == "variable":
            return np.full(len(names), epsilon)
        if self.even:
            return np.full(len(names), epsilon / len(names))
        if epsilon not in self._found:
            sizes = [self.task.sizes[name] for name in names]
            groups = [members for _, members in self.task.by_width]
            self._found[epsilon] = split_among_tables(sizes, groups, epsilon, symmetric=self.symmetric)
        return self._found[epsilon]

    def variances(self, epsilon: float) -> Floats:
        """Return (Π t_i − ‖θ‖²) / (number of cells)."""
        moments = {
            name: self._moment(name, math.exp(min(value, 500.0)))
            for name, value in zip(self.task.variables, self.epsilons(epsilon), strict=True)
        }
        return np.asarray((self.task.multiply_by_table(moments) - self.task.squares) / self.task.cells)

    def least_variance(self, epsilon: float) -> float:
        """Return a lower bound for any division of ε.

        Formula: of p variables, some variable gets at most ε/p, and the other variables of its tables get at
        most ε. Some two variables get at most ε/(p−1) each, which bounds the variance of their table if all
        pairs are requested.
        """
        task = self.task
        asked = [name for name in task.variables if task.sizes[name] > 1]
        if self.even or task.per == "variable" or not asked:
            return 0.0

        def moments(each: float) -> Floats:
            gamma = math.exp(min(each, 300.0))  # moments fall no further, and squares of γ stay finite
            of_size = {size: best_moment(size, gamma) for size in set(task.sizes.values())}
            return np.array([of_size[task.sizes[name]] for name in task.variables])

        if math.exp(min(epsilon / len(asked), 1.0)) <= 1:
            return 0.0

        apart = np.array([task.sizes[name] > 1 for name in task.variables])
        low, high = moments(epsilon / len(asked)), moments(epsilon)
        of_pairs = 0.0
        largest = np.zeros(len(task.variables))
        for indices, members in task.by_width:
            for place in range(members.shape[1]):
                product = low[members[:, place]]
                for other in range(members.shape[1]):
                    product = product if other == place else product * high[members[:, other]]
                bounds = (product - task.squares[indices]) / task.cells[indices]
                np.maximum.at(largest, members[:, place], bounds)
            pairs = apart[members].all(axis=1)
            if members.shape[1] == 2 and pairs.any() and np.count_nonzero(pairs) == math.comb(len(asked), 2):
                product = moments(epsilon / (len(asked) - 1))[members].prod(axis=1)
                bounds = (product - task.squares[indices]) / task.cells[indices]
                of_pairs = float(bounds[pairs].min())
        return max(float(largest[apart].min()), of_pairs) * (1 - 1e-9)

    def _moment(self, name: str, gamma: float) -> float:
        size = self.task.sizes[name]
        if size == 1 or gamma <= 1:
            return 1.0 if size == 1 else math.inf
        return subset_second_moment(size, gamma, 1) if self.symmetric else best_moment(size, gamma)

    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the ε of each variable."""
        return dict(zip(self.task.variables, self.epsilons(epsilon).tolist(), strict=True))

    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return one channel per variable."""
        return {
            "variables": {
                name: self._channel(name, format_rounded_down(value))
                for name, value in self.per_variable(epsilon).items()
            }
        }

    def _channel(self, name: str, epsilon: str) -> dict[str, Any]:
        size = self.task.sizes[name]
        gamma = gamma_of(epsilon=epsilon)
        subset = 1 if self.symmetric or size < 2 else best_subset_size(size, float(gamma))
        if subset == 1:
            return {"kind": "for_epsilon", "epsilon": epsilon}
        exact = best_design(size, gamma)
        listed = math.comb(size, subset) <= optimum.MOST_LISTED
        if (exact.points, exact.size) == (size, subset) or not listed:
            return {"kind": "block_design", "epsilon": epsilon}
        plain = {"kind": "subset_selection", "epsilon": epsilon, "size": subset}
        return (
            self._solve_for_prior(name, epsilon, plain)
            if name in self.task.given and size <= MOST_SOLVED
            else plain
        )

    def _solve_for_prior(self, name: str, epsilon: str, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the optimal channel for the prior if it is better than the one for a uniform prior."""
        variable, shares = self.task.schema[name], self.task.shares[name]
        if np.any(shares <= 0):
            return plain
        found = optimum.optimal_design(len(variable), epsilon=epsilon, prior=shares.tolist())
        usual = KINDS[plain["kind"]].model_validate(plain).build([variable])  # type: ignore[attr-defined]
        better = axis_moments(found.channel, shares).total < axis_moments(usual, shares).total
        return found.spec(variable.categories) if better else plain

    def reports(self, epsilon: float) -> float:
        """Return the product of the variables' numbers of reports."""
        result = 1.0
        for name, value in self.per_variable(epsilon).items():
            size = self.task.sizes[name]
            subset = 1 if self.symmetric or size < 2 else best_subset_size(size, math.exp(value))
            listed = math.comb(size, subset)
            result *= listed if listed <= optimum.MOST_LISTED else 2 * size
        return result

    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return both channels; subset selection is approximated by a symmetric channel of equal variance."""
        spent = self.per_variable(epsilon)
        sizes = (self.task.sizes[first], self.task.sizes[second])
        sides = [
            symmetric_matrix(size, self._like_symmetric(size, math.exp(spent[name])))
            for name, size in zip((first, second), sizes, strict=True)
        ]
        return pair_of_axes(*sides)

    def _like_symmetric(self, size: int, gamma: float) -> float:
        """Return γ of the symmetric channel that has the same variance as the channel that is used."""
        if self.symmetric or size < 2:
            return gamma
        # (K−1)(γ+K−1)²/(K(γ−1)²) + 1/K = t, solved for γ
        root = math.sqrt((best_moment(size, gamma) - 1 / size) * size / (size - 1))
        return (root + size - 1) / (root - 1)


class Joint(Candidate):
    """One symmetric channel over all combinations of the variables."""

    title = "one joint channel"

    @property
    def combinations(self) -> int:
        """Return the number of combinations."""
        return math.prod(self.task.sizes.values())

    def variances(self, epsilon: float) -> Floats:
        """Return (t − ‖θ‖²) / (number of cells), with t of a symmetric channel over all combinations."""
        joint, top = self.combinations, math.exp(epsilon)
        whole = top + joint - 1
        share = joint / self.task.cells
        totals = (whole**2 - 2 * share * whole + joint * share) / (top - 1) ** 2
        return np.asarray((totals - self.task.squares) / self.task.cells)

    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the record's ε for each variable, because an attacker may know all other variables."""
        return dict.fromkeys(self.task.variables, epsilon)

    def record_epsilon(self, epsilon: float) -> float:
        """Return ε, because it is spent once."""
        return epsilon

    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return one joint channel."""
        spec = {"kind": "for_epsilon", "epsilon": format_rounded_down(epsilon)}
        return {"joint": [{"variables": list(self.task.variables), "channel": spec}]}

    def reports(self, epsilon: float) -> float:  # noqa: ARG002  (the same at every ε)
        """Return the number of combinations."""
        return float(self.combinations)

    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return the marginal of the joint channel over the pair."""
        sizes = (self.task.sizes[first], self.task.sizes[second])
        return PairReports(
            sizes, ((1.0, symmetric_matrix(sizes[0] * sizes[1], math.exp(epsilon), self.combinations)),)
        )


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """The best blocks at an ε: their size k, the share of blocks of cells, and the variances."""

    k: int
    cells: float
    variances: Floats = field(compare=False)


class Blocks(Candidate):
    """Class response: each person is dealt a few variables at random and reports them at the full ε."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.widest = max(len(table) for table in task.tables)
        self.title = "dealt blocks"
        self._found: dict[float, BlockChoice] = {}

    def best_deal(self, epsilon: float) -> BlockChoice:
        """Return the blocks with the least variance summed over all cells of all tables."""
        if epsilon not in self._found:
            task = self.task
            tried = [
                BlockChoice(k, cells, self._of(k, cells, epsilon))
                for k in self._ks()
                for cells in (SHARES if self._differences(k) else (1.0,))
            ]
            self._found[epsilon] = min(tried, key=lambda deal: float(deal.variances @ task.cells))
        return self._found[epsilon]

    def variances(self, epsilon: float) -> Floats:
        """Return the variances of the best blocks."""
        return self.best_deal(epsilon).variances

    @property
    def possible(self) -> bool:
        """Return True if blocks that are small enough to be listed contain every table."""
        return next(self._ks(), None) is not None

    @property
    def limited(self) -> bool:
        """Return True if larger blocks were not tried because there are too many to list."""
        return max(self._ks(), default=0) < len(self.task.variables)

    def _ks(self) -> Iterator[int]:
        names = len(self.task.variables)
        classes = sorted(self.task.sizes.values(), reverse=True)
        for k in range(1, names + 1):
            wide_enough = k >= self.widest or (self.widest == 2 and k == 1 and self._differences(1))
            most = math.prod(classes[:k])
            if most > MOST_CLASSES:
                return  # larger blocks have no fewer classes
            blocks = math.comb(names, k)
            if wide_enough and blocks <= MOST_BLOCKS and blocks * most <= MOST_REPORTS:
                yield k

    def _differences(self, k: int) -> bool:
        """Return True if blocks of differences apply: binary variables, tables of two, few enough blocks."""
        names = len(self.task.variables)
        binary = all(size == 2 for size in self.task.sizes.values())
        blocks = math.comb(names, k) + math.comb(names, k + 1)
        return binary and self.widest == 2 and k + 1 <= names and blocks * 2**k <= MOST_REPORTS

    def _of(self, k: int, cells: float, epsilon: float) -> Floats:
        task = self.task
        deal = BlockDeal(task.sizes, k, math.exp(min(epsilon, 500.0)), cells)
        kinds, members = self._kinds
        found = [deal.variance(task.tables[i], task.shares) / task.cells[i] for i in kinds]
        return np.array(found)[members]

    @cached_property
    def _kinds(self) -> tuple[list[int], list[int]]:
        """Return one table per type, and each table's type, given by the sizes and norms of its variables."""
        task = self.task
        mark = {name: (size, float((task.shares[name] ** 2).sum())) for name, size in task.sizes.items()}
        first: dict[tuple[tuple[int, float], ...], int] = {}
        kinds: list[int] = []
        members = []
        for i, table in enumerate(task.tables):
            key = tuple(sorted(mark[name] for name in table))
            if key not in first:
                first[key] = len(kinds)
                kinds.append(i)
            members.append(first[key])
        return kinds, members

    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the record's ε for each variable, because a block may contain any of them."""
        return dict.fromkeys(self.task.variables, epsilon)

    def record_epsilon(self, epsilon: float) -> float:
        """Return ε, because it is spent once, on the block that was dealt."""
        return epsilon

    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return the blocks in the form of a policy file."""
        deal = self.best_deal(epsilon)
        entry: dict[str, Any] = {"variables": list(self.task.variables), "k": deal.k}
        entry["epsilon"] = format_rounded_down(epsilon)
        if deal.cells < 1:
            entry["cells"] = str(deal.cells)
        return {"blocks": [entry]}

    def reports(self, epsilon: float) -> float:
        """Return the number of blocks times classes."""
        deal, names = self.best_deal(epsilon), len(self.task.variables)
        blocks = math.comb(names, deal.k) + (math.comb(names, deal.k + 1) if deal.cells < 1 else 0)
        return blocks * math.prod(sorted(self.task.sizes.values())[-deal.k :])

    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return the blocks that contain both variables, and the blocks of their difference."""
        deal, task = self.best_deal(epsilon), self.task
        sizes = (task.sizes[first], task.sizes[second])
        gamma, names = math.exp(epsilon), len(task.variables)
        parts: list[tuple[float, Floats]] = []
        block = BlockDeal(task.sizes, deal.k, gamma, deal.cells)
        if deal.k >= 2:
            for classes, ways in block.completions((first, second)).items():
                chance = deal.cells * ways / math.comb(names, deal.k)
                parts.append((chance, symmetric_matrix(sizes[0] * sizes[1], gamma, classes)))
        if deal.cells < 1:
            ways = math.comb(names - 2, deal.k - 1)
            chance = (1 - deal.cells) * ways / math.comb(names, deal.k + 1)
            differ = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
            parts.append((chance, differ @ symmetric_matrix(2, gamma, 2**deal.k)))
        return PairReports(sizes, tuple(parts)) if parts else None

    def cannot(self) -> list[str]:
        """Warn that tables of more variables than planned may not be estimable."""
        if self.widest >= len(self.task.variables):
            return []
        most = counted(self.widest, "variable")
        wider = f"tables of more than {most}: plan for the widest table you will need"
        return [wider]


class DesignedBlocks(Candidate):
    """Class response with an explicit list of blocks, each as large as the limit on classes allows."""

    title = "dealt blocks of different sizes"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        place = {name: index for index, unit in enumerate(task.units) for name in unit}
        sizes = tuple(math.prod(task.sizes[name] for name in unit) for unit in task.units)
        tables = {tuple(sorted({place[name] for name in table})) for table in task.tables}
        self._search = BlockSearch(sizes, tuple(sorted(tables)))
        self._found: dict[float, tuple[Flags, Whole]] = {}
        self._variances: dict[float, Floats] = {}

    @property
    def possible(self) -> bool:
        """Return True if every table is within some block."""
        return self._search.possible

    def design(self, epsilon: float) -> tuple[Flags, Whole]:
        """Return the blocks (blocks × units) and their weights at ε."""
        if epsilon not in self._found:
            self._found[epsilon] = self._search.weigh(math.exp(min(epsilon, 500.0)))
        return self._found[epsilon]

    def _deal(self, epsilon: float) -> ListedDeal:
        blocks, weights = self.design(epsilon)
        unit_of = {name: index for index, unit in enumerate(self.task.units) for name in unit}
        columns = [unit_of[name] for name in self.task.variables]
        return ListedDeal(self.task.sizes, blocks[:, columns], weights, math.exp(min(epsilon, 500.0)))

    def variances(self, epsilon: float) -> Floats:
        """Return the mean cell variances of the tables, from the explicit blocks."""
        if epsilon not in self._variances:
            deal, task = self._deal(epsilon), self.task
            totals = [deal.variance(table, task.shares) for table in task.tables]
            self._variances[epsilon] = np.array(totals) / task.cells
        return self._variances[epsilon]

    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the record's ε for each variable, because a block may contain any of them."""
        return dict.fromkeys(self.task.variables, epsilon)

    def record_epsilon(self, epsilon: float) -> float:
        """Return ε, because it is spent once, on the block that was dealt."""
        return epsilon

    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return the design in the form of a policy file."""
        blocks, weights = self.design(epsilon)
        units = self.task.units
        design = [
            {
                "variables": [name for index in np.flatnonzero(block) for name in units[index]],
                "weight": int(weight),
            }
            for block, weight in zip(blocks, weights, strict=True)
        ]
        names = [unit[0] if len(unit) == 1 else list(unit) for unit in units]
        return {"blocks": [{"variables": names, "epsilon": format_rounded_down(epsilon), "design": design}]}

    def reports(self, epsilon: float) -> float:
        """Return the number of blocks times the classes of the largest block."""
        deal = self._deal(epsilon)
        return len(deal.blocks) * float(deal.classes.max())

    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return the blocks that contain both variables, by their number of classes."""
        own = (self.task.sizes[first], self.task.sizes[second])
        parts = tuple(
            (chance, symmetric_matrix(own[0] * own[1], math.exp(epsilon), classes))
            for classes, chance in self._deal(epsilon).holding((first, second)).items()
        )
        return PairReports(own, parts) if parts else None

    def cannot(self) -> list[str]:
        """Warn that tables of more variables than planned may not be estimable."""
        widest = max(len(table) for table in self.task.tables)
        if widest >= len(self.task.variables):
            return []
        return [f"tables of more than {counted(widest, 'variable')}: plan for the widest table you will need"]


def candidates(task: Task) -> list[Candidate]:
    """Return the designs to compare for a task."""
    apart = task.per == "variable" or len(task.variables) == 1
    found: list[Candidate] = [Split(task, even=True, symmetric=True)]
    if any(size > 2 for size in task.sizes.values()):
        found.append(Split(task, even=apart, symmetric=False))
    elif not apart:
        found.append(Split(task, even=False, symmetric=True))
    if apart:
        return found
    if math.prod(task.sizes.values()) <= MOST_JOINT:
        found.append(Joint(task))
    uniform = len(set(task.sizes.values())) == 1 and len(task.units) == len(task.variables)
    blocks: list[Blocks | DesignedBlocks] = [] if len(task.units) < len(task.variables) else [Blocks(task)]
    if not uniform or blocks[0].limited:  # type: ignore[union-attr]
        blocks.append(DesignedBlocks(task))
    return [*found, *(way for way in blocks if way.possible)]


def format_rounded_down(epsilon: float) -> str:
    """Format ε as a short decimal, rounded down.

    >>> format_rounded_down(1.5), format_rounded_down(0.28333333)
    ('1.5', '0.283333')
    """
    return f"{math.floor(epsilon * 1e6 + 1e-7) / 1e6:.6f}".rstrip("0").rstrip(".")
