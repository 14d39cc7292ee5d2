"""People k-anonymised without a trusted collector: which rows open, what it costs, whose shares are bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Guarantee
from masquerade.core.schema import Schema
from masquerade.protocols.threshold.row_schema import Form
from masquerade.simulation import threshold_faithful, threshold_production
from masquerade.simulation.costs import Cost
from masquerade.simulation.misbehaviour import Trouble
from masquerade.simulation.outcome import Caught
from masquerade.simulation.people import People, check_enough
from masquerade.simulation.threshold_outcome import Opened, Row

Mode = Literal["production", "faithful"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True, eq=False)
class KAnonymity:
    """What came out of an epoch: how many rows opened and why others did not, faults, cost, guarantee.

    `closed` counts rows by the reason why they did not open. `as_expected` tells that exactly those rows
    opened that the clear table of all who sent good reports would show.
    """

    mode: Mode
    n: int
    k: int
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    opened: int
    classes: int
    closed: dict[str, int]
    left: int
    cheated: int
    faults: tuple[Caught, ...]
    as_expected: bool
    cost: Cost
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "formulation": 1,
            "mode": self.mode,
            "n": self.n,
            "k": self.k,
            "quasi_identifiers": list(self.quasi),
            "sensitive": list(self.sensitive),
            "opened": self.opened,
            "classes": self.classes,
            "closed": self.closed,
            "left": self.left,
            "cheated": self.cheated,
            "faults": [asdict(one) for one in self.faults],
            "as_expected": self.as_expected,
            "cost": self.cost.to_dict(),
            "guarantee": self.guarantee.to_dict(),
        }


def k_anonymity(
    people: People,
    k: int,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    mode: Mode = "production",
    *,
    trouble: Trouble | None = None,
) -> KAnonymity:
    """Open the rows whose quasi-identifier occurs at least k times (formulation 1), every message as bytes.

    People who leave take no part; people who cheat send a share that is not their own.
    """
    if mode not in MODES:
        raise InputError(f"The mode must be one of {', '.join(MODES)}. Got {mode!r} instead.")
    if people.policy.disguised:
        raise InputError("Rows are k-anonymised as they are: the policy must not disguise any variable.")
    check_enough(len(people), k)
    form = form_of(people.policy.schema, quasi, sensitive)
    rows = rows_of(people, form)
    leaving, cheating = (trouble or Trouble()).among(len(people))
    run = threshold_production.run if mode == "production" else threshold_faithful.run
    result: Opened = run(rows, form, k, leaving, cheating)
    good = [row for place, row in enumerate(rows) if place not in leaving | cheating]
    sizes = Counter(own for own, _ in good)
    expected = Counter(row for row in good if sizes[row[0]] >= k)
    return KAnonymity(
        mode,
        len(people),
        k,
        form.quasi,
        form.sensitive,
        len(result.rows),
        len({own for own, _ in result.rows}),
        result.closed,
        len(leaving),
        len(cheating),
        result.faults,
        Counter(result.rows) == expected,
        result.cost,
        result.guarantee,
    )


def form_of(schema: Schema, quasi: Sequence[str], sensitive: Sequence[str]) -> Form:
    """Return the form of the variables that take part, in the order of the schema."""
    named = (*quasi, *sensitive)
    for name in named:
        schema[name]
        if named.count(name) > 1:
            raise InputError(f"{name!r} is named twice: a column is a quasi-identifier or sensitive.")
    chosen = Schema([schema[name] for name in schema if name in named])
    ordered = [tuple(name for name in chosen if name in some) for some in (quasi, sensitive)]
    return Form(chosen, ordered[0], ordered[1])


def rows_of(people: People, form: Form) -> list[Row]:
    """Return everybody's row, filled in on the form."""
    labels = {name: people.policy.schema.decode(name, people.codes[name]) for name in form.schema}
    return [
        form.fill({name: column[place] for name, column in labels.items()}) for place in range(len(people))
    ]
