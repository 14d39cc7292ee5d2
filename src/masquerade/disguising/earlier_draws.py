"""Draws of the same variables that were released before, as far as files say so: what all multiply to.

A memo knows which other policies it served. Another memo, or a release without one, is known only by what
its files say of themselves: so files in the folder of a new release are looked at. Whether they are about the
same people nobody can tell from them; if they are, the γ of all draws multiply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc, parquet

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import record_gamma
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import log_gamma
from masquerade.core.util.json_text import read_json
from masquerade.disguising.memo import Memo
from masquerade.frames.file_reader import MOST_SIDECAR
from masquerade.frames.formats import STREAM, Format, format_of, sidecar_of
from masquerade.frames.metadata import MEMO, POLICY_TEXT, schema_metadata

MOST_FILES = 256  # of a folder, the latest
MOST_POLICIES = 16  # that are read from files
_UNREADABLE = (pa.ArrowException, InputError, OSError, ValueError, KeyError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class EarlierDraw:
    """A draw of the same variables: under which policy, by which memo, and the file that says so.

    `memo` is None for reports that were drawn without one; `file` is None where the memo itself remembers.
    `epsilon` is the ε of a record, inf without a bound, None if it is not known.
    """

    policy: str
    memo: str | None
    file: str | None
    epsilon: float | None


def epsilon_of(policy: Policy) -> float:
    """Return the ε of a record under a policy, inf without a bound."""
    return log_gamma(record_gamma(policy))


def draws_before(target: str | Path, policy: Policy, memo: Memo | None) -> tuple[EarlierDraw, ...]:
    """Return other draws of a policy's variables: those of its memo, and of files where the target will be.

    What the same memo draws under the same policy is the same draw, and is not among them.
    """
    draws: dict[tuple[str | None, str], EarlierDraw] = {}
    if memo is not None:
        draws |= {
            (memo.id, other): EarlierDraw(other, memo.id, None, epsilon)
            for other, epsilon in memo.releases.items()
            if other != policy.id
        }
    own_memo, policies = (None if memo is None else memo.id), {policy.id: policy}
    for file, marks in _marked_files(target):
        other, drawn = marks["policy"], marks.get(MEMO)
        if drawn is not None and (drawn, other) in {(own_memo, policy.id), *draws}:
            continue
        their_policy = _policy_of(other, marks, policies)
        if their_policy is None or set(their_policy.disguised).isdisjoint(policy.disguised):
            continue
        key = (drawn, other) if drawn is not None else (str(file), other)
        draws.setdefault(key, EarlierDraw(other, drawn, str(file), epsilon_of(their_policy)))
    return tuple(draws.values())


def epsilon_together(policy: Policy, draws: tuple[EarlierDraw, ...]) -> float | None:
    """Return the ε of a record over a draw under a policy and earlier ones; None if one is not known."""
    total = epsilon_of(policy)
    for draw in draws:
        if draw.epsilon is None:
            return None
        total += draw.epsilon
    return total


def _policy_of(named: str, marks: Mapping[str, str], policies: dict[str, Policy]) -> Policy | None:
    """Return the policy that a file says it was disguised under, if it carries it along."""
    if named not in policies and len(policies) <= MOST_POLICIES:
        try:
            policies[named] = Policy.from_public_text(marks.get(POLICY_TEXT, ""), named)
        except InputError:
            return None
    return policies.get(named)


def _marked_files(target: str | Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the files of the target's folder that say that they are disguised, and what they say."""
    if str(target) == STREAM:
        return
    try:
        files = [path for path in Path(target).absolute().parent.iterdir() if path.is_file()]
        listed = [(path.stat().st_mtime_ns, path) for path in files]
    except OSError:
        return
    for _, path in sorted(listed, reverse=True)[:MOST_FILES]:
        try:
            marks = _marks_of(path)
        except _UNREADABLE:
            continue
        texts = [marks.get(key, "") for key in ("policy", MEMO, POLICY_TEXT)]
        if texts[0] and all(isinstance(text, str) for text in texts):
            yield path, marks


def _marks_of(path: Path) -> dict[str, str]:
    """Return the marks in a file, or in the file next to it."""
    kind = format_of(path)
    if kind is Format.PARQUET:
        return schema_metadata(parquet.read_schema(path))
    if kind is Format.ARROW:
        with pa.OSFile(str(path)) as source:
            return schema_metadata(ipc.open_file(source).schema)
    sidecar = sidecar_of(path)
    marks = read_json(sidecar, most=MOST_SIDECAR) if sidecar.is_file() else {}
    return marks if isinstance(marks, dict) else {}
