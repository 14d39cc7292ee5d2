"""`masquerade disguise`: read clear records, write disguised records, leave nothing else behind."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import masquerade as mq
from masquerade.cli.options import (
    Data,
    Decimal,
    Encoding,
    Into,
    Json,
    Overwrite,
    PolicyFile,
    Separator,
    flag,
    option,
)
from masquerade.cli.output import check_streams, emit, join_names, progress, say
from masquerade.cli.privacy import gamma_words
from masquerade.cli.record_limit import AcceptGamma, confirm_record_gamma, confirm_total
from masquerade.core.errors import InputError
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.formatting import counted

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.disguising.earlier_draws import EarlierDraw
    from masquerade.disguising.files import ReleaseSummary


def command(
    data: Data,
    *,
    policy: PolicyFile,
    out: Into,
    memo: Annotated[
        str | None,
        option(
            "Secret file with which later releases repeat earlier reports; --new-memo creates it. "
            "Protect it like the data.",
            "FILE",
        ),
    ] = None,
    new_memo: Annotated[
        bool,
        flag(
            "Create the file of --memo, for people who were never disguised before. A second memo draws new "
            "reports for the same people, and the γ of both memos multiply.",
            "--new-memo",
        ),
    ] = False,
    person: Annotated[
        str | None, option("Column that names the person, for --memo.", "COLUMN", "--id")
    ] = None,
    keep: Annotated[
        list[str] | None,
        option("Copy this column in clear, although the policy does not list it.", "COLUMN"),
    ] = None,
    shuffle: Annotated[
        bool, flag("Shuffle the rows (within batches), so that their order reveals nothing.", "--shuffle")
    ] = False,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    accept_gamma: AcceptGamma = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Disguise every variable of the policy; columns that it does not list are omitted.

    Example: masquerade disguise people.csv --policy policy.yaml --out disguised.csv
    """
    from masquerade.frames.dialect import Dialect  # noqa: PLC0415  (loads Arrow)

    check_streams(out, json=json)
    if (memo is None) != (person is None):
        raise InputError("--memo FILE and --id COLUMN go together: the memo stores reports by person.")
    if new_memo and memo is None:
        raise InputError("--new-memo creates the file of --memo: give --memo FILE and --id COLUMN.")
    passed_on = list(dict.fromkeys(keep or []))
    loaded = mq.Policy.load(policy)
    if new_memo or not _was_used_before(memo, loaded):
        confirm_record_gamma(loaded, accept_gamma)
    announce = _Announcement(out, loaded, passed_on, memo, json=json)

    def confirm(release: ReleaseSummary) -> None:
        if release.earlier:
            say(f"{announce.describe_earlier(release)}")
            confirm_total(loaded, release.epsilon_together, accept_gamma)

    try:
        with progress("disguising") as advance:
            mq.disguise_file(
                data,
                out,
                loaded,
                memo=memo,
                id=person,
                new_memo=new_memo,
                keep=passed_on,
                shuffle=shuffle,
                overwrite=overwrite,
                progress=advance,
                dialect=Dialect(sep, decimal, encoding),
                accept_gamma=math.inf,  # `confirm` asks the user instead
                before_draw=confirm,
                before_publish=announce,
            )
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            say(f"warning: {note}.")
        raise


def _was_used_before(memo: str | None, policy: Policy) -> bool:
    """Return True if a memo was used with this policy before; then its γ has already been accepted."""
    from masquerade.disguising.memo import Memo  # noqa: PLC0415  (loads Arrow)

    return memo is not None and policy.id in Memo.open(memo).releases


class _Announcement:
    """Announces a release just before its file is renamed into place. If printing fails, nothing is released.

    The numbers in the announcement are computed before the first row is written.
    """

    def __init__(
        self, out: str, policy: Policy, passed_on: list[str], memo: str | None, *, json: bool
    ) -> None:
        self._out, self._policy, self._kept, self._memo, self._json = out, policy, passed_on, memo, json
        from masquerade.channels.policy.privacy import gamma_figures  # noqa: PLC0415  (loads numpy)

        gamma = policy.record_gamma
        self._record, self._gamma = gamma_figures(gamma), gamma_words(gamma)
        self._person = describe_gamma(gamma)
        hidden = set(policy.disguised)
        self._clear = list(policy.clear_variables)
        groups = (group for stratum in policy.strata or (None,) for group in policy.groups_of(stratum))
        named = dict.fromkeys(name for group in groups for name in group.names)
        self._disguised = [name for name in named if name in hidden]

    def __call__(self, release: ReleaseSummary) -> None:
        for note in release.notes:
            say(note)
        if self._json:
            emit(self._values(release))
        else:
            say(self._line(release))

    def _values(self, release: ReleaseSummary) -> dict[str, Any]:
        together = release.epsilon_together if release.earlier else None
        return {
            "rows": release.rows,
            "out": self._out,
            "policy": self._policy.id,
            "disguised": self._disguised,
            "record": self._record,
            "disclosed_in_clear": [*self._clear, *self._kept],
            "missing_in_clear": list(self._policy.clear_missing),
            "left_out": self._left_out(release),
            "memo": release.memo,
            "earlier_policies": list(release.earlier_policies),
            "earlier": [
                {
                    "policy": draw.policy,
                    "memo": draw.memo,
                    "file": draw.file,
                    "epsilon": _finite(draw.epsilon),
                }
                for draw in release.earlier
            ],
            "epsilon_together": _finite(together),
        }

    def _left_out(self, release: ReleaseSummary) -> list[str]:
        return [
            name for name in release.columns if name not in self._policy.schema and name not in self._kept
        ]

    def _line(self, release: ReleaseSummary) -> str:
        target = "standard output" if self._out == "-" else self._out
        parts = [
            f"{counted(release.rows, 'record')} disguised into {target}",
            f"policy {self._policy.id[:12]}",
            f"over a record {self._gamma}" if self._disguised else "NOTHING IS DISGUISED",
        ]
        if release.memo is not None:
            parts.append(f"memo {release.memo}")
        missing = [f"whether {name} is missing" for name in self._policy.clear_missing]
        if in_clear := [*missing, *self._clear, *self._kept]:
            parts.append(f"in clear: {join_names(in_clear)}")
        if left_out := self._left_out(release):
            parts.append(f"omitted, not in the policy: {join_names(left_out)}")
        # with earlier draws, the total over all of them was stated before the draw
        person = [self._person] if self._disguised and not release.earlier else []
        return " ".join([*person, "; ".join(parts) + "."])

    def describe_earlier(self, release: ReleaseSummary) -> str:
        """Describe the earlier draws."""
        parts = []
        if release.earlier_policies:
            policies = join_names(other[:12] for other in release.earlier_policies)
            parts.append(
                f"{self._memo} was used with another policy before ({policies}): this is a further release "
                "about the same people, and the γ of the releases multiply"
            )
        files = [draw for draw in release.earlier if draw.file is not None]
        if files:
            draws = join_names((f"{Path(str(draw.file)).name} ({_describe_memo(draw)})" for draw in files), 4)
            parts.append(
                f"other draws were found here: {draws}; they are assumed to be about the same people, so γ "
                "multiplies"
            )
        return "; ".join(parts) + "."


def _describe_memo(draw: EarlierDraw) -> str:
    by = "without a memo" if draw.memo is None else f"memo {draw.memo}"
    return by if draw.epsilon is not None else f"{by}, its policy cannot be read"


def _finite(epsilon: float | None) -> float | None:
    """Return ε for JSON: None if it is unbounded or unknown."""
    return None if epsilon is None or math.isinf(epsilon) else epsilon
