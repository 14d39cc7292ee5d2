"""The ways to disguise a record that a plan compares: variances in closed form, and their policies."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from masquerade.channels import optimum
from masquerade.channels.block_designs import best_design, best_subset_size, subset_second_moment
from masquerade.channels.policy.channel_models import KINDS
from masquerade.channels.privacy_level import gamma_of
from masquerade.core.axes import Floats
from masquerade.core.schema import Schema
from masquerade.core.util.formatting import counted
from masquerade.plan.power import PairReports, pair_of_axes, symmetric_matrix
from masquerade.plan.questions import Table
from masquerade.plan.split import best_split
from masquerade.plan.variance import BlockDeal, axis_moments, best_moment

MOST_JOINT = 1024  # combinations in one joint channel
MOST_CLASSES = 1024  # of a block
MOST_BLOCKS = 2**18
MOST_SOLVED = 8  # categories up to which an optimum for a prior is solved for
SHARES = tuple(round(0.05 * step, 2) for step in range(1, 21))  # of cells blocks


@dataclass(frozen=True)
class Task:
    """What is planned for: the variables, the tables, the shares expected, and whose ε is bounded."""

    schema: Schema
    tables: tuple[Table, ...]
    shares: Mapping[str, Floats]
    per: str
    given: frozenset[str] = frozenset()

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """Return the variables that some table asks for, in order."""
        used = {name for table in self.tables for name in table}
        return tuple(name for name in self.schema if name in used)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return the numbers of categories of the variables asked for."""
        return {name: len(self.schema[name]) for name in self.asked}

    @cached_property
    def squares(self) -> Floats:
        """Return ‖θ‖² of every table under the prior."""
        norms = {name: float((self.shares[name] ** 2).sum()) for name in self.asked}
        return np.array([math.prod(norms[name] for name in table) for table in self.tables])

    @cached_property
    def cells(self) -> Floats:
        """Return the number of cells of every table."""
        return np.array([math.prod(self.sizes[name] for name in table) for table in self.tables], dtype=float)

    @cached_property
    def floors_known(self) -> bool:
        """Tell whether the least possible variance is known: under a prior that is uniform."""
        return not self.given

    def floor(self, epsilon: float) -> Floats:
        """Return a mean cell variance that no mechanism with this ε has less of, for each table by itself.

        Formula: whoever asks one table alone has at best the optimal channel over its cells.
        """
        widths = [len(table) if self.per == "variable" else 1 for table in self.tables]
        best = [
            best_moment(int(cells), math.exp(min(epsilon * width, 500.0)))
            for cells, width in zip(self.cells, widths, strict=True)
        ]
        return np.asarray((np.array(best) - 1 / self.cells) / self.cells)


class Candidate(ABC):
    """A way to disguise the record at any ε."""

    title = ""

    def __init__(self, task: Task) -> None:
        self.task = task

    @abstractmethod
    def variances(self, epsilon: float) -> Floats:
        """Return for every table the variance of a cell's share for one record, averaged over the cells."""

    @abstractmethod
    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the ε that a report spends on each variable."""

    def record_epsilon(self, epsilon: float) -> float:
        """Return the ε of a whole record."""
        return sum(self.per_variable(epsilon).values())

    @abstractmethod
    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return the policy's channels: 'variables', 'joint' and 'blocks' as a policy file has them."""

    @abstractmethod
    def reports(self, epsilon: float) -> float:
        """Return how many different records can be reported."""

    @abstractmethod
    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return how a record tells about two variables; None if it does not."""

    def cannot(self) -> list[str]:
        """Say which questions records disguised in this way do not answer."""
        return []


class Split(Candidate):
    """Every variable by itself: the record's ε divided, or ε for each."""

    def __init__(self, task: Task, *, even: bool, symmetric: bool) -> None:
        super().__init__(task)
        self.even, self.symmetric = even, symmetric
        self._found: dict[float, Floats] = {}
        apart = task.per == "variable" or len(task.asked) == 1
        kind = "symmetric channels" if symmetric else "best channels"
        self.title = f"{kind}" if apart else f"{'even' if even else 'best'} split, {kind}"

    def epsilons(self, epsilon: float) -> Floats:
        """Return the ε of each variable asked for."""
        names = self.task.asked
        if self.task.per == "variable":
            return np.full(len(names), epsilon)
        if self.even:
            return np.full(len(names), epsilon / len(names))
        if epsilon not in self._found:
            place = {name: i for i, name in enumerate(names)}
            tables = [[place[name] for name in table] for table in self.task.tables]
            sizes = [self.task.sizes[name] for name in names]
            self._found[epsilon] = best_split(sizes, tables, epsilon, symmetric=self.symmetric)
        return self._found[epsilon]

    def variances(self, epsilon: float) -> Floats:
        """Return Π t_i − ‖θ‖² over the number of cells."""
        moments = {
            name: self._moment(name, math.exp(min(value, 500.0)))
            for name, value in zip(self.task.asked, self.epsilons(epsilon), strict=True)
        }
        totals = np.array([math.prod(moments[name] for name in table) for table in self.task.tables])
        return np.asarray((totals - self.task.squares) / self.task.cells)

    def _moment(self, name: str, gamma: float) -> float:
        size = self.task.sizes[name]
        if size == 1 or gamma <= 1:
            return 1.0 if size == 1 else math.inf
        return subset_second_moment(size, gamma, 1) if self.symmetric else best_moment(size, gamma)

    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the shares of ε."""
        return dict(zip(self.task.asked, self.epsilons(epsilon).tolist(), strict=True))

    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return a channel for every variable."""
        return {
            "variables": {
                name: self._channel(name, rounded_down(value))
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
            self._solved(name, epsilon, plain) if name in self.task.given and size <= MOST_SOLVED else plain
        )

    def _solved(self, name: str, epsilon: str, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the optimum for the prior where it is better than the one for categories that are alike."""
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
        """Return both channels side by side; subsets tell as much as symmetric ones of their variance."""
        spent = self.per_variable(epsilon)
        sizes = (self.task.sizes[first], self.task.sizes[second])
        sides = [
            symmetric_matrix(size, self._like_symmetric(size, math.exp(spent[name])))
            for name, size in zip((first, second), sizes, strict=True)
        ]
        return pair_of_axes(*sides)

    def _like_symmetric(self, size: int, gamma: float) -> float:
        """Return γ of the symmetric channel with the variance of the channel that is used."""
        if self.symmetric or size < 2:
            return gamma
        # (K−1)(γ+K−1)²/(K(γ−1)²) + 1/K = t, solved for γ
        root = math.sqrt((best_moment(size, gamma) - 1 / size) * size / (size - 1))
        return (root + size - 1) / (root - 1)


class Joint(Candidate):
    """All variables through one symmetric channel over their combinations."""

    title = "one joint channel"

    @property
    def combinations(self) -> int:
        """Return how many combinations there are."""
        return math.prod(self.task.sizes.values())

    def variances(self, epsilon: float) -> Floats:
        """Return t(Γ, J, J_S) − ‖θ‖² over the number of cells."""
        joint, top = self.combinations, math.exp(epsilon)
        whole = top + joint - 1
        share = joint / self.task.cells
        totals = (whole**2 - 2 * share * whole + joint * share) / (top - 1) ** 2
        return np.asarray((totals - self.task.squares) / self.task.cells)

    def per_variable(self, epsilon: float) -> dict[str, float]:
        """Return the record's ε for each: whoever knows the others learns so much about one."""
        return dict.fromkeys(self.task.asked, epsilon)

    def record_epsilon(self, epsilon: float) -> float:
        """Return ε: it is spent once."""
        return epsilon

    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return one joint channel."""
        spec = {"kind": "for_epsilon", "epsilon": rounded_down(epsilon)}
        return {"joint": [{"variables": list(self.task.asked), "channel": spec}]}

    def reports(self, epsilon: float) -> float:  # noqa: ARG002  (the same at every ε)
        """Return the number of combinations."""
        return float(self.combinations)

    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return the pair's part of the joint channel."""
        sizes = (self.task.sizes[first], self.task.sizes[second])
        return PairReports(
            sizes, ((1.0, symmetric_matrix(sizes[0] * sizes[1], math.exp(epsilon), self.combinations)),)
        )


@dataclass(frozen=True, slots=True)
class Dealt:
    """The best deal at an ε: k, the share of cells blocks, and the variances."""

    k: int
    cells: float
    variances: Floats = field(compare=False)


class Blocks(Candidate):
    """Class response: everybody is dealt a few variables at random and reports them at the full ε."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.widest = max(len(table) for table in task.tables)
        self.title = "dealt blocks"
        self._found: dict[float, Dealt] = {}

    def dealt(self, epsilon: float) -> Dealt:
        """Return the deal with the least summed variance over all cells of all tables."""
        if epsilon not in self._found:
            task = self.task
            tried = [
                Dealt(k, cells, self._of(k, cells, epsilon))
                for k in self._ks()
                for cells in (SHARES if self._differences(k) else (1.0,))
            ]
            self._found[epsilon] = min(tried, key=lambda deal: float(deal.variances @ task.cells))
        return self._found[epsilon]

    def variances(self, epsilon: float) -> Floats:
        """Return the variances of the best deal."""
        return self.dealt(epsilon).variances

    @property
    def possible(self) -> bool:
        """Tell whether there are blocks small enough that hold every table."""
        return next(self._ks(), None) is not None

    def _ks(self) -> Iterator[int]:
        names = len(self.task.asked)
        classes = sorted(self.task.sizes.values(), reverse=True)
        for k in range(1, names + 1):
            wide_enough = k >= self.widest or (self.widest == 2 and k == 1 and self._differences(1))
            small = math.prod(classes[:k]) <= MOST_CLASSES and math.comb(names, k) <= MOST_BLOCKS
            if wide_enough and small:
                yield k

    def _differences(self, k: int) -> bool:
        """Tell whether blocks of differences can help: pairs of binary variables, enough of them."""
        binary = all(size == 2 for size in self.task.sizes.values())
        return binary and self.widest == 2 and k + 1 <= len(self.task.asked)

    def _of(self, k: int, cells: float, epsilon: float) -> Floats:
        task = self.task
        deal = BlockDeal(task.sizes, k, math.exp(min(epsilon, 500.0)), cells)
        kinds, members = self._kinds
        found = [deal.variance(task.tables[i], task.shares) / task.cells[i] for i in kinds]
        return np.array(found)[members]

    @cached_property
    def _kinds(self) -> tuple[list[int], list[int]]:
        """Return a table of each kind, and every table's kind: by sizes and unevenness of its variables."""
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
        """Return the record's ε for each: a block may hold any."""
        return dict.fromkeys(self.task.asked, epsilon)

    def record_epsilon(self, epsilon: float) -> float:
        """Return ε: it is spent once, on the block that was dealt."""
        return epsilon

    def channels(self, epsilon: float) -> dict[str, Any]:
        """Return the blocks as policy files have them."""
        deal = self.dealt(epsilon)
        entry: dict[str, Any] = {"variables": list(self.task.asked), "k": deal.k}
        entry["epsilon"] = rounded_down(epsilon)
        if deal.cells < 1:
            entry["cells"] = str(deal.cells)
        return {"blocks": [entry]}

    def reports(self, epsilon: float) -> float:
        """Return blocks times classes."""
        deal, names = self.dealt(epsilon), len(self.task.asked)
        blocks = math.comb(names, deal.k) + (math.comb(names, deal.k + 1) if deal.cells < 1 else 0)
        return blocks * math.prod(sorted(self.task.sizes.values())[-deal.k :])

    def pair(self, first: str, second: str, epsilon: float) -> PairReports | None:
        """Return the blocks that hold both variables, and those of their difference."""
        deal, task = self.dealt(epsilon), self.task
        sizes = (task.sizes[first], task.sizes[second])
        gamma, names = math.exp(epsilon), len(task.asked)
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
        """Say that wider tables than planned for may not be estimable."""
        if self.widest >= len(self.task.asked):
            return []
        most = counted(self.widest, "variable")
        wider = f"tables of more than {most}: plan for the widest that anybody will ask"
        return [wider]


def candidates(task: Task) -> list[Candidate]:
    """Return the ways that are worth comparing for a task."""
    apart = task.per == "variable" or len(task.asked) == 1
    found: list[Candidate] = [Split(task, even=True, symmetric=True)]
    if any(size > 2 for size in task.sizes.values()):
        found.append(Split(task, even=apart, symmetric=False))
    elif not apart:
        found.append(Split(task, even=False, symmetric=True))
    if apart:
        return found
    if math.prod(task.sizes.values()) <= MOST_JOINT:
        found.append(Joint(task))
    blocks = Blocks(task)
    if blocks.possible:
        found.append(blocks)
    return found


def rounded_down(epsilon: float) -> str:
    """Return ε as a short decimal that is not above it.

    >>> rounded_down(1.5), rounded_down(0.28333333)
    ('1.5', '0.283333')
    """
    return f"{math.floor(epsilon * 1e6 + 1e-7) / 1e6:.6f}".rstrip("0").rstrip(".")
