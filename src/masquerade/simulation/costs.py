"""Results and costs of simulations: processor seconds and bytes by role.

Costs are measured where the work is done. Simulations of increasing size (`ladder`) show how time grows with
the number of people.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from masquerade.core.plots.drawing import new_axes
from masquerade.core.plots.palette import MUTED, NAIVE, SERIES
from masquerade.core.tally import Tally
from masquerade.core.util.formatting import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes


P = TypeVar("P")
Learn = Callable[[Tally], Any]


@dataclass(frozen=True, slots=True)
class MeanAndWorst:
    """The mean over people, and the largest value."""

    mean: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[Any]) -> Self:
        """Return the mean and the largest of one or more values."""
        return cls(float(np.mean(values)), float(np.max(values)))


@dataclass(frozen=True, slots=True)
class PopulationCost:
    """Costs of a person (`client_seconds`, `sent`, `received`), of other roles, and wall-clock time.

    Attributes
    ----------
    measured_on : int
        Number of people on whom `client_seconds` was measured: those who shared no work with others.
    roles : mapping of str to float
        Processor seconds by role.
    wall : float
        Wall-clock time of the simulation, which runs all roles in sequence.
    """

    client_seconds: MeanAndWorst
    measured_on: int
    sent: MeanAndWorst
    received: MeanAndWorst
    roles: Mapping[str, float]
    wall: float
    rounds: int

    @property
    def server_seconds(self) -> float:
        """Processor seconds of all roles other than users."""
        return sum(self.roles.values())


class Result:
    """A dataclass that `to_dict` converts to plain values, some under another name."""

    CALLED: ClassVar[Mapping[str, str]] = {"quasi": "quasi_identifiers", "compared": "compared_with_clear"}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            self.CALLED.get(one.name, one.name): _plain(getattr(self, one.name))
            for one in fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
        }


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True, slots=True)
class Culprit:
    """A party that did not follow the protocol, and the evidence."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A model, the indexes of the people in it, the cheaters, and notes on what happened."""

    model: Any
    counted: tuple[int, ...]
    culprits: tuple[Culprit, ...]
    cost: PopulationCost
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Meter:
    """Sums of time and bytes by person and role."""

    n: int
    started: float = field(default_factory=time.perf_counter)
    seconds: NDArray[np.float64] = field(init=False)
    sent: NDArray[np.int64] = field(init=False)
    received: NDArray[np.int64] = field(init=False)
    of_users: float = 0.0  # total seconds of users
    roles: dict[str, float] = field(default_factory=dict)
    rounds: int = 0

    def __post_init__(self) -> None:
        self.seconds = np.zeros(self.n)
        self.sent, self.received = np.zeros((2, self.n), dtype=np.int64)

    @contextmanager
    def charge(self, who: int | str) -> Iterator[None]:
        """Charge the time of a block to a user (by index) or a role.

        Time that is charged to users inside the block is not charged to the role.
        """
        start, users = time.process_time(), self.of_users
        try:
            yield
        finally:
            spent = time.process_time() - start - (self.of_users - users)
            if isinstance(who, int):
                self.seconds[who] += spent
                self.of_users += spent
            else:
                self.roles[who] = self.roles.get(who, 0.0) + spent

    def watch(self, party: P, who: int | str) -> P:
        """Wrap a party so that its calls are timed and charged. For users, also count bytes."""
        return cast("P", _WatchedParty(party, who, self))

    def cost(self, alone: Sequence[int], staying: Sequence[int]) -> PopulationCost:
        """Return the cost: time of the users who share no work, bytes of all who stayed."""
        return PopulationCost(
            MeanAndWorst.of(self.seconds[list(alone)]),
            len(alone),
            MeanAndWorst.of(self.sent[list(staying)]),
            MeanAndWorst.of(self.received[list(staying)]),
            dict(self.roles),
            time.perf_counter() - self.started,
            self.rounds,
        )


class _WatchedParty:
    """Proxy that meters the calls of a party."""

    def __init__(self, party: Any, who: int | str, meter: Meter) -> None:
        vars(self).update(_party=party, _who=who, _meter=meter)

    def __repr__(self) -> str:
        return repr(self._party)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._party, name, value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._party, name)
        if not callable(found):
            return found

        def timed(*given: Any) -> Any:
            if isinstance(self._who, int):
                self._meter.received[self._who] += _size(given)
            with self._meter.charge(self._who):
                result = found(*given)
            if isinstance(self._who, int):
                self._meter.sent[self._who] += _size(result)
            return result

        return timed


def _size(message: Any) -> int:
    """Return the bytes of a message or of several messages. Other values have size 0."""
    if isinstance(message, tuple):
        return sum(map(_size, message))
    return len(message) if isinstance(message, bytes) else 0


HALVINGS = 4
FEW_DECADES = 100  # ratio of the largest to the smallest time
LABEL = 26  # least distance in points between two labels, each of two lines of text


def ladder(n: int, least: int) -> list[int]:
    """Return n/16, n/8, …, n, omitting sizes below `least`.

    >>> ladder(1000, 100)
    [125, 250, 500, 1000]
    """
    sizes = [n // 2**step for step in range(HALVINGS, -1, -1)]
    return [size for size in sizes if size >= least] or [n]


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the power of n with which a time grows: the slope on logarithmic axes.

    >>> round(slope([10, 100, 1000], [2, 20, 200]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def timing_plot(
    costs: Mapping[int, PopulationCost], title: str, note: str = "", ax: Axes | None = None
) -> Axes:
    """Plot processor time against the number of people: one person and every other role."""
    from masquerade.core.plots.style import house_style, open_frame  # noqa: PLC0415  (loads matplotlib)

    sizes = sorted(costs)
    points = [costs[n] for n in sizes]
    lines = [("one person", NAIVE, "o", [cost.client_seconds.mean for cost in points])]
    lines += [
        (role, colour, mark, seconds)
        for (role, seconds), colour, mark in zip(_merged_roles(points).items(), SERIES, "sD^vP", strict=False)
    ]
    with house_style():
        axes = new_axes(6.4, 4.4) if ax is None else ax
        for name, colour, mark, seconds in lines:
            axes.plot(sizes, seconds, f"{mark}-", color=colour, markersize=6, linewidth=2, zorder=3)
            axes.annotate(
                f"{name}\n{duration(seconds[-1])}",
                (sizes[-1], seconds[-1]),
                xytext=(10, 0),
                textcoords="offset points",
                color=colour,
                va="center",
                annotation_clip=False,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        _readable_axes(axes, sizes, [s for *_, seconds in lines for s in seconds])
        _spread_labels(axes)
        axes.set_xlabel("people")
        axes.set_title(title, loc="left", fontsize=11, weight="bold", pad=24 if note else 12)
        axes.text(0, 1.03, note, transform=axes.transAxes, color=MUTED, fontsize=9, va="bottom")
        open_frame(axes)
        axes.grid(visible=False, axis="x")
    return axes


def _merged_roles(points: Sequence[PopulationCost]) -> dict[str, list[float]]:
    """Return the seconds of every role, with all mix leaders as one, since they do the same work."""
    alike = [role for role in points[-1].roles if role.startswith("leader")]
    found = {role: [cost.roles[role] for cost in points] for role in points[-1].roles if role not in alike}
    if alike:
        found["one leader"] = [float(np.mean([cost.roles[role] for role in alike])) for cost in points]
    return found


def _spread_labels(axes: Axes) -> None:
    """Move overlapping labels at the ends of lines apart."""
    from matplotlib.text import Annotation  # noqa: PLC0415

    low, high = np.log(axes.get_ylim())
    inches = axes.get_window_extent().height / axes.figure.dpi
    step = LABEL / (72 * inches) * (high - low)
    place = -np.inf
    labels = [label for label in axes.texts if isinstance(label, Annotation)]
    for label in sorted(labels, key=lambda label: label.xy[1]):
        wanted = np.log(label.xy[1])
        place = max(wanted, place + step)
        label.set_position((10, (place - wanted) / (high - low) * 72 * inches))


def _readable_axes(axes: Axes, sizes: Sequence[int], seconds: Sequence[float]) -> None:
    """Label the axes with the simulated numbers of people and with readable times."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415

    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda s, _: duration(s)))
    low, high = min(seconds), max(seconds)
    # half decades, with space for the labels
    axes.set_ylim(
        10 ** (np.floor(2 * np.log10(low / 1.3)) / 2), 10 ** (np.ceil(2 * np.log10(high * 1.3)) / 2)
    )
    if high / low < FEW_DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("processor time")
