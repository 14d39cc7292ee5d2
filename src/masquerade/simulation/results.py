"""What comes out of a simulation, whichever it is: plain values; a model, and whom it was learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar

from masquerade.simulation.costs import Cost
from masquerade.simulation.misbehaviour import Culprit
from masquerade.simulation.model_comparison import RecordedTally


class Result:
    """A dataclass whose fields are told as plain values, some under another name."""

    CALLED: ClassVar[Mapping[str, str]] = {"quasi": "quasi_identifiers", "compared": "compared_with_clear"}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            self.CALLED.get(one.name, one.name): _plain(getattr(self, one.name))
            for one in fields(self)  # type: ignore[arg-type]  # those that inherit this are dataclasses
        }


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True, slots=True, eq=False)
class LearntModel:
    """A model, the answers behind it, and the places of the people whose records are in them.

    `left` are those who left, `culprits` those who cheated and were seen to. `notes` say what happened on the
    way and what nobody could notice.
    """

    model: Any
    asked: RecordedTally
    counted: tuple[int, ...]
    left: int
    culprits: tuple[Culprit, ...]
    cost: Cost
    notes: tuple[str, ...] = ()
