"""A release as a folder for archives and other tools: data, policy, codebook, audit, hashes.

::

    data.parquet      the disguised records, in random order (or data.csv and its metadata file)
    policy.yaml       the channels, exactly
    codebook.xml      DDI Codebook 2.5, for archives
    croissant.json    Croissant 1.1, for machine learning
    audit.html, .json what the release reveals
    README.md         for people
    SHA256SUMS        `sha256sum -c SHA256SUMS`, or `masquerade release check`

The folder is written atomically.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import pyarrow as pa

from masquerade import __version__
from masquerade.audit.coded_records import released_records
from masquerade.audit.findings import Audit
from masquerade.audit.release import audit_release
from masquerade.channels.policy import Policy, policy_of
from masquerade.channels.policy.privacy import privacy
from masquerade.core.errors import FileError, InputError, MasqueradeError
from masquerade.core.query import Query
from masquerade.core.record_gamma import describe_clear_missing
from masquerade.core.util.atomic import sync_folder, write_whole
from masquerade.core.util.formatting import gamma_words
from masquerade.core.util.json_text import read_json, read_text
from masquerade.disguising.columns import marks, permutation, policy_metadata
from masquerade.frames.ddi import Wording, codebook
from masquerade.frames.file_reader import open_batches
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.label_codes import decode
from masquerade.frames.metadata import MEMO
from masquerade.interop.croissant_description import ENCODINGS, About, croissant
from masquerade.interop.sdmx import dataflow_name, to_sdmx_csv, to_sdmx_structure
from masquerade.learn.networks.files.xml_text import parse_xml
from masquerade.sources.tally import tally

POLICY, CODEBOOK, CROISSANT, README, SUMS = (
    "policy.yaml", "codebook.xml", "croissant.json", "README.md", "SHA256SUMS"
)  # fmt: skip
AUDIT_PAGE, AUDIT_VALUES, TABLES = "audit.html", "audit.json", "tables"
MOST_LISTED: Final = 1 << 20  # bytes of a list of hashes
MOST_CODEBOOK: Final = 1 << 26
_SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_PIECE: Final = 1 << 20
COLUMN: Final = "column "


@dataclass(frozen=True)
class ReleaseFolder:
    """A written release.

    Attributes
    ----------
    path : Path
        The folder.
    rows : int
        Number of records.
    policy_id : str
        sha256 of the policy.
    files : tuple of str
        Names of its files.
    left_out : tuple of str
        Columns of the data that were omitted.
    audit : Audit
        Result of the audit.
    memo : str or None
        Id of the memo that the reports were drawn from; None if they were drawn without a memo.

    Examples
    --------
    >>> mq.data.students().to_csv("students.csv", index=False)
    >>> policy = mq.data.students_policy()
    >>> _ = mq.disguise_file("students.csv", "reports.parquet", policy)
    >>> release = mq.interop.write_release("reports.parquet", policy, "release", attacker=False)
    >>> release.rows, release.left_out
    (600, ())
    """

    path: Path
    rows: int
    policy_id: str
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    audit: Audit
    memo: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "folder": str(self.path),
            "rows": self.rows,
            "policy": self.policy_id,
            "memo": self.memo,
            "files": list(self.files),
            "left_out": list(self.left_out),
            "audit": self.audit.headline,
        }


def write_release(
    data: str | Path,
    policy: Policy | str | Path,
    folder: str | Path,
    *,
    about: About | None = None,
    wordings: Mapping[str, Wording] | None = None,
    tables: Sequence[Sequence[str]] = (),
    form: str = "parquet",
    attacker: bool = True,
) -> ReleaseFolder:
    """Write the release folder of a disguised file.

    The file is audited first: a release that contradicts its claims is not written. Rows are shuffled.

    Parameters
    ----------
    data : str or Path
        Disguised file with the id of this policy in its metadata, as written by `disguise_file` and by
        surveys. Columns that the policy does not report are omitted.
    policy : Policy, str or Path
        The policy, or its file.
    folder : str or Path
        New folder to write.
    about : About, optional
        Facts about the release.
    wordings : mapping of str to Wording, optional
        Wording of the questions by variable, for the codebook.
    tables : sequence of sequence of str, optional
        Variables of tables whose estimated counts are added as SDMX-CSV.
    form : {"parquet", "csv"}
        Format of the data.
    attacker : bool, default True
        Run the attacks of the audit.

    Returns
    -------
    ReleaseFolder
        The folder and its contents.

    Raises
    ------
    InputError
        If the data are not marked as disguised under this policy, or the audit contradicts their claims.
    FileError
        If the folder exists or cannot be written.

    Examples
    --------
    >>> mq.data.students().to_csv("students.csv", index=False)
    >>> policy = mq.data.students_policy()
    >>> _ = mq.disguise_file("students.csv", "reports.parquet", policy)
    >>> release = mq.interop.write_release("reports.parquet", policy, "release", attacker=False)
    >>> [name for name in release.files if name.endswith((".parquet", ".xml", ".yaml"))]
    ['codebook.xml', 'data.parquet', 'policy.yaml']
    """
    loaded, target = policy_of(policy), Path(folder)
    name = f"data.{form}"
    if f".{form}" not in ENCODINGS:
        known = " or ".join(ending[1:] for ending in ENCODINGS)
        raise InputError(f"The data of a release are written as {known}. Got {form!r} instead.")
    _check_place(target)
    left_out = _check_marks(data, loaded)
    for names in tables:
        Query(by=tuple(names)).check(loaded.schema)
    audit = audit_release(data, loaded, attacker=attacker)
    if audit.contradicted:
        wrong = "; ".join(finding.says for finding in audit.of("contradicted"))
        raise InputError(f"{data}: was not released, because the audit contradicts its claims: {wrong}.")
    facts_about = replace(
        about or About(), published=(about or About()).published or f"{datetime.now(UTC):%Y-%m-%d}"
    )
    folder_part = target.parent / f".{target.name[:40]}.{secrets.token_hex(8)}.part"
    folder_part.mkdir()
    try:
        rows, memo = _write_data(data, loaded, folder_part / name)
        _write_tables(folder_part, name, loaded, tables)
        facts = _Facts(rows, memo, facts_about, name, audit)
        _write_texts(folder_part, loaded, facts, wordings=wordings or {})
        files = _write_sums(folder_part)
        folder_part.rename(target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(folder_part, ignore_errors=True)
        raise
    return ReleaseFolder(target, rows, loaded.id, files, left_out, audit, memo)


def check_release(folder: str | Path) -> list[str]:
    """Check a release folder and return its problems.

    Files are compared with their hashes. The data must be disguised under the policy in the folder, and the
    codebook and the description must have its probabilities. Links are not followed.

    Parameters
    ----------
    folder : str or Path
        The folder.

    Returns
    -------
    list of str
        One sentence per problem; empty if there is none.

    Raises
    ------
    FileError
        If it is not a folder.

    Examples
    --------
    >>> mq.data.students().to_csv("students.csv", index=False)
    >>> policy = mq.data.students_policy()
    >>> _ = mq.disguise_file("students.csv", "reports.parquet", policy)
    >>> _ = mq.interop.write_release("reports.parquet", policy, "release", attacker=False)
    >>> mq.interop.check_release("release")
    []
    """
    place = Path(folder)
    if not place.is_dir():
        raise FileError(f"{place}: is not a folder.")
    inside = list(place.rglob("*"))
    links = [path.relative_to(place).as_posix() for path in inside if path.is_symlink()]
    if links:  # read nothing outside the folder
        return [f"{name}: is a link; a release must contain files only." for name in sorted(links)]
    listed, problems = _read_sums(place)
    there = {path.relative_to(place).as_posix() for path in inside if path.is_file()} - {SUMS}
    problems += [f"{name}: is not in {SUMS}." for name in sorted(there - listed.keys())]
    problems += [f"{name}: is missing." for name in sorted(listed.keys() - there)]
    problems += [
        f"{name}: was changed: its sha256 is not the one in {SUMS}."
        for name in sorted(there & listed.keys())
        if sha256_of(place / name) != listed[name]
    ]
    try:
        problems += _disagreements(place, there)
    except MasqueradeError as error:
        problems.append(str(error))
    return problems


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file in hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


def _check_place(target: Path) -> None:
    if target.exists():
        raise FileError(f"{target}: exists already; name a new folder.")
    if not target.absolute().parent.is_dir():
        raise FileError(f"{target}: cannot be written: there is no directory {target.parent}.")
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK):
        raise FileError(f"{target}: cannot be written: no permission in {target.absolute().parent}.")


def _check_marks(data: str | Path, policy: Policy) -> tuple[str, ...]:
    """Raise InputError if the metadata do not name the policy; return the columns that the policy lacks."""
    if not policy.disguised:
        raise InputError("The policy disguises nothing: clear records are not released.")
    with open_batches(data, list(policy.observed)) as batches:
        said, names = batches.metadata.get("policy"), batches.file_names
    if said is None:
        raise InputError(
            f"{data}: does not say under which policy it was disguised, or whether it was at all. Release "
            "a file that `masquerade disguise` or `masquerade survey export` wrote, with its metadata file."
        )
    if said != policy.id:
        raise InputError(f"{data}: was disguised under policy {said[:12]}, not under {policy.id[:12]}.")
    return tuple(name for name in names if name not in policy.observed)


def _write_data(data: str | Path, policy: Policy, target: Path) -> tuple[int, str | None]:
    """Write the records in random order; return their number, and the id of the memo they were drawn from."""
    records = released_records(data, policy)
    order = permutation(records.rows)
    columns = {
        variable.name: decode(records.codes[variable.name][order], variable.categories)
        for variable in policy.observed.variables
    }
    table = pa.table(columns)
    said = marks(policy, records.metadata, records.metadata.get(MEMO))
    with AtomicWriter(target, table.schema, said | policy_metadata(policy)) as writer:
        for batch in table.to_batches():
            writer.write(batch)
    return len(table), said.get(MEMO)


def _write_tables(folder_part: Path, data: str, policy: Policy, tables: Sequence[Sequence[str]]) -> None:
    if not tables:
        return
    (folder_part / TABLES).mkdir()
    for table in tally(folder_part / data, policy).answer([Query(by=tuple(names)) for names in tables]):
        place = folder_part / TABLES / dataflow_name(table)
        write_whole(place.with_suffix(".csv"), to_sdmx_csv(table, policy_id=policy.id))
        structure = json.dumps(to_sdmx_structure(table), indent=2, ensure_ascii=False)
        write_whole(place.with_suffix(".structure.json"), structure + "\n")


@dataclass(frozen=True)
class _Facts:
    """Facts for the texts of a folder."""

    rows: int
    memo: str | None
    about: About
    data: str
    audit: Audit


def _write_texts(
    folder_part: Path, policy: Policy, facts: _Facts, *, wordings: Mapping[str, Wording]
) -> None:
    about, data, audit = facts.about, facts.data, facts.audit
    software = f"masquerade {__version__}"
    public = policy.public_text()
    if public is None:
        raise InputError("A policy with strata that was made in code cannot be released: write it as a file.")
    Policy.from_public_text(public, policy.id).save(folder_part / POLICY)
    written = codebook(
        policy,
        cases=facts.rows,
        title={"en": about.title},
        wordings=wordings,
        file_name=data,
        software=software,
    )
    write_whole(folder_part / CODEBOOK, written)
    described = croissant(
        policy,
        data=data,
        sha256=sha256_of(folder_part / data),
        size=(folder_part / data).stat().st_size,
        about=about,
        software=software,
        memo=facts.memo,
    )
    write_whole(folder_part / CROISSANT, json.dumps(described, indent=2, ensure_ascii=False) + "\n")
    write_whole(folder_part / AUDIT_PAGE, audit.to_html())
    values = json.dumps(audit.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(folder_part / AUDIT_VALUES, values + "\n")
    write_whole(folder_part / README, _readme(policy, facts))


def _readme(policy: Policy, release: _Facts) -> str:
    about, data, audit, figures = release.about, release.data, release.audit, privacy(policy)
    drawn = f"memo {release.memo}" if release.memo else "without a memo, once for this file"
    clear = f"\nIn clear, because the policy says so: {', '.join(figures.clear)}.\n" if figures.clear else ""
    if figures.clear_missing:
        clear = f"\n{describe_clear_missing(figures.clear_missing)}\n{clear}"
    first = policy.disguised[0]
    extra = {"By": about.creator, "Licence": about.license, "At": about.url, "Date": about.published}
    facts = "".join(f"- {name}: {text}\n" for name, text in extra.items() if text)
    return f"""# {about.title}

{about.full_description}

- Records: {release.rows:,}, in random order
- Policy: sha256 {policy.id}
- Drawn: {drawn}
{facts}
## What these numbers are

Every value of {", ".join(policy.disguised)} was replaced by a random report, drawn with known probabilities
that depend on the answer. A single report proves nothing about a person: over a whole record
{gamma_words(figures.record_gamma)}. Plain counts of the reports are biased; estimates correct for the
disguise and have standard errors.
{clear}
## Estimate

```sh
masquerade estimate {data} --policy {POLICY} --by {first}
```

Without masquerade: the terms `mq:channel` in `{CROISSANT}` and the notes in `{CODEBOOK}` have the exact
probabilities P(report | answer) as fractions; solve for the counts of answers.

## Files

| file | what |
|---|---|
| `{data}` | the disguised records |
| `{POLICY}` | variables, categories and channels |
| `{CODEBOOK}` | DDI Codebook 2.5 |
| `{CROISSANT}` | Croissant 1.1 |
| `{AUDIT_PAGE}`, `{AUDIT_VALUES}` | what the release reveals: {audit.headline} |
| `{SUMS}` | hashes of all files |

Check that nothing was changed: `masquerade release check .` or `sha256sum -c {SUMS}`.

A further release about the same people must repeat their reports (`masquerade disguise --memo`): fresh draws,
or reports of another memo, would multiply what is revealed. Files with the same policy and memo contain the
same draw.
"""


def _write_sums(folder_part: Path) -> tuple[str, ...]:
    files = sorted(
        path.relative_to(folder_part).as_posix() for path in folder_part.rglob("*") if path.is_file()
    )
    write_whole(folder_part / SUMS, "".join(f"{sha256_of(folder_part / name)}  {name}\n" for name in files))
    return (*files, SUMS)


def _read_sums(place: Path) -> tuple[dict[str, str], list[str]]:
    listed: dict[str, str] = {}
    problems = []
    for number, line in enumerate(read_text(place / SUMS, most=MOST_LISTED).splitlines(), start=1):
        match = _SUM.fullmatch(line)
        if match is None:
            problems.append(f"{SUMS}: line {number} is not a sha256, two spaces and a file's name.")
            continue
        listed[match.group(2)] = match.group(1)
    return listed, problems


def _disagreements(place: Path, there: set[str]) -> list[str]:
    """Return problems if the files of a folder disagree about the policy or the data."""
    needed = [POLICY, CODEBOOK, CROISSANT, README, AUDIT_PAGE, AUDIT_VALUES]
    data = [name for name in (f"data{ending}" for ending in ENCODINGS) if name in there]
    problems = [f"{name}: is missing; every release has this file." for name in needed if name not in there]
    if len(data) != 1:
        problems.append(f"A release must have one of {', '.join(f'data{ending}' for ending in ENCODINGS)}.")
    if problems:
        return problems
    policy = Policy.load(place / POLICY)
    with open_batches(place / data[0], list(policy.observed)) as batches:
        if batches.metadata.get("policy") != policy.id:
            problems.append(f"{data[0]}: was not disguised under the policy in {POLICY}.")
    described = read_json(place / CROISSANT)
    size = (place / data[0]).stat().st_size
    expected = croissant(policy, data=data[0], sha256=sha256_of(place / data[0]), size=size)
    if not isinstance(described, dict) or described.get("mq:policy") != policy.id:
        problems.append(f"{CROISSANT}: is about another policy.")
    elif described.get("distribution") != expected["distribution"]:
        problems.append(f"{CROISSANT}: has a different name, size or sha256 of {data[0]}.")
    elif any(described.get(key) != expected[key] for key in ("recordSet", "mq:gamma")):
        problems.append(f"{CROISSANT}: has different columns or probabilities from {POLICY}.")
    texts_by_column = _read_channel_texts(read_text(place / CODEBOOK, most=MOST_CODEBOOK))
    if texts_by_column[""] != (policy.id,) or not all(
        _is_policy(text, policy) for text in texts_by_column["policy"]
    ):
        problems.append(f"{CODEBOOK}: is about another policy.")
    elif any(
        texts_by_column.get(name) != texts
        for name, texts in _read_channel_texts(codebook(policy, cases=0)).items()
        if name.startswith(COLUMN)
    ):
        problems.append(f"{CODEBOOK}: has different columns or probabilities from {POLICY}.")
    return problems


def _read_channel_texts(text: str) -> dict[str, tuple[str, ...]]:
    """Return a codebook's texts about channels: the policy's id (key ""), the policy, and each column."""
    try:
        root = parse_xml(text, most=MOST_CODEBOOK)
    except InputError as error:
        raise InputError(f"{CODEBOOK}: {error}") from None
    texts = {"": _texts(root, ".//{*}IDNo"), "policy": _texts(root, ".//{*}method/{*}notes")}
    for variable in root.iterfind(".//{*}var"):
        name = f"{COLUMN}{variable.get('name')}"
        if name in texts:
            raise InputError(f"{CODEBOOK}: a column is described twice.")
        texts[name] = (*_texts(variable, "{*}catgry/{*}catValu"), *_texts(variable, "{*}derivation"),
                      *_texts(variable, "{*}notes"))  # fmt: skip
    return texts


def _is_policy(text: str, policy: Policy) -> bool:
    """Return True if a codebook's text is the policy, or its id if the policy is too long."""
    if text == f"policy {policy.id}":
        return True
    try:
        return Policy.from_public_text(text, policy.id) == policy
    except MasqueradeError:
        return False


def _texts(element: Element, path: str) -> tuple[str, ...]:
    return tuple("".join(part.itertext()).strip() for part in element.iterfind(path))
