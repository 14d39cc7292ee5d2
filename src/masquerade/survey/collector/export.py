"""Export of reports as a table: shuffled, labelled, with the policy in its metadata, and with a codebook.

All reports are exported after the survey is closed. While it is open, the running collector provides only
published reports (`batches`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.formatting import category_text
from masquerade.disguising.columns import (
    disguised_reports,
    marks,
    missing_labels,
    permutation,
    policy_metadata,
)
from masquerade.frames.ddi import Wording, codebook
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.metadata import describe_column, with_metadata
from masquerade.survey.collector.store import MODES, SurveyStore
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.team_words import say_among

MODE = "mode"
OPEN = (
    "The survey is open. All reports can be exported when it is closed (masquerade survey close). Until then "
    "the running collector provides published batches, if its settings have an export_token."
)


def complete(store: SurveyStore) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
    """Return the number of equal reports of a closed survey, by policy; raise InputError if it is open."""
    if store.closed_on is None:
        raise InputError(OPEN)
    return store.count_reports()


def table_of(
    counts: Mapping[tuple[int, tuple[int, ...]], int], policy: Policy, survey: Survey | None = None
) -> pa.Table:
    """Return the reports under a policy in random order; the column `mode` is their source of randomness."""
    rows = [content for content, number in counts.items() for _ in range(number)]
    order = permutation(len(rows)).tolist()
    labels_of = {} if survey is None else column_labels(survey, policy)
    fields, columns = [], []
    for place, variable in enumerate(policy.observed.variables):
        kind = _type(variable.categories)
        labels = [category_text(label) for label in variable.categories]
        field = pa.field(variable.name, kind)
        fields.append(describe_column(field, labels_of.get(variable.name, ""), labels))
        columns.append(pa.array([variable.categories[rows[i][1][place]] for i in order], kind))
    if MODE not in policy.observed:
        fields.append(describe_column(pa.field(MODE, pa.string()), "source of randomness", MODES))
        columns.append(pa.array([MODES[rows[i][0]] for i in order], pa.string()))
    table: pa.Table = with_metadata(pa.table(columns, schema=pa.schema(fields)), _about(policy))
    return table


def wordings(survey: Survey) -> dict[str, Wording]:
    """Return the texts of question and answers, and who was asked, in every language, by variable."""
    return {
        question.name: Wording(
            question.text,
            question.answers,
            {
                language: sentence
                for language in survey.languages
                if (sentence := say_among(survey, question, language)) is not None
            },
        )
        for question in survey.questions
    }


def column_labels(survey: Survey, policy: Policy) -> dict[str, str]:
    """Return a label of every report column in the survey's first language.

    The condition of a follow-up comes first, since programs cut labels off. A column that reports several
    questions together has the texts of all of them.
    """
    texts = {question.name: next(iter(question.text.values())) for question in survey.questions}
    conditions = {
        question.name: {
            name: [category_text(survey.policy.schema[name].categories[code]) for code in codes]
            for name, codes in question.shown.items()
        }
        for question in survey.questions
    }
    labels = {}
    for group in policy.groups:
        for column in group.reports:
            names = [column] if column in texts else [name for name in group.names if name in texts]
            labels[column] = " / ".join(_condition(conditions[name]) + texts[name] for name in names)
    return labels


def _condition(shown: Mapping[str, Sequence[str]]) -> str:
    """Return a condition by the names of variables, as an analyst reads it; nothing if there is none."""
    parts = [f"{name} = {' or '.join(answers)}" for name, answers in shown.items()]
    return f"[if {' and '.join(parts)}] " if parts else ""


def write_texts(store: SurveyStore, target: str | Path, *, overwrite: bool = False) -> int:
    """Write what people wrote in their own words, in random order and apart from all other answers.

    Parameters
    ----------
    store : SurveyStore
        Store of a closed survey.
    target : str or Path
        File to write, with the columns `question` and `text`.
    overwrite : bool
        True if an existing file may be replaced.

    Returns
    -------
    int
        Number of texts.

    Raises
    ------
    InputError
        If the survey is open.
    """
    if store.closed_on is None:
        raise InputError("What people wrote can be exported when the survey is closed (survey close).")
    texts = store.texts()
    shuffled = [texts[i] for i in permutation(len(texts)).tolist()]
    table = pa.table(
        {"question": [name for name, _ in shuffled], "text": [text for _, text in shuffled]},
        schema=pa.schema({"question": pa.string(), "text": pa.string()}),
    )
    with AtomicWriter(target, table.schema, {}, overwrite=overwrite) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return len(texts)


def _about(policy: Policy) -> dict[str, str]:
    return marks(policy, {}) | policy_metadata(policy)


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
    """Write the reports of one version to a file.

    Versions of an amended survey differ in their policies: each needs a file, and `mq.Merged` pools them.

    Parameters
    ----------
    store : SurveyStore
        Store of the survey.
    target : str or Path
        File to write: .csv, .parquet, .arrow, .sav, .dta or .xlsx.
    version : str, optional
        Start of the id of a policy. Without it, the version that has reports.
    survey : Survey, optional
        Its questions become labels, if the format has labels, and are included in the codebook.
    codebook_to : str or Path, optional
        File for the codebook (DDI).
    overwrite : bool
        True if existing files may be replaced.
    published : mapping, optional
        Published reports of an open survey.

    Returns
    -------
    int
        Number of reports.

    Raises
    ------
    InputError
        If the version is not unique, or the survey is open and there are no `published` reports.
    FileError
        If a file exists, or cannot be written.
    """
    versions = store.versions()
    reports = complete(store) if published is None else published
    names = [name for name in versions if version is None or name.startswith(version)]
    if version is None and len(names) > 1:
        names = [name for name in names if reports.get(name)] or names[:1]
    if len(names) != 1:
        choices = ", ".join(name[:12] for name in versions)
        raise InputError(f"Name one version of the survey by the start of its policy id: {choices}.")
    policy = versions[names[0]]
    return write_reports(
        reports.get(policy.id, {}),
        policy,
        target,
        survey=survey,
        codebook_to=codebook_to,
        overwrite=overwrite,
    )


def write_reports(
    counts: Mapping[tuple[int, tuple[int, ...]], int],
    policy: Policy,
    target: str | Path,
    *,
    survey: Survey | None = None,
    codebook_to: str | Path | None = None,
    overwrite: bool = False,
) -> int:
    """Write counted reports to a file, and a codebook that has the file's own types and codes.

    Parameters
    ----------
    counts : mapping
        Number of equal reports, by mode and codes.
    policy : Policy
        Policy of the reports.
    target : str or Path
        File to write. Its labels and notes state which columns are disguised.
    survey : Survey, optional
        Its questions become labels, and are included in the codebook.
    codebook_to : str or Path, optional
        File for the codebook (DDI).
    overwrite : bool
        True if existing files may be replaced.

    Returns
    -------
    int
        Number of reports.
    """
    if codebook_to is not None and Path(codebook_to).exists() and not overwrite:
        raise FileError(f"{codebook_to}: exists already; overwrite=True (--overwrite) replaces it.")
    table = table_of(counts, policy, survey)
    with AtomicWriter(
        target,
        table.schema,
        _about(policy),
        overwrite=overwrite,
        disguised=disguised_reports(policy),
        missing=missing_labels(policy),
    ) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    if codebook_to is not None:
        document = codebook(
            policy,
            cases=len(table),
            title=None if survey is None else survey.text(survey.spec.title),
            wordings={} if survey is None else wordings(survey),
            more={} if MODE in policy.observed else {MODE: MODES},
            file_name=Path(target).name,
        )
        write_whole(Path(codebook_to), document)
    return len(table)
