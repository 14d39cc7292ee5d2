"""Record of an output checker: results that were checked, and the decisions about them.

The record is a private folder. It has one file per output, and a release ledger with a line of kind
``output`` for each decision. The record is sensitive: outputs that failed show small counts.

No accepted output may be lost: a table that is harmless alone may, together with an accepted one, reveal
counts of few people. So the files are compared with the ledger, whose end is stored in an anchored state
folder. In a record that was restored from a copy, no output passes without a stated reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import read_json
from masquerade.core.util.private_file import check_own_folder
from masquerade.protocols.people.ledger import Claim
from masquerade.services.common.release_ledger import FILE, Entry, Release, ReleaseLedger, canonical
from masquerade.services.common.state import State
from masquerade.sources.control.inference_control import Rules
from masquerade.sources.control.output_check import (
    FAIL,
    PASS,
    REVIEW,
    OutputCheck,
    check_output,
    stated_gamma,
)

OUTPUT: Final = "output"  # kind of the ledger's lines
FORMAT: Final = 1
MOST_OUTPUTS: Final = 10_000
MOST_BYTES: Final = 1 << 27  # most bytes of a file: enough for an output of 64 MiB with indentation
STATE: Final = "state"  # folder within the record that shows whether it was restored
DECIDED: Final = {True: "output accepted", False: "output rejected"}
_RESTORED: Final = "output record restored"


class OutputRecord:
    """Outputs that were checked against rules, and the decisions about them.

    Parameters
    ----------
    folder : Path
        The folder of the record. It is created, readable by its owner only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o077:
                raise FileError(
                    f"{folder}: others may read it, and a record shows small counts. Run: chmod 700 {folder}"
                )
        except OSError as error:
            raise FileError(f"{folder}: {(error.strerror or 'cannot be used').lower()}.") from None
        check_own_folder(folder, "The record of outputs")

    def entries(self) -> list[dict[str, Any]]:
        """Return all outputs of the record, oldest first, with the decisions that the ledger has.

        Raises
        ------
        FileError
            If a file is missing, was edited, or disagrees with the ledger.
        """
        with self._open() as (ledger, _):
            return self._entries(ledger)

    def entry(self, number: int) -> dict[str, Any]:
        """Return one output of the record; raise FileError if it is missing or was edited."""
        path = self._file(number)
        if not path.exists():
            raise FileError(f"{self.folder}: has no output {number}.")
        values = read_json(path, most=MOST_BYTES)
        keys = {"id": int, "sha256": str, "output": dict, "status": str, "reasons": list, "rules": dict}
        is_entry = isinstance(values, dict) and all(
            isinstance(values.get(key), kind) for key, kind in keys.items()
        )
        if (
            not is_entry
            or values["id"] != number
            or not isinstance(values.get("decision", ""), (dict, type(None)))
        ):
            raise FileError(f"{path}: is not an output of a record.")
        if output_digest(values["output"]) != values["sha256"]:
            raise FileError(f"{path}: was edited: the output does not have its digest.")
        return dict(values)

    def add(
        self, outputs: Sequence[Mapping[str, Any]], rules: Rules, exception: str = ""
    ) -> list[dict[str, Any]]:
        """Check each output together with all outputs accepted before or passed in the same batch.

        Parameters
        ----------
        outputs : sequence of mappings
            Tables and models.
        rules : Rules
            The rules.
        exception : str, optional
            Reason why an output should be published although it breaks a rule.

        Returns
        -------
        list of dict
            The new entries.
        """
        added: list[dict[str, Any]] = []
        with self._open() as (ledger, problem):
            existing = self._entries(ledger)
            if len(existing) + len(outputs) > MOST_OUTPUTS:
                raise InputError(f"A record can have at most {MOST_OUTPUTS:,} outputs: start another folder.")
            published = find_accepted(existing)
            for output in outputs:
                check = _doubt(check_output(output, rules, published), problem)
                if check.status != FAIL:
                    published.append(output)
                added.append(
                    {
                        "masquerade_output": FORMAT,
                        "id": len(existing) + len(added) + 1,
                        "sha256": output_digest(output),
                        "question": _question(output),
                        "output": dict(output),
                        "rules": rules.to_dict(),
                        "rules_sha256": hashlib.sha256(canonical(rules.to_dict())).hexdigest(),
                        **check.to_dict(),
                        "exception": exception,
                        "checked": _now(),
                        "decision": None,
                    }
                )
            for values in added:
                self._write(values)
        return added

    def decide(self, number: int, *, accept: bool, by: str, reason: str) -> dict[str, Any]:
        """Record the decision about an output, in its file and as a line of the ledger.

        An output that passed is checked again, together with the outputs accepted since.

        Parameters
        ----------
        number : int
            The id of the output.
        accept : bool
            True if it may be published.
        by : str
            Name of the person who decides.
        reason : str
            Reason for the decision. Required if the decision differs from the status of the check.

        Returns
        -------
        dict
            The entry with its decision.

        Raises
        ------
        InputError
            If the output already has a decision, or a name or a required reason is missing.
        """
        with self._open() as (ledger, problem):
            existing = self._entries(ledger)
            if not 1 <= number <= len(existing):
                raise FileError(f"{self.folder}: has no output {number}.")
            entry = existing[number - 1]
            if entry["decision"] is not None:
                raise InputError(
                    f"Output {number} already has a decision. For another decision, check it again: it then "
                    "has a new number."
                )
            if not by.strip():
                raise InputError("A decision needs the name of the person who decides.")
            if accept and entry["status"] == PASS:
                rules = Rules.from_dict(entry["rules"], magnitudes=True)
                check = _doubt(check_output(entry["output"], rules, find_accepted(existing)), problem)
                if check.status != PASS:
                    entry |= check.to_dict()
                    self._write(entry)
            if not reason.strip() and (entry["status"] != PASS or not accept):
                why = f" ({'; '.join(map(str, entry['reasons']))})" if entry["reasons"] else ""
                raise InputError(
                    f"Output {number} has status {entry['status']!r}{why}: the decision needs a reason."
                )
            line = ledger.append(_release_of(entry, accept=accept, by=by))
            # if the process ends here, the ledger's line alone counts as the decision, without this reason
            entry["decision"] = _decision(line, reason)
            self._write(entry)
        return entry

    @contextmanager
    def _open(self) -> Iterator[tuple[ReleaseLedger, str]]:
        """Lock the record; yield its ledger, and the reason why outputs may be missing, empty if complete."""
        had_outputs = self._file(1).exists() or (self.folder / FILE).exists()
        had_state = (self.folder / STATE).exists()
        with (
            State.open(self.folder / STATE) as state,
            ReleaseLedger.open(self.folder / FILE, notes=state.notes) as ledger,
        ):
            problem = state.problem
            if had_outputs and not had_state:
                problem = f"its folder {STATE!r} is missing"
            if problem:
                state.burnt.claim([Claim(_RESTORED, state.incarnation.encode(), problem.encode())])
            noted = state.burnt.values(_RESTORED)
            yield ledger, noted[-1].decode() if noted else ""

    def _entries(self, ledger: ReleaseLedger) -> list[dict[str, Any]]:
        """Return all outputs; raise FileError unless files and ledger agree."""
        lines = {line.release.session: line for line in ledger.entries() if line.release.kind == OUTPUT}
        listed: list[dict[str, Any]] = []
        for number in count(1):
            name = f"output {number}"
            if not self._file(number).exists():
                break
            entry, line = self.entry(number), lines.pop(name, None)
            stated = entry["decision"]
            if line is None and stated is not None:
                raise FileError(f"{self._file(number)}: states a decision that the ledger does not have.")
            if line is not None:
                if line.release.digest != entry["sha256"]:
                    raise FileError(f"{self._file(number)}: is not the output that the decision is about.")
                reason = str((stated or {}).get("reason", ""))
                entry["decision"] = _decision(line, reason)
            listed.append(entry)
        stems = [path.stem for path in self.folder.glob("*.json")]
        if lines or any(stem.isdecimal() and int(stem) > len(listed) for stem in stems):
            raise FileError(f"{self._file(len(listed) + 1)}: is missing: outputs after it are in the record.")
        return listed

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:04}.json"

    def _write(self, values: Mapping[str, Any]) -> None:
        text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(self._file(values["id"]), text, private=True)


def find_accepted(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the outputs that were accepted."""
    return [it["output"] for it in entries if (it["decision"] or {}).get("accepted")]


def _doubt(check: OutputCheck, problem: str) -> OutputCheck:
    """Return the check, with "pass" turned into "review" if accepted outputs may be missing."""
    if not problem:
        return check
    reason = f"restored: accepted outputs may be missing, because {problem}"
    status = REVIEW if check.status == PASS else check.status
    return replace(check, status=status, reasons=(*check.reasons, reason))


def _release_of(entry: Mapping[str, Any], *, accept: bool, by: str) -> Release:
    """Return the ledger line of a decision; the γ of a rejected output is 1, since it is not published."""
    output = entry["output"]
    by_names, conditions = _variables(output)
    names = (*by_names, *conditions)
    n = output.get("n")
    return Release(
        session=f"output {entry['id']}",
        protocol=DECIDED[accept],
        recipient=by,
        kind=OUTPUT,
        variables=names if accept else (),
        rows=n if accept and type(n) is int and n >= 0 else 0,
        policy=None,
        gamma=stated_gamma(output) if accept else Fraction(1),
        digest=entry["sha256"],
    )


def _decision(line: Entry, reason: str) -> dict[str, Any]:
    return {
        "accepted": line.release.protocol == DECIDED[True],
        "by": line.release.recipient,
        "reason": reason,
        "time": line.time,
        "line": line.number,
    }


def output_digest(output: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an output's canonical JSON."""
    return hashlib.sha256(canonical(output)).hexdigest()


def _question(output: Mapping[str, Any]) -> str:
    """Return a description of an output's query."""
    if output.get("question"):
        return str(output["question"])
    if output.get("type", "table") != "table":
        return f"a result of type {output['type']}"
    names, conditions = _variables(output)
    where = " and ".join(f"{name} = {label}" for name, label in conditions.items())
    return f"counts by {', '.join(names) or 'all records'}" + (f" where {where}" if where else "")


def _variables(output: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the variables and conditions of an output; results that are not tables may have neither."""
    by, where = output.get("by"), output.get("where")
    names = tuple(map(str, by)) if isinstance(by, list) else ()
    items = where.items() if isinstance(where, Mapping) else ()
    return names, {str(name): str(label) for name, label in items}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
