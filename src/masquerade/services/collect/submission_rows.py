"""Rows that are to be submitted, from a file: one as JSON, or a table with a column that names people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import FileError, InputError
from masquerade.core.schema import Field
from masquerade.crypto.errors import DecodingError
from masquerade.frames.file_reader import open_batches
from masquerade.frames.label_codes import encode
from masquerade.protocols.threshold.messages import Credential
from masquerade.protocols.threshold.row_schema import Form
from masquerade.services.collect.enrolment_office import ENDING, PERSON_NAME
from masquerade.services.common.settings import check_private

MOST_JSON: Final = 1 << 20
PERSON: Final = "person"


def read_row(path: str | Path) -> dict[str, Any]:
    """Return the row in a JSON file: an object of labels by variable."""
    place = Path(path)
    try:
        with place.open("rb") as stream:
            data = stream.read(MOST_JSON + 1)
        row = json.loads(data) if len(data) <= MOST_JSON else None
    except OSError as error:
        raise FileError(f"{place}: cannot be read ({(error.strerror or 'error').lower()}).") from None
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise FileError(f"{place}: must be one JSON object, a label for each variable of the form.")
    return row


def read_rows(path: str | Path, form: Form, key: str = PERSON) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a table (CSV, Parquet, Arrow) with the person that each is of."""
    found: list[tuple[str, dict[str, Any]]] = []
    with open_batches(str(path), [key, *form.schema]) as batches:
        for batch in batches:
            people = [str(value) for value in batch.column(key).to_pylist()]
            columns = {
                name: encode(batch.column(name), Field(form.schema[name]), text=batches.text).tolist()
                for name in form.schema
            }
            for i, person in enumerate(people):
                labels = {name: form.schema[name].categories[codes[i]] for name, codes in columns.items()}
                found.append((person, labels))
    if len({person for person, _ in found}) < len(found):
        raise InputError(f"{path}: a person has several rows; each reports one.")
    return found


def read_credential(path: str | Path) -> bytes:
    """Return the credential in a file that only its owner may read."""
    place = Path(path)
    try:
        check_private(place)
        credential = bytes.fromhex(place.read_text(encoding="ascii").strip())
        Credential.decode(credential)
    except OSError as error:
        raise FileError(f"{place}: cannot be read ({(error.strerror or 'error').lower()}).") from None
    except (DecodingError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{place}: is not a credential of a randomness server.") from None
    return credential


def to_submit(
    rows: Path, credential: Path, form: Form, key: str = PERSON
) -> list[tuple[str, dict[str, Any], bytes]]:
    """Return people with their rows and credentials, all of them read before anything is sent.

    A JSON file is the row of the one person whose credential it is; a table comes with a folder of them.
    """
    if rows.suffix.lower() == ".json":
        return [(credential.stem, read_row(rows), read_credential(credential))]
    found = read_rows(rows, form, key)
    if not credential.is_dir():
        raise InputError(f"{credential}: for a table, give the folder that holds everybody's credential.")
    if not all(PERSON_NAME.fullmatch(person) for person, _ in found):
        raise InputError(f"{rows}: column {key!r}: a name that the office could not have given.")
    return [(person, row, read_credential(credential / f"{person}{ENDING}")) for person, row in found]
