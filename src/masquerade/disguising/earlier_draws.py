"""Earlier draws about the same people, as far as files state them, and their total γ against the limit.

A memo lists the other policies that it was used with. A draw under another memo, or without a memo, is known
only from the metadata of its files, so the files in the folder of a new release are read. The files do not
state whether they are about the same people. It is assumed that they are, so their γ are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc, parquet

from masquerade.channels.policy import Policy
from masquerade.channels.policy.record import record_gamma
from masquerade.channels.privacy_level import PrivacyLimit
from masquerade.core.errors import FileError, InputError
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.formatting import epsilon_words, log_gamma
from masquerade.core.util.json_text import read_json
from masquerade.disguising.memo import Memo
from masquerade.frames.formats import STREAM, Format, format_of, sidecar_of
from masquerade.frames.metadata import MEMO, MOST_SIDECAR, POLICY_TEXT, schema_metadata

MOST_FILES = 256  # most files of a folder that are read, the latest first
MOST_POLICIES = 16  # most policies that are read from files
ROUNDING = 1e-9  # rounding error of sums of logarithms
MOST_EPSILON = 690  # largest ε whose γ is a finite float
_UNREADABLE = (pa.ArrowException, InputError, OSError, ValueError, KeyError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class EarlierDraw:
    """An earlier draw: its policy, its memo, and the file that states it.

    `memo` is None for reports drawn without a memo; `file` is None if the memo itself lists the draw.
    `epsilon` is the ε of a record, inf without a bound, None if unknown.
    """

    policy: str
    memo: str | None
    file: str | None
    epsilon: float | None


def epsilon_of(policy: Policy) -> float:
    """Return the ε of a record under a policy, inf without a bound."""
    return log_gamma(record_gamma(policy))


def check_memo(policy: Policy, memo: Memo | None, accepted: float | None = None) -> float:
    """Return the ε of a record; raise InputError if it and the memo's other draws exceed the limit."""
    epsilon = epsilon_of(policy)
    draws = _draws_of_memo(policy, memo)
    check_stated_limit(policy, draws, epsilon_together(epsilon, draws), accepted)
    return epsilon


def _draws_of_memo(policy: Policy, memo: Memo | None) -> tuple[EarlierDraw, ...]:
    if memo is None:
        return ()
    others = ((other, epsilon) for other, epsilon in memo.releases.items() if other != policy.id)
    return tuple(EarlierDraw(other, memo.id, None, epsilon) for other, epsilon in others)


def draws_before(target: str | Path, policy: Policy, memo: Memo | None) -> tuple[EarlierDraw, ...]:
    """Return other draws: those of the policy's memo, and those stated by files in the target's folder.

    The same memo and policy give the same draw, which is not included.
    """
    draws: dict[tuple[str | None, str], EarlierDraw] = {
        (draw.memo, draw.policy): draw for draw in _draws_of_memo(policy, memo)
    }
    if str(target) == STREAM:
        return tuple(draws.values())
    own_memo = None if memo is None else memo.id
    for file in disguised_files(Path(target).absolute().parent, [policy]):
        other, drawn = file.policy_id, file.memo
        if drawn is not None and (drawn, other) in {(own_memo, policy.id), *draws}:
            continue
        if file.policy is not None and not file.policy.disguised:
            continue
        epsilon = None if file.policy is None else epsilon_of(file.policy)
        key = (drawn, other) if drawn is not None else (str(file.path), other)
        draws.setdefault(key, EarlierDraw(other, drawn, str(file.path), epsilon))
    return tuple(draws.values())


@dataclass(frozen=True, slots=True)
class DisguisedFile:
    """A file that is marked as disguised.

    `policy` is None if its metadata cannot be read or does not include the policy; `memo` is None for reports
    drawn without a memo.
    """

    path: Path
    policy_id: str
    memo: str | None
    policy: Policy | None


def disguised_files(folder: Path, policies: Iterable[Policy] = ()) -> Iterator[DisguisedFile]:
    """Yield the files of a folder that are marked as disguised, the latest first.

    Parameters
    ----------
    folder : Path
        Folder to read; folders in it are not read.
    policies : iterable of Policy, optional
        Policies that are known already, and are not read from files.
    """
    by_id = {policy.id: policy for policy in policies}
    for path, marks in _marked_files(folder):
        policy = _policy_of(marks["policy"], marks, by_id)
        yield DisguisedFile(path, marks["policy"], marks.get(MEMO), policy)


def epsilon_together(epsilon: float, draws: tuple[EarlierDraw, ...]) -> float | None:
    """Return the ε of a record over a draw and earlier draws; None if one is unknown."""
    total = epsilon
    for draw in draws:
        if draw.epsilon is None:
            return None
        total += draw.epsilon
    return total


def gamma_of_total(epsilon: float | None) -> float:
    """Return γ of a total ε; infinite if it is not known or has no bound.

    ε is reduced by the rounding error of sums of logarithms, so that γ = 12 twice does not exceed 144.
    """
    return math.inf if epsilon is None or epsilon > MOST_EPSILON else math.exp(epsilon - ROUNDING)


def is_beyond(epsilon: float | None, limit: PrivacyLimit) -> bool:
    """Return True if a total ε is above a limit, or is not known."""
    return epsilon is None or epsilon > log_gamma(limit.gamma) + ROUNDING


def check_stated_limit(
    policy: Policy,
    draws: tuple[EarlierDraw, ...],
    together: float | None,
    accepted: float | None,
) -> None:
    """Raise InputError if earlier draws and a new one exceed the limit that a policy states.

    Parameters
    ----------
    policy : Policy
        Policy with the limit. Without a limit, nothing is refused.
    draws : tuple of EarlierDraw
    together : float or None
        ε of a record over all draws, None if one of them is not known.
    accepted : float or None
        The γ over all draws that the caller accepts.
    """
    if policy.limit is None or not draws or not is_beyond(together, policy.limit):
        return
    if accepted is None or gamma_of_total(together) > accepted:
        raise InputError(
            f"{describe_total(together)} This is beyond the policy's limit ({policy.limit}). Nothing was "
            "released. Repeat the earlier release under its memo and policy, or accept it (accept_gamma)."
        )


def describe_total(together: float | None) -> str:
    """Describe in plain words how much a new release and all earlier draws reveal about a person."""
    over = f"With the draws that were released before, a whole record has {epsilon_words(together)}"
    if together is None:
        over = (
            "The γ of an earlier draw is not known, so there is no bound over all of them (if that draw is "
            "about other people, write to a folder that does not contain its file)"
        )
    return f"{describe_gamma(gamma_of_total(together))} {over}."


def _policy_of(named: str, marks: Mapping[str, str], policies: dict[str, Policy]) -> Policy | None:
    """Return the policy that a file was disguised under, if its metadata includes it."""
    if named not in policies and len(policies) <= MOST_POLICIES:
        try:
            policies[named] = Policy.from_public_text(marks.get(POLICY_TEXT, ""), named)
        except InputError:
            return None
    return policies.get(named)


def _marked_files(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the files of a folder that are marked as disguised, with their metadata.

    Unreadable metadata also counts as marked: the policy is then unknown.
    """
    try:
        files = [path for path in folder.iterdir() if path.is_file()]
        listed = [(path.stat().st_mtime_ns, path) for path in files]
    except OSError:
        return
    for _, path in sorted(listed, reverse=True)[:MOST_FILES]:
        try:
            marks = _marks_of(path)
        except _UNREADABLE:
            if sidecar_of(path).is_file():
                yield path, {"policy": ""}
            continue
        texts = {key: marks.get(key, "") for key in ("policy", MEMO, POLICY_TEXT)}
        if texts["policy"]:
            yield path, marks if all(isinstance(text, str) for text in texts.values()) else {"policy": ""}


def _marks_of(path: Path) -> dict[str, str]:
    """Return the metadata of a file, or of its sidecar."""
    kind = format_of(path)
    if kind is Format.PARQUET:
        return schema_metadata(parquet.read_schema(path))
    if kind is Format.ARROW:
        with pa.OSFile(str(path)) as source:
            return schema_metadata(ipc.open_file(source).schema)
    sidecar = sidecar_of(path)
    marks = read_json(sidecar, most=MOST_SIDECAR) if sidecar.is_file() else {}
    if not isinstance(marks, dict):
        raise FileError(f"{sidecar}: must be one JSON object.")
    return marks
