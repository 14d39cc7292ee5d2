"""What was collected as a table of reports: shuffled, labelled, with the policy inside."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.disguising.columns import marks, permutation
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.metadata import with_metadata
from masquerade.services.survey.store import MODES, SurveyStore

MODE = "mode"


def table_of(store: SurveyStore, policy: Policy) -> pa.Table:
    """Return the reports under a policy, in random order, with `mode`: whose chance drew them."""
    rows = [(mode, codes) for name, mode, _, codes in store.reports() if name == policy.id]
    order = permutation(len(rows)).tolist()
    columns = {
        variable.name: pa.array(
            [variable.categories[rows[i][1][place]] for i in order], _type(variable.categories)
        )
        for place, variable in enumerate(policy.observed.variables)
    }
    if MODE not in columns:
        columns[MODE] = pa.array([MODES[rows[i][0]] for i in order], pa.string())
    about = marks(policy, {}) | {"policy_content": json.dumps(policy.to_dict())}
    table: pa.Table = with_metadata(pa.table(columns), about)
    return table


def _type(categories: tuple[object, ...]) -> pa.DataType:
    kinds = {type(label) for label in categories}
    return pa.bool_() if kinds == {bool} else pa.int64() if kinds == {int} else pa.string()


def export(
    store: SurveyStore, target: str | Path, version: str | None = None, *, overwrite: bool = False
) -> int:
    """Write the reports of one version (.csv, .parquet, .arrow); return how many there are.

    Versions of an amended survey differ in their policies: each is a file of its own, and `mq.Merged` pools
    them.
    """
    versions = store.versions()
    meant = [name for name in versions if version is None or name.startswith(version)]
    filled = {name for name, _, _, _ in store.reports()}
    if version is None and len(meant) > 1:
        meant = [name for name in meant if name in filled] or meant[:1]
    if len(meant) != 1:
        known = ", ".join(name[:12] for name in versions)
        raise InputError(f"Name one of the survey's versions by the beginning of its policy id: {known}.")
    policy = versions[meant[0]]
    table = table_of(store, policy)
    about = marks(policy, {}) | {"policy_content": json.dumps(policy.to_dict())}
    with AtomicWriter(target, table.schema, about, overwrite=overwrite) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return len(table)
