"""Expected shares of a plan: from a file, from a published release, or uniform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from masquerade.channels.policy import text as policy_text
from masquerade.channels.rationals import rational
from masquerade.core.axes import Floats
from masquerade.core.errors import ChannelError, InputError, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.tally import Tally

Prior = Mapping[str, Sequence[float] | Mapping[object, float]] | str | Path | Tally


def expected_shares(prior: Prior | None, schema: Schema) -> tuple[dict[str, Floats], frozenset[str]]:
    """Return the expected shares of every variable, and the variables for which they were given.

    A prior is a mapping from variables to shares (in the schema's order, or by category), a YAML or JSON file
    of such a mapping, or a published release, such as a pilot study, whose counts are estimated. Clear data
    are not accepted: a plan made with them would publish them.

    >>> from masquerade.plan import expected_shares
    >>> schema = mq.Schema({"smoker": ["yes", "no"], "region": ["north", "south"]})
    >>> shares, given = expected_shares({"smoker": {"yes": 0.2, "no": 0.8}}, schema)
    >>> shares["smoker"].tolist(), shares["region"].tolist(), sorted(given)
    ([0.2, 0.8], [0.5, 0.5], ['smoker'])
    """
    uniform = {name: np.full(len(schema[name]), 1.0 / len(schema[name])) for name in schema}
    if prior is None:
        return uniform, frozenset()
    if isinstance(prior, (str, Path)):
        values = policy_text.read(Path(prior))
    elif isinstance(prior, Mapping):
        values = prior
    elif isinstance(prior, Tally):
        values = _of_release(prior, schema)
    else:
        raise InputError(
            "'prior' must be shares by variable, a file of them, or a release: mq.tally(pilot, policy). "
            f"Got a {type(prior).__name__}. Clear data are not accepted: the plan would publish them."
        )
    if not isinstance(values, Mapping):
        raise InputError("a prior must list variables with their shares, such as {smoker: [0.2, 0.8]}.")
    for name, shares in values.items():
        if name not in schema:
            raise InputError(f"the prior names an unknown variable, {name!r}.{did_you_mean(name, schema)}")
        uniform[name] = _check_shares(shares, name, schema)
    return uniform, frozenset(map(str, values))


def _of_release(release: Tally, schema: Schema) -> dict[str, list[float]]:
    shared = [name for name in schema if name in release.schema and release.schema[name] == schema[name]]
    if not shared:
        raise InputError("the release given as a prior has no variable of the plan with the same categories.")
    tables = release.answer([Query(by=name) for name in shared])
    found = {}
    for name, table in zip(shared, tables, strict=True):
        values = np.maximum(table.nonnegative().values, 0.0) + 0.5  # no category is impossible
        found[name] = (values / values.sum()).tolist()
    return found


def _check_shares(shares: object, name: str, schema: Schema) -> Floats:
    variable = schema[name]
    if isinstance(shares, Mapping):
        listed: list[object] = [0.0] * len(variable)
        for label, share in shares.items():
            listed[variable.code(label)] = share
    elif isinstance(shares, (Sequence, np.ndarray)) and not isinstance(shares, str):
        listed = list(shares)
    else:
        listed = []
    try:
        values = np.array([float(rational(share, "share")) for share in listed])
    except ChannelError:
        values = np.array([])
    if len(values) != len(variable) or np.any(values < 0) or abs(values.sum() - 1) > 1e-6:
        got = f"Got {len(values)} that sum to {values.sum():g}." if len(values) else "Got something else."
        raise InputError(
            f"the prior of {name!r} must be {len(variable)} shares that sum to 1, such as "
            f"{[round(1 / len(variable), 3)] * min(len(variable), 3)}. {got}"
        )
    return np.asarray(values / values.sum())
