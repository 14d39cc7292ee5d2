"""Disguise the columns of a policy in any frame or file, and check the columns that may pass in clear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import category_text
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.report_draws import Draws, disguise_codes
from masquerade.frames.label_codes import dictionary_of, encode_columns
from masquerade.frames.metadata import INCOMPLETE, MEMO, MOST_POLICY_TEXT, POLICY_TEXT


def marks(policy: Policy, said: Mapping[str, str], memo: str | None = None) -> dict[str, str]:
    """Return the metadata of disguised records: policy, id of the memo, and which records are missing."""
    drawn = {} if memo is None else {MEMO: memo}
    return {"policy": policy.id} | drawn | {key: text for key, text in said.items() if key == INCOMPLETE}


def policy_metadata(policy: Policy) -> dict[str, str]:
    """Return the policy as metadata for a file of disguised records; empty if it is too large."""
    text = policy.public_text() or ""
    return {POLICY_TEXT: text} if 0 < len(text.encode()) <= MOST_POLICY_TEXT else {}


def missing_labels(policy: Policy) -> dict[str, list[str]]:
    """Return the labels of missing values, as text, of each report column that has any."""
    return {
        variable.name: [category_text(label) for label in variable.missing]
        for variable in policy.observed.variables
        if variable.missing
    }


def disguised_reports(policy: Policy) -> tuple[str, ...]:
    """Return the report columns that are disguised: they must not be tabulated as they are."""
    hidden = set(policy.disguised)
    return tuple(
        name for group in policy.groups if hidden.intersection(group.names) for name in group.reports
    )


def refuse_disguised(metadata: Mapping[str, str], what: str) -> None:
    """Raise InputError if metadata states that the records are already disguised."""
    if "policy" in metadata:
        raise InputError(
            f"{what}: was disguised under policy {metadata['policy'][:12]} already; estimates from records "
            "disguised twice would be wrong."
        )


def checked_keep(keep: Sequence[str] | str, policy: Policy) -> tuple[str, ...]:
    """Return the columns to keep; raise InputError if the policy disguises one of them."""
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    for name in names:
        if name in policy.schema:
            raise InputError(f"{name!r} is a variable of the policy and cannot be kept in clear.")
        if name in policy.observed:
            raise InputError(f"{name!r} is a report of the policy: rename the column to keep it.")
    return names


def shown_columns(names: Iterable[str], policy: Policy, kept: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of disguised records, in the order of the clear columns.

    A joint report takes the position of its first variable.
    """
    shown: dict[str, None] = {}
    for name in names:
        if name in policy.schema:
            shown |= dict.fromkeys(policy.group(name).reports if policy.group(name).own_report else (name,))
        elif name in kept:
            shown[name] = None
    return tuple(shown)


def disguise_columns(
    columns: Mapping[str, Any], policy: Policy, draws: Draws, *, text: bool
) -> dict[str, pa.DictionaryArray]:
    """Encode and draw the columns of a policy; `text` states that they come from a CSV."""
    codes = encode_columns(columns, policy.fields, text=text)
    reports = disguise_codes(codes, policy, draws)
    return {
        variable.name: dictionary_of(reports[variable.name], variable.categories)
        for variable in policy.observed.variables
    }


def permutation(rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a random permutation of the rows from OS randomness (ties among 64-bit keys are negligible)."""
    return np.argsort(Keystream()(8 * rows).view(np.uint64), kind="stable")
