"""What pages send, compared with the policies of a survey: nothing else is taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey.collector.store import MODES, Report

FIELDS: Final = frozenset({"policy", "id", "mode", "reports", "token"})


def report_of(values: Mapping[str, Any], versions: Mapping[str, Policy], *, own_chance: bool) -> Report:
    """Return the report in a message, without its token, which the collector judges."""
    if set(values) != FIELDS:
        raise InputError("A report says its policy, id, mode, reports and token, and nothing else.")
    policy = versions.get(values["policy"]) if isinstance(values["policy"], str) else None
    if policy is None:
        raise InputError("This is a report under another policy than those of this survey.")
    mode = values["mode"]
    if type(mode) is not int or not 0 <= mode < (len(MODES) if own_chance else 1):
        raise InputError("The mode is not one of this survey.")
    return Report(bytes_of(values["id"], 16, "id"), policy.id, mode, _codes(values["reports"], policy))


def bytes_of(given: object, size: int, name: str) -> bytes:
    """Return so many bytes, which are written as hexadecimal digits."""
    if not isinstance(given, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", given):
        raise InputError(f"{name!r} must be {2 * size} hexadecimal digits.")
    return bytes.fromhex(given)


def _codes(given: object, policy: Policy) -> tuple[int, ...]:
    variables = policy.observed.variables
    if not isinstance(given, list) or len(given) != len(variables):
        raise InputError(f"'reports' must be a list of {len(variables)} codes.")
    for code, variable in zip(given, variables, strict=True):
        if type(code) is not int or not 0 <= code < len(variable):
            raise InputError(f"'reports': a code of {variable.name!r} is not one of its categories.")
    place_of = {variable.name: place for place, variable in enumerate(variables)}
    for group in policy.groups:
        if group.response is not None:
            block, own = (given[place_of[name]] for name in group.reports)
            if own >= group.response.block_classes[block]:
                raise InputError(f"'reports': {group.reports[1]!r} is no class of its block.")
    return tuple(given)
