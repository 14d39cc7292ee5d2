"""What was collected as a table of reports: shuffled, labelled, with the policy inside, and its codebook.

All reports leave after closing. While the survey is open only published ones do (`batches`), which a running
collector gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.formatting import category_text
from masquerade.disguising.columns import carried, marks, permutation
from masquerade.frames.ddi import Wording, codebook
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.metadata import described, with_metadata
from masquerade.survey.collector.store import MODES, SurveyStore
from masquerade.survey.forms.survey_file import Survey

MODE = "mode"
OPEN = (
    "The survey is open: all reports leave it when it is closed (masquerade survey close). Until then the "
    "running collector gives those of whole batches, if its settings have an export_token."
)


def complete(store: SurveyStore) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
    """Return the number of equal reports of a closed survey, by policy; raise InputError if it is open."""
    if store.closed is None:
        raise InputError(OPEN)
    return store.counted()


def table_of(
    counts: Mapping[tuple[int, tuple[int, ...]], int], policy: Policy, survey: Survey | None = None
) -> pa.Table:
    """Return reports under a policy, in random order, with `mode`: whose chance drew them."""
    rows = [content for content, number in counts.items() for _ in range(number)]
    order = permutation(len(rows)).tolist()
    asked = {} if survey is None else {name: next(iter(told.question.values()))
                                       for name, told in wordings(survey).items()}  # fmt: skip
    fields, columns = [], []
    for place, variable in enumerate(policy.observed.variables):
        kind = _type(variable.categories)
        labels = [category_text(label) for label in variable.categories]
        fields.append(described(pa.field(variable.name, kind), asked.get(variable.name, ""), labels))
        columns.append(pa.array([variable.categories[rows[i][1][place]] for i in order], kind))
    if MODE not in policy.observed:
        fields.append(described(pa.field(MODE, pa.string()), "whose chance drew", MODES))
        columns.append(pa.array([MODES[rows[i][0]] for i in order], pa.string()))
    table: pa.Table = with_metadata(pa.table(columns, schema=pa.schema(fields)), _about(policy))
    return table


def wordings(survey: Survey) -> dict[str, Wording]:
    """Return what was asked, in every language, by variable."""
    return {question.name: Wording(question.text, question.answers) for question in survey.questions}


def _about(policy: Policy) -> dict[str, str]:
    return marks(policy, {}) | carried(policy)


def _type(categories: tuple[object, ...]) -> pa.DataType:
    kinds = {type(label) for label in categories}
    return pa.bool_() if kinds == {bool} else pa.int64() if kinds == {int} else pa.string()


def export(
    store: SurveyStore,
    target: str | Path,
    version: str | None = None,
    *,
    survey: Survey | None = None,
    codebook_to: str | Path | None = None,
    overwrite: bool = False,
    published: Mapping[str, Mapping[tuple[int, tuple[int, ...]], int]] | None = None,
) -> int:
    """Write the reports of one version (.csv, .parquet, .arrow, .sav, .dta, .xlsx); return how many they are.

    Versions of an amended survey differ in their policies: each is a file of its own, and `mq.Merged` pools
    them. The questions of `survey` are labels where a format has them, and stand in the codebook (DDI).
    An open survey raises InputError, unless its `published` reports are given.
    """
    versions = store.versions()
    reports = complete(store) if published is None else published
    meant = [name for name in versions if version is None or name.startswith(version)]
    if version is None and len(meant) > 1:
        meant = [name for name in meant if reports.get(name)] or meant[:1]
    if len(meant) != 1:
        known = ", ".join(name[:12] for name in versions)
        raise InputError(f"Name one of the survey's versions by the beginning of its policy id: {known}.")
    policy = versions[meant[0]]
    if codebook_to is not None and Path(codebook_to).exists() and not overwrite:
        raise FileError(f"{codebook_to}: exists already; overwrite=True (--overwrite) replaces it.")
    table = table_of(reports.get(policy.id, {}), policy, survey)
    with AtomicWriter(target, table.schema, _about(policy), overwrite=overwrite) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    if codebook_to is not None:
        more = {} if MODE in policy.observed else {MODE: MODES}
        title = None if survey is None else survey.text(survey.spec.title)
        told = {} if survey is None else wordings(survey)
        written = codebook(policy, cases=len(table), title=title, wordings=told, more=more,
                           file_name=Path(target).name)  # fmt: skip
        write_whole(Path(codebook_to), written)
    return len(table)
