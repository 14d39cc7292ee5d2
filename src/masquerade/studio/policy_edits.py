"""Changes of a policy as a page makes them, and what a policy does to a variable in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import privacy
from masquerade.cli.expected_errors import expected_values
from masquerade.cli.privacy import plain_figures
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import category_text
from masquerade.studio.steps import Asked, need, one, several

if TYPE_CHECKING:
    from masquerade.channels.channel import Channel

# γ at the stops of the slider, as they are written into the policy
STOPS = (
    *("1.1", "1.25", "1.5", "1.75", "2", "2.5", "3", "3.5", "4", "5", "6", "7", "8", "9", "10", "12", "15"),
    *("19", "25", "30", "40", "50", "75", "99", "150", "200", "300", "500", "750", "999"),
)
FIRST = "3"  # γ of a variable before anybody decides
MOST_SPINNERS = 12
BELIEF = 0.05


def figures(policy: Policy, people: int) -> dict[str, Any]:
    """Return what `masquerade privacy --json` prints of a policy."""
    found = privacy(policy, {}, [BELIEF], 0.0)
    return plain_figures(found, policy) | {"expected": expected_values(policy, {}, people)}


def record_gamma(policy: Policy) -> Fraction | float:
    """Return γ of all that is disguised of a record, in the stratum where it is largest."""
    strata = policy.strata or (None,)
    return max(
        math.prod(group.channel.gamma for group in policy.groups_of(stratum) if group.disguised)
        for stratum in strata
    )


def live_figures(values: Mapping[str, Any], name: str, gamma: str, people: int) -> dict[str, Any]:
    """Return the figures of one variable, and of a record, as they would be with another γ.

    Cost: that of one channel, whatever else the policy has.
    """
    entry = dict(values["variables"][name]) | {"channel": {"kind": "for_gamma", "gamma": gamma}}
    alone = Policy.from_dict({"masquerade": 1, "variables": {name: entry}})
    found = figures(alone, people)
    changed = dict(values) | {"variables": dict(values["variables"]) | {name: entry}}
    return found | {"record_gamma": record_gamma(Policy.from_dict(changed))}


def stop_of(policy: Policy, name: str) -> int:
    """Return the stop of the slider nearest to the γ of a variable."""
    gamma = policy.group(name).channel.gamma
    return min(range(len(STOPS)), key=lambda place: abs(float(STOPS[place]) - float(gamma)))


def sentences(channel: Channel, labels: Sequence[Any]) -> list[dict[str, Any]]:
    """Return for every truth what 100 people with it report, most likely first."""
    names = list(map(category_text, channel.labels or labels))
    rows = []
    for truth, chances in zip(labels, channel.matrix.tolist(), strict=True):
        said = sorted(zip(chances, names, strict=True), key=lambda pair: -pair[0])
        rows.append({"truth": category_text(truth), "said": [pair for pair in said if pair[0] > 0]})
    return rows


def edit(values: MutableMapping[str, Any], asked: Asked) -> None:
    """Change a policy as a form says."""
    do = need(asked, "do", "what is to be done")
    if do in WHOLE:
        WHOLE[do](values, asked)
        return
    name = need(asked, "name", "a variable")
    if name not in values["variables"]:
        raise InputError(f"There is no variable {name!r} in the policy.")
    if do not in SINGLE:
        raise InputError(f"There is no change {do!r}.")
    _leave_groups(values, name)
    SINGLE[do](values["variables"], name, asked)


def _add(values: MutableMapping[str, Any], asked: Asked) -> None:
    name, text = need(asked, "name", "a name"), need(asked, "categories", "categories")
    labels = [label.strip() for label in text.split(",") if label.strip()]
    if name in values["variables"]:
        raise InputError(f"There is a variable {name!r} already.")
    values["variables"][name] = {"categories": labels, "channel": {"kind": "for_gamma", "gamma": FIRST}}


def _split(values: MutableMapping[str, Any], _asked: Asked) -> None:
    for group in [*values.pop("joint", ()), *values.pop("blocks", ())]:
        for name in group["variables"]:
            values["variables"][name]["channel"] = {"kind": "for_gamma", "gamma": FIRST}


def _drop(variables: MutableMapping[str, Any], name: str, _asked: Asked) -> None:
    del variables[name]


def _clear(variables: MutableMapping[str, Any], name: str, _asked: Asked) -> None:
    variables[name].pop("channel", None)


def _gamma(variables: MutableMapping[str, Any], name: str, asked: Asked) -> None:
    gamma = one(asked, "gamma") or STOPS[stop_asked(asked)]
    variables[name]["channel"] = {"kind": "for_gamma", "gamma": gamma}


def stop_asked(asked: Asked) -> int:
    """Return the stop of the slider that is asked for."""
    text = need(asked, "stop", "how well it is protected")
    if not text.isdecimal() or int(text) >= len(STOPS):
        raise InputError(f"The slider has stops 0 to {len(STOPS) - 1}.")
    return int(text)


def _leave_groups(values: MutableMapping[str, Any], name: str) -> None:
    """Take a variable out of the groups that are disguised together; what is left of one is given up."""
    for kind in ("joint", "blocks"):
        for group in list(values.get(kind, ())):
            if name in group["variables"]:
                values[kind].remove(group)
                for other in group["variables"]:
                    if other in values["variables"] and other != name:
                        values["variables"][other]["channel"] = {"kind": "for_gamma", "gamma": FIRST}
        if not values.get(kind, True):
            del values[kind]


def _join(values: MutableMapping[str, Any], asked: Asked) -> None:
    names, gamma = several(asked, "names"), one(asked, "gamma") or FIRST
    if len(names) < 2 or any(name not in values["variables"] for name in names):
        raise InputError("Choose two or more variables that are to be disguised together.")
    for name in names:
        _leave_groups(values, name)
    for name in names:
        values["variables"][name].pop("channel", None)
    channel = {"kind": "for_gamma", "gamma": gamma}
    values.setdefault("joint", []).append({"variables": list(names), "channel": channel})


def _matrix(variables: MutableMapping[str, Any], name: str, asked: Asked) -> None:
    """Set how many of 100 people of each category report it; the others are shared out evenly."""
    kept = several(asked, "kept")
    size = len(kept)
    rows = []
    for place, text in enumerate(kept):
        if not text.isdecimal() or not 0 <= int(text) <= 100:
            raise InputError("Of 100 people so many, as a whole number, report what is true.")
        rest = Fraction(100 - int(text), 100 * max(size - 1, 1))
        rows.append([Fraction(int(text), 100) if other == place else rest for other in range(size)])
    variables[name]["channel"] = {"kind": "matrix", "rows": [[str(chance) for chance in row] for row in rows]}


WHOLE: dict[str, Callable[[MutableMapping[str, Any], Asked], None]] = {
    "add": _add,
    "join": _join,
    "split": _split,
}
SINGLE: dict[str, Callable[[MutableMapping[str, Any], str, Asked], None]] = {
    "drop": _drop,
    "clear": _clear,
    "gamma": _gamma,
    "matrix": _matrix,
}
