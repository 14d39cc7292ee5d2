"""Format numbers for the report, with as many digits as their errors allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from masquerade_experiments.experiment import Comparison

NONE = "–"
SETTING_DIGITS = 4


def figure(value: float, digits: int = SETTING_DIGITS) -> str:
    """Format a number with `digits` significant digits.

    >>> figure(0.123456), figure(12345.0), figure(3.0), figure(-0.0)
    ('0.1235', '12,345', '3', '0')
    """
    if not math.isfinite(value):
        return NONE if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e9:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.{digits - 1}e}"
    return text.replace("-", "−")


def with_error(value: float, stderr: float) -> str:
    """Format a number and its standard error to the error's second digit; an unknown error is "–".

    >>> with_error(0.41234, 0.00567), with_error(1234.5, 56.7), with_error(0.5, 0.0)
    ('0.4123 ± 0.0057', '1,234 ± 57', '0.5')
    >>> with_error(0.41234, float("nan"))
    '0.4123 ± –'
    """
    if math.isfinite(value) and math.isnan(stderr):
        return f"{figure(value)} ± {NONE}"
    if not (math.isfinite(value) and math.isfinite(stderr)) or stderr <= 0:
        return figure(value)
    if stderr < 1e-6 * max(1e-3, abs(value)) or abs(value) >= 1e9:
        return f"{figure(value)} ± {figure(stderr, 2)}"
    places = max(0, 1 - math.floor(math.log10(stderr)))
    if places > 8:
        return f"{figure(value)} ± {figure(stderr, 2)}"
    text = f"{value:,.{places}f} ± {stderr:,.{places}f}"
    return text.replace("-", "−")


def setting_text(setting: Mapping[str, Any]) -> str:
    """Format a setting in one line.

    >>> setting_text({"n": 1000, "p": 0.3})
    'n=1000, p=0.3'
    """
    return ", ".join(f"{name}={value}" for name, value in setting.items()) or "the only setting"


def paper_text(comparison: Comparison) -> str:
    """Return the value or bound of the paper, and its precision.

    >>> paper_text(Comparison("share", 0.7, 0.71, paper_stderr=0.0042, reading=0.005, rule="at most"))
    'at most 0.7 ± 0.0042, to within 0.005'
    """
    if comparison.paper is None:
        return NONE
    bound = "" if comparison.rule == "equal" else f"{comparison.rule} "
    error = f" ± {figure(comparison.paper_stderr, 2)}" if comparison.paper_stderr else ""
    reading = f", to within {figure(comparison.reading, 2)}" if comparison.reading else ""
    return f"{bound}{figure(comparison.paper)}{error}{reading}"


def difference_text(comparison: Comparison) -> str:
    """Return the difference in standard errors, or the difference itself if there is no standard error."""
    if comparison.paper is None or not math.isfinite(comparison.ours):
        return NONE
    if comparison.z is not None:
        return f"{round(comparison.z, 1) + 0.0:+,.1f} s.e.".replace("-", "−")
    gap = comparison.ours - comparison.paper
    return "0" if gap == 0 else ("+" if gap > 0 else "") + figure(gap)
