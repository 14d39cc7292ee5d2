"""Typed access to the numbers of a setting."""

from __future__ import annotations

from typing import cast

from masquerade_experiments.experiment import Setting


def number(setting: Setting, name: str) -> float:
    """Return a number of a setting."""
    return float(cast("float", setting[name]))


def whole(setting: Setting, name: str) -> int:
    """Return a whole number of a setting."""
    return int(cast("int", setting[name]))
