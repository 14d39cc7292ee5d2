"""Disguised reports that two aggregators added up under DAP: a Prio3 histogram as a source of counts.

People disguise as the policy says, on their own devices; the report is a cell of all reported variables
together, and its number the measurement of a ``Prio3Histogram`` task. Aggregators that do not collude learn
nothing of a report; the collector learns the histogram, and from it estimates whatever it could from the
reports. Nothing here aggregates: that is what Janus, Daphne or others do. What comes in is a collector's
result as JSON::

    {"masquerade_dap": 1, "policy": "<sha256>", "vdaf": "Prio3Histogram", "report_count": 9, "counts": […]}

or, in place of `counts`, the decrypted aggregate shares in hexadecimal digits with the number of the draft of
VDAF that they follow: ``"draft": 18, "shares": ["…", "…"]``. A share is a vector of Field128, 16 bytes
little-endian each, as the test vectors of two drafts have it. Shares of any other form give counts that do
not add up to the reports, and are refused.

Reference: draft-irtf-cfrg-vdaf §7.4.4, draft-ietf-ppm-dap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt, prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from masquerade.channels.policy import Policy, policy_of
from masquerade.core.errors import FileError, InputError
from masquerade.core.schema import Category
from masquerade.core.util.json_text import read_json
from masquerade.protocols.people.questions import Counts, Question
from masquerade.sources.people.count_rounds import KnownCounts

VDAF: Final = "Prio3Histogram"
DRAFTS: Final = range(12, 21)  # of VDAF; whose shares are read
FIELD: Final = 2**66 * 4611686018427387897 + 1  # the modulus of Field128
BYTES: Final = 16
MOST_CELLS: Final = 10_000
MOST_REPORTS: Final = 2**53
MOST_SHARES: Final = 16
KEYS: Final = {"masquerade_dap", "policy", "vdaf", "report_count", "counts", "draft", "shares"}


def to_dap(policy: Policy) -> dict[str, Any]:
    """Return the parameters of the task that collects reports of a policy: length, and what its cells are.

    The report of a person is one cell: their reports of all `variables`, the last varying quickest.

    >>> task = mq.interop.to_dap(mq.data.students_policy())
    >>> task["vdaf"], task["length"]
    ('Prio3Histogram', 24)
    """
    length = _cells(policy)
    return {
        "vdaf": VDAF,
        "length": length,
        "chunk_length": max(1, isqrt(length - 1) + 1),
        "policy": policy.id,
        "variables": {one.name: list(one.categories) for one in policy.observed.variables},
    }


def dap_cell(policy: Policy, reports: Mapping[str, Category]) -> int:
    """Return the measurement of a person's reports: their place among the cells of `to_dap`.

    >>> person = {"exams": "few", "year": 2, "pills": "no", "sleep": "good"}
    >>> mq.interop.dap_cell(mq.data.students_policy(), person)
    7
    """
    missing = [name for name in policy.observed if name not in reports]
    if missing:
        raise InputError(f"There is no report of {missing[0]!r}.")
    codes = [one.code(reports[one.name]) for one in policy.observed.variables]
    return int(np.ravel_multi_index(codes, policy.observed.shape(policy.observed)))


def from_dap(values: object, policy: Policy | str | Path) -> KnownCounts:
    """Return a collector's result as a source of counts; whatever is wrong is an `InputError`.

    >>> policy = mq.Policy.build({"pills": ["yes", "no"]}, {"pills": mq.channels.binary("0.25")})
    >>> result = {"masquerade_dap": 1, "policy": policy.id, "vdaf": "Prio3Histogram"}
    >>> source = mq.interop.from_dap(result | {"report_count": 1000, "counts": [400, 600]}, policy)
    >>> source.answer([mq.Query(by="pills")])[0].values.round(6).tolist()
    [300.0, 700.0]
    """
    loaded = policy_of(policy)
    if not isinstance(values, Mapping) or not _is_number(values.get("masquerade_dap"), [1]):
        raise InputError("not a result of DAP: it must have 'masquerade_dap': 1.")
    unknown = sorted(str(key) for key in values.keys() - KEYS)
    if unknown:
        raise InputError(f"{unknown[0]!r} is no key of a result of DAP.")
    if values.get("vdaf") != VDAF:
        raise InputError(f"'vdaf' must be {VDAF}: other functions add up something else.")
    if values.get("policy") != loaded.id:
        raise InputError("the result is of reports under another policy: 'policy' must be its sha256.")
    length, n = _cells(loaded), _whole(values.get("report_count"), "report_count")
    if ("counts" in values) == ("shares" in values):
        raise InputError("a result has either 'counts' or 'shares'.")
    if "shares" in values:
        if not _is_number(values.get("draft"), DRAFTS):
            raise InputError(
                f"'draft' must be the draft of VDAF that the shares follow, {DRAFTS[0]} to {DRAFTS[-1]}."
            )
        counts = unshard(_shares(values["shares"]), length)
    else:
        counts = _listed(values["counts"])
    if len(counts) != length:
        raise InputError(f"the histogram must have {length:,} cells. Got {len(counts):,} instead.")
    if max(counts) > n or sum(counts) != n:
        raise InputError("the cells of the histogram do not add up to 'report_count'.")
    shape = loaded.observed.shape(loaded.observed)
    table: Counts = np.array(counts, dtype=np.int64).reshape(shape)
    return KnownCounts(loaded, {Question.about(loaded.observed, {}, loaded.observed): table}, n)


def read_dap(path: str | Path, policy: Policy | str | Path) -> KnownCounts:
    """Return the result in a JSON file as a source of counts; see `from_dap`.

    >>> import json, pathlib
    >>> policy = mq.Policy.build({"pills": ["yes", "no"]}, {"pills": mq.channels.binary("0.25")})
    >>> result = {"masquerade_dap": 1, "policy": policy.id, "vdaf": "Prio3Histogram", "report_count": 1000}
    >>> _ = pathlib.Path("sums.json").write_text(json.dumps(result | {"counts": [400, 600]}))
    >>> mq.interop.read_dap("sums.json", policy).answer([mq.Query(by="pills")])[0].values.round(6).tolist()
    [300.0, 700.0]
    """
    values = read_json(Path(path))
    try:
        return from_dap(values, policy)
    except InputError as error:
        raise FileError(f"{path}: {error}") from None


def unshard(shares: Sequence[bytes], length: int) -> list[int]:
    """Return the sums, cell by cell, of aggregate shares: elements of Field128, modulo its prime."""
    if len(shares) < 2:
        raise InputError("a result has the shares of at least two aggregators.")
    if any(len(share) != BYTES * length for share in shares):
        raise InputError(f"a share of {length:,} cells has {BYTES * length:,} bytes.")
    elements = [
        [int.from_bytes(share[at : at + BYTES], "little") for at in range(0, len(share), BYTES)]
        for share in shares
    ]
    if any(element >= FIELD for share in elements for element in share):
        raise InputError("a share has a number beyond its field.")
    return [sum(cell) % FIELD for cell in zip(*elements, strict=True)]


def _cells(policy: Policy) -> int:
    length = prod(policy.observed.shape(policy.observed))
    if length > MOST_CELLS:
        raise InputError(
            f"A histogram has at most {MOST_CELLS:,} cells; the reports of this policy have {length:,}."
        )
    return length


def _is_number(value: object, among: Sequence[int]) -> bool:
    """Return True if the value is one of these whole numbers: neither true nor 1.0 is 1."""
    return type(value) is int and value in among


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_REPORTS:
        raise InputError(f"{name!r} must be a whole number from 1.")
    return value


def _listed(values: object) -> list[int]:
    if not isinstance(values, list) or len(values) > MOST_CELLS:
        raise InputError(f"'counts' must be a list of at most {MOST_CELLS:,} whole numbers.")
    if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in values):
        raise InputError("'counts' must be whole numbers of 0 or more.")
    return values


def _shares(values: object) -> list[bytes]:
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_SHARES:
        raise InputError(f"'shares' must be a list of 2 to {MOST_SHARES} texts.")
    try:
        return [bytes.fromhex(one) for one in values]
    except (TypeError, ValueError):
        raise InputError("'shares' must be texts of hexadecimal digits.") from None
