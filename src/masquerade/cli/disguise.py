"""`masquerade disguise`: clear records in, disguised records out, nothing in between."""

from __future__ import annotations

import math
from fractions import Fraction
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
from masquerade.core.words import counted

if TYPE_CHECKING:
    from masquerade.channels.privacy import PolicyPrivacy
    from masquerade.disguising.files import Release


def command(
    data: Data,
    *,
    policy: PolicyFile,
    out: Into,
    memo: Annotated[
        str | None,
        option(
            "Secret file that makes repeated releases repeat their reports; made if there is none. Guard it "
            "like the data.",
            "FILE",
        ),
    ] = None,
    new_memo: Annotated[bool, flag("Make the file of --memo, which is not there yet.", "--new-memo")] = False,
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
    if memo is not None and Path(memo).exists() == new_memo:
        raise InputError(
            f"{memo}: " + ("is there already." if new_memo else "no such memo; --new-memo makes one.")
        )
    kept = list(dict.fromkeys(keep or []))
    loaded = mq.Policy.load(policy)
    with progress("disguising") as advance:
        release = mq.disguise_file(
            data,
            out,
            loaded,
            memo=memo,
            id=person,
            keep=kept,
            shuffle=shuffle,
            overwrite=overwrite,
            progress=advance,
            dialect=Dialect(sep, decimal, encoding),
        )
    for note in release.notes:
        say(note)
    left_out = [name for name in release.columns if name not in loaded.schema and name not in kept]
    done = _report(release, mq.privacy(loaded), out, kept, left_out)
    if json:
        emit(done)
    else:
        say(_line(done))
    if release.earlier_policies:
        earlier = listed(other[:12] for other in release.earlier_policies)
        say(
            f"warning: {memo} has served another policy before ({earlier}): this is a further release about "
            "the same people, and the γ of the releases multiply."
        )


def _report(
    release: Release, figures: PolicyPrivacy, out: str, kept: list[str], left_out: list[str]
) -> dict[str, Any]:
    groups = (entry.variables for entry in figures.guarantee.disclosures)
    disguised = [name for names in groups for name in names if name not in figures.clear]
    return {
        "rows": release.rows,
        "out": out,
        "policy": figures.policy_id,
        "disguised": disguised,
        "record": figures.to_dict()["record"],
        "disclosed_in_clear": [*figures.clear, *kept],
        "left_out": left_out,
        "memo": release.memo,
        "earlier_policies": list(release.earlier_policies),
    }


def _line(done: dict[str, Any]) -> str:
    target = "standard output" if done["out"] == "-" else done["out"]
    exact = done["record"]["gamma_exact"]
    gamma = math.inf if exact is None else Fraction(exact)
    parts = [
        f"{counted(done['rows'], 'record')} disguised into {target}",
        f"policy {done['policy'][:12]}",
        f"over a record {gamma_words(gamma)}" if done["disguised"] else "NOTHING IS DISGUISED",
    ]
    if done["disclosed_in_clear"]:
        parts.append(f"in clear: {listed(done['disclosed_in_clear'])}")
    if done["left_out"]:
        parts.append(f"left out, not in the policy: {listed(done['left_out'])}")
    return "; ".join(parts) + "."
