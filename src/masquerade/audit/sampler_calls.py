"""Call a sampler as a black box: its signature, its reports, and their labels."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, MasqueradeError

Draw = Callable[[Any, int], Any]


def vectorize_sampler(sampler: Callable[..., Any]) -> Draw:
    """Return the sampler as a function of a truth and a number of reports."""
    try:
        parameters = list(inspect.signature(sampler).parameters.values())
    except (TypeError, ValueError):
        parameters = []  # a C function without a signature
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty]
    if len(needed) >= 2:
        return sampler
    return lambda truth, n: [sampler(truth) for _ in range(n)]


def draw_reports(draw: Draw, truth: Any, n: int) -> Any:
    """Draw `n` reports of a truth, as an array or a list."""
    try:
        reports = draw(truth, n)
    except MasqueradeError:
        raise
    except Exception as error:
        raise InputError(f"The sampler failed with {type(error).__name__}: {error}") from error
    if not isinstance(reports, np.ndarray):
        reports = list(reports)
        if reports and isinstance(reports[0], np.ndarray):
            reports = np.stack(reports)
    if len(reports) != n:
        raise InputError(f"The sampler must return {n:,} reports. Got {len(reports):,} instead.")
    return reports


def plain_label(report: Any) -> Hashable:
    """Return a report as a plain value that can be counted."""
    if isinstance(report, np.ndarray):
        return tuple(report.tolist())
    if isinstance(report, list):
        return tuple(report)
    if isinstance(report, (set, dict)):
        return frozenset(report)
    plain: Hashable = report.item() if isinstance(report, np.generic) else report
    return plain


def code_reports(reports: Any) -> tuple[list[Hashable], NDArray[np.int64]]:
    """Return the distinct reports as plain values, and the index of each report's value."""
    if isinstance(reports, np.ndarray) and reports.dtype.kind in "biuf" and reports.size:
        values, codes = np.unique(reports, axis=0, return_inverse=True)
        return [plain_label(value) for value in values], codes.ravel().astype(np.int64)
    places: dict[Hashable, int] = {}
    codes = np.array([places.setdefault(plain_label(one), len(places)) for one in reports], dtype=np.int64)
    return list(places), codes


def hash_reports(reports: Any) -> NDArray[np.uint16]:
    """Return 16 bits of a hash of every report, equal for equal reports in every process."""
    labels, codes = code_reports(reports)
    digests = [hashlib.sha256(_text(label).encode()).digest()[:2] for label in labels]
    return np.frombuffer(b"".join(digests), dtype=np.uint16)[codes]


def _text(label: Hashable) -> str:
    """Return a text that is the same for equal labels, whatever the order in which a set was filled."""
    if isinstance(label, frozenset):
        return repr(sorted(map(repr, label)))
    return repr(label)
