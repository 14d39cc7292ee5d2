"""Edits of a policy by forms, and descriptions of its channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import deepcopy
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import privacy
from masquerade.channels.policy.record import record_gamma
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.cli.expected_errors import expected_values
from masquerade.cli.privacy import plain_figures
from masquerade.core.errors import InputError
from masquerade.core.record_gamma import Gamma, describe_gamma
from masquerade.core.util.formatting import category_text, gamma_words
from masquerade.studio.steps import Asked, need, one, several

if TYPE_CHECKING:
    from masquerade.channels.channel import Channel

# γ at the stops of the slider, as written into the policy
STOPS = (
    *("1.1", "1.25", "1.5", "1.75", "2", "2.5", "3", "3.5", "4", "5", "6", "7", "8", "9", "10", "12", "15"),
    *("19", "25", "30", "40", "50", "75", "99", "150", "200", "300", "500", "750", "999"),
)
DECIMALS = 10**6  # denominator of a γ that is a share of the limit
LEAST = Fraction(1001, 1000)  # least useful γ of a variable
MOST_SPINNERS = 12
BELIEF = 0.05


def figures(policy: Policy, people: int) -> dict[str, Any]:
    """Return the output of `masquerade privacy --json` for a policy."""
    found = privacy(policy, {}, [BELIEF], 0.0)
    return plain_figures(found, policy) | {"expected": expected_values(policy, {}, people)}


def limit_of(values: Mapping[str, Any]) -> PrivacyLimit:
    """Return the limit that a policy file states, or the default."""
    return PrivacyLimit.parse(values["limit"]) if values.get("limit") else DEFAULT_LIMIT


def without_limit(values: Mapping[str, Any]) -> Policy:
    """Return the policy of a file without its limit, so that a policy above the limit can be shown."""
    return Policy.from_dict({key: value for key, value in values.items() if key not in {"limit", "clear"}})


def check_limit(values: Mapping[str, Any]) -> None:
    """Raise InputError if a policy is above the limit that it states."""
    if not values.get("limit") or not values["variables"]:
        return
    gamma, limit = record_gamma(without_limit(values)), limit_of(values)
    if gamma > limit.gamma:
        raise InputError(
            f"{describe_gamma(gamma)} A whole record would have {gamma_words(gamma)}, above the limit for "
            f"one person ({limit}). Nothing was changed. If that is what you want, change the limit first."
        )


def check_raised_limit(policy: Policy | None, planned: Mapping[str, Any], *, is_accepted: bool) -> None:
    """Raise InputError if a plan has a higher limit than the policy, unless the user accepted that."""
    limit = DEFAULT_LIMIT if policy is None or policy.limit is None else policy.limit
    new = limit_of(planned)
    if new.gamma > limit.gamma and not is_accepted:
        raise InputError(
            f"{describe_gamma(new.gamma)} The plan has {new}, above the limit for one person ({limit}). "
            "Nothing was changed. If that is what you want, tick the box to raise the limit in the form."
        )


def live_figures(values: Mapping[str, Any], name: str, gamma: str, people: int) -> dict[str, Any]:
    """Return the privacy measures of a variable and of a record if the variable had a different γ."""
    entry = dict(values["variables"][name]) | {"channel": {"kind": "for_gamma", "gamma": gamma}}
    alone = Policy.from_dict({"masquerade": 1, "variables": {name: entry}})
    found = figures(alone, people)
    changed = deepcopy(dict(values))
    others = _leave_groups(changed, name)
    changed["variables"][name] = entry
    try:
        _share_limit(changed, others)
    except InputError:  # nothing of the limit remains for the other variables
        return found | {"record_gamma": math.inf, "is_beyond": True}
    whole = record_gamma(without_limit(changed))
    beyond = bool(values.get("limit")) and whole > limit_of(values).gamma
    return found | {"record_gamma": whole, "is_beyond": beyond}


def stop_of(policy: Policy, name: str) -> int:
    """Return the stop of the slider nearest to the γ of a variable."""
    gamma = policy.group(name).channel.gamma
    return min(range(len(STOPS)), key=lambda place: abs(float(STOPS[place]) - float(gamma)))


def sentences(channel: Channel, labels: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the probabilities of the reports of each truth, the most likely first."""
    names = list(map(category_text, channel.labels or labels))
    rows = []
    for truth, chances in zip(labels, channel.matrix.tolist(), strict=True):
        said = sorted(zip(chances, names, strict=True), key=lambda pair: -pair[0])
        rows.append({"truth": category_text(truth), "said": [pair for pair in said if pair[0] > 0]})
    return rows


def edit(values: MutableMapping[str, Any], asked: Asked) -> None:
    """Apply the edit of a form to a policy."""
    do = need(asked, "do", "an action")
    if do in WHOLE:
        WHOLE[do](values, asked)
        check_limit(values)
        return
    name = need(asked, "name", "a variable")
    if name not in values["variables"]:
        raise InputError(f"There is no variable {name!r} in the policy.")
    if do not in SINGLE:
        raise InputError(f"There is no change {do!r}.")
    others = _leave_groups(values, name)
    SINGLE[do](values["variables"], name, asked)
    if do == "clear":
        values["clear"] = "accepted"
    _share_limit(values, others)
    check_limit(values)


def _add(values: MutableMapping[str, Any], asked: Asked) -> None:
    name, text = need(asked, "name", "a name"), need(asked, "categories", "categories")
    labels = [label.strip() for label in text.split(",") if label.strip()]
    if name in values["variables"]:
        raise InputError(f"Variable {name!r} already exists.")
    if not values["variables"]:
        values["limit"] = DEFAULT_LIMIT.to_dict()
    shared = [
        *_grouped_names(values),
        *(key for key, entry in values["variables"].items() if _has_share(entry)),
    ]
    values["variables"][name] = {"categories": labels}
    _ungroup(values)
    _share_limit(values, [*shared, name])


def _has_share(entry: Mapping[str, Any]) -> bool:
    channel = entry.get("channel")
    return isinstance(channel, Mapping) and channel.get("kind") == "for_gamma"


def _split(values: MutableMapping[str, Any], _asked: Asked) -> None:
    names = _grouped_names(values)
    _ungroup(values)
    _share_limit(values, names)


def _limit(values: MutableMapping[str, Any], asked: Asked) -> None:
    """Set a different limit for one person, if clear variables are explicitly accepted."""
    kind, value = one(asked, "kind") or "breach", need(asked, "limit", "a limit, such as 5%:50%")
    values["limit"] = PrivacyLimit.parse({kind: value}).to_dict()
    policy = without_limit(values)
    if policy.clear_variables and values.get("clear") != "accepted":
        if not one(asked, "clear_accepted"):
            raise InputError(
                f"{', '.join(policy.clear_variables)} would be public for every person: accept that, too."
            )
        values["clear"] = "accepted"


def _grouped_names(values: Mapping[str, Any]) -> list[str]:
    """Return the variables that are disguised together with others."""
    found: list[str] = []
    for group in [*values.get("joint", ()), *values.get("blocks", ())]:
        found += _names_of(group)
    return found


def _names_of(group: Mapping[str, Any]) -> list[str]:
    """Return the variables of a joint channel or of blocks, whose units may be lists."""
    listed = [unit if isinstance(unit, list) else [unit] for unit in group["variables"]]
    return [name for unit in listed for name in unit]


def _ungroup(values: MutableMapping[str, Any]) -> None:
    for kind in ("joint", "blocks"):
        values.pop(kind, None)


def _share_limit(values: MutableMapping[str, Any], names: Sequence[str]) -> None:
    """Divide evenly among variables the part of the limit that the rest of the policy leaves."""
    shared = [name for name in names if name in values["variables"]]
    if not shared:
        return
    for name in shared:
        values["variables"][name].pop("channel", None)
    rest = {name: entry for name, entry in values["variables"].items() if name not in shared}
    taken: Gamma = record_gamma(without_limit({**values, "variables": rest})) if rest else Fraction(1)
    left = 0.0 if taken == math.inf else float(limit_of(values).gamma / Fraction(taken))
    each = Fraction(math.floor(left ** (1 / len(shared)) * DECIMALS), DECIMALS)
    if each < LEAST:
        raise InputError(
            "The limit for one person is used up, and the other variables would get nothing. Change the "
            "limit first, or choose fewer variables."
        )
    for name in shared:
        values["variables"][name]["channel"] = {"kind": "for_gamma", "gamma": str(each)}


def _drop(variables: MutableMapping[str, Any], name: str, _asked: Asked) -> None:
    del variables[name]


def _clear(variables: MutableMapping[str, Any], name: str, asked: Asked) -> None:
    if not one(asked, "clear_accepted"):
        raise InputError(
            f"{name} would be public for every person. To release it in clear, accept that first."
        )
    variables[name].pop("channel", None)


def _gamma(variables: MutableMapping[str, Any], name: str, asked: Asked) -> None:
    gamma = one(asked, "gamma") or STOPS[stop_asked(asked)]
    variables[name]["channel"] = {"kind": "for_gamma", "gamma": gamma}


def stop_asked(asked: Asked) -> int:
    """Return the requested stop of the slider."""
    text = need(asked, "stop", "a level of protection")
    if not text.isdecimal() or int(text) >= len(STOPS):
        raise InputError(f"The slider has stops 0 to {len(STOPS) - 1}.")
    return int(text)


def _leave_groups(values: MutableMapping[str, Any], name: str) -> list[str]:
    """Remove the joint channel or the blocks of a variable, and return the other variables in it."""
    others: list[str] = []
    for kind in ("joint", "blocks"):
        for group in list(values.get(kind, ())):
            names = _names_of(group)
            if name in names:
                values[kind].remove(group)
                others += [other for other in names if other != name]
        if not values.get(kind, True):
            del values[kind]
    return others


def _join(values: MutableMapping[str, Any], asked: Asked) -> None:
    names, gamma = several(asked, "names"), need(asked, "gamma", "the γ of the combination")
    if len(names) < 2 or any(name not in values["variables"] for name in names):
        raise InputError("Choose two or more variables to disguise together.")
    others = [other for name in names for other in _leave_groups(values, name) if other not in names]
    for name in names:
        values["variables"][name].pop("channel", None)
    channel = {"kind": "for_gamma", "gamma": gamma}
    values.setdefault("joint", []).append({"variables": list(names), "channel": channel})
    _share_limit(values, others)


def _matrix(variables: MutableMapping[str, Any], name: str, asked: Asked) -> None:
    """Set how many of 100 people in each category report the truth; the rest report the others equally."""
    kept = several(asked, "kept")
    size = len(kept)
    rows = []
    for place, text in enumerate(kept):
        if not text.isdecimal() or not 0 <= int(text) <= 100:
            raise InputError(
                "The number of people, out of 100, who report the truth must be a whole number from 0 to 100."
            )
        rest = Fraction(100 - int(text), 100 * max(size - 1, 1))
        rows.append([Fraction(int(text), 100) if other == place else rest for other in range(size)])
    variables[name]["channel"] = {"kind": "matrix", "rows": [[str(chance) for chance in row] for row in rows]}


WHOLE: dict[str, Callable[[MutableMapping[str, Any], Asked], None]] = {
    "add": _add,
    "join": _join,
    "limit": _limit,
    "split": _split,
}
SINGLE: dict[str, Callable[[MutableMapping[str, Any], str, Asked], None]] = {
    "drop": _drop,
    "clear": _clear,
    "gamma": _gamma,
    "matrix": _matrix,
}
