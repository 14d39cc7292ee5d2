"""`masquerade disguise`: clear records in, disguised records out, nothing in between."""

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
from masquerade.cli.output import check_streams, emit, listed, progress, say
from masquerade.cli.privacy import gamma_words
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted, epsilon_words

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.disguising.earlier_draws import EarlierDraw
    from masquerade.disguising.files import Release


def command(
    data: Data,
    *,
    policy: PolicyFile,
    out: Into,
    memo: Annotated[
        str | None,
        option(
            "Secret file that makes repeated releases repeat their reports; --new-memo makes it. Guard it "
            "like the data.",
            "FILE",
        ),
    ] = None,
    new_memo: Annotated[
        bool,
        flag(
            "Make the file of --memo, for people who were never disguised before: under a second memo "
            "all people are drawn again, and γ multiplies.",
            "--new-memo",
        ),
    ] = False,
    person: Annotated[
        str | None, option("Column that names the person, for --memo.", "COLUMN", "--id")
    ] = None,
    keep: Annotated[
        list[str] | None,
        option("Pass this column on in clear, though the policy does not list it.", "COLUMN"),
    ] = None,
    shuffle: Annotated[
        bool, flag("Mix the rows (within batches), so that order tells nothing.", "--shuffle")
    ] = False,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Disguise every variable of the policy; columns that it does not list are left out.

    Example: masquerade disguise people.csv --policy policy.yaml --out disguised.csv
    """
    from masquerade.frames.dialect import Dialect  # noqa: PLC0415  (loads Arrow)

    check_streams(out, json=json)
    if (memo is None) != (person is None):
        raise InputError("--memo FILE and --id COLUMN go together: the memo remembers by person.")
    if new_memo and memo is None:
        raise InputError("--new-memo makes the file that --memo names: give --memo FILE and --id COLUMN.")
    passed_on = list(dict.fromkeys(keep or []))
    loaded = mq.Policy.load(policy)
    announce = _Told(out, loaded, passed_on, memo, json=json)
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
                before_publish=announce,
            )
    except BaseException as error:
        for note in getattr(error, "__notes__", ()):
            say(f"warning: {note}.")
        raise


class _Told:
    """Says what is released when only the name of its file is missing: if that fails nothing is released.

    Its figures are computed before the first row is written.
    """

    def __init__(
        self, out: str, policy: Policy, passed_on: list[str], memo: str | None, *, json: bool
    ) -> None:
        self._out, self._policy, self._kept, self._memo, self._json = out, policy, passed_on, memo, json
        self._figures = mq.privacy(policy)
        self._record = self._figures.to_dict()["record"]
        self._gamma = gamma_words(self._figures.record_gamma)
        groups = (entry.variables for entry in self._figures.guarantee.disclosures)
        clear = self._figures.clear
        self._disguised = [name for names in groups for name in names if name not in clear]

    def __call__(self, release: Release) -> None:
        for note in release.notes:
            say(note)
        if self._json:
            emit(self._values(release))
        else:
            say(self._line(release))
        if release.earlier:
            say(f"warning: {self._earlier(release)}")

    def _values(self, release: Release) -> dict[str, Any]:
        together = release.epsilon_together if release.earlier else None
        return {
            "rows": release.rows,
            "out": self._out,
            "policy": self._policy.id,
            "disguised": self._disguised,
            "record": self._record,
            "disclosed_in_clear": [*self._figures.clear, *self._kept],
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

    def _left_out(self, release: Release) -> list[str]:
        return [
            name for name in release.columns if name not in self._policy.schema and name not in self._kept
        ]

    def _line(self, release: Release) -> str:
        target = "standard output" if self._out == "-" else self._out
        parts = [
            f"{counted(release.rows, 'record')} disguised into {target}",
            f"policy {self._policy.id[:12]}",
            f"over a record {self._gamma}" if self._disguised else "NOTHING IS DISGUISED",
        ]
        if release.memo is not None:
            parts.append(f"memo {release.memo}")
        if in_clear := [*self._figures.clear, *self._kept]:
            parts.append(f"in clear: {listed(in_clear)}")
        if left_out := self._left_out(release):
            parts.append(f"left out, not in the policy: {listed(left_out)}")
        return "; ".join(parts) + "."

    def _earlier(self, release: Release) -> str:
        """Say which other draws there were, and what all of them multiply to."""
        parts = []
        if release.earlier_policies:
            served = listed(other[:12] for other in release.earlier_policies)
            parts.append(
                f"{self._memo} has served another policy before ({served}): this is a further release about "
                "the same people, and the γ of the releases multiply"
            )
        files = [draw for draw in release.earlier if draw.file is not None]
        if files:
            drawn = listed((f"{Path(str(draw.file)).name} ({_drawn_by(draw)})" for draw in files), 4)
            parts.append(
                f"other draws of these variables are here: {drawn}; about the same people γ multiplies"
            )
        if release.epsilon_together is not None:
            parts.append(f"over all of them and this one {epsilon_words(release.epsilon_together)}")
        return "; ".join(parts) + "."


def _drawn_by(draw: EarlierDraw) -> str:
    return "without a memo" if draw.memo is None else f"memo {draw.memo}"


def _finite(epsilon: float | None) -> float | None:
    """Return ε for JSON, null where it has no bound or is not known."""
    return None if epsilon is None or math.isinf(epsilon) else epsilon
