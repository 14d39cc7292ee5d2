"""`masquerade audit`: prove a mechanism, test a pipeline, attack disguised records before a release."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.options import (
    Json,
    Overwrite,
    PolicyArgument,
    PolicyFile,
    argument,
    flag,
    group,
    option,
    required_option,
)
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.audit.findings import Audit

app = group("Before a release: prove a mechanism, test a pipeline, attack the disguised records.")
canaries_app = group("Send synthetic records through a pipeline and test what comes out.")
app.add_typer(canaries_app, name="canaries")
ALPHA = 1e-5

Page = Annotated[str | None, option("Also write the audit as a page (.html).", "FILE", "--out", "-o")]
Quick = Annotated[bool, flag("Do not audit the JavaScript of the survey page.", "--no-page")]


def check_page(out: str | None, *, overwrite: bool) -> None:
    """Raise an error, before any work, if the page cannot be written."""
    if out is not None and not out.lower().endswith((".html", ".htm")):
        raise InputError(f"{out}: an audit is written as a page: its name must end in .html.")
    output.check_target(out, overwrite=overwrite)


def show(found: Audit, *, json: bool, out: str | None, overwrite: bool) -> None:
    """Print an audit, write its page, and exit with 1 if a claim is contradicted."""
    if out is not None:
        output.write_whole(out, found.to_html().encode(), overwrite=overwrite)
        output.say(f"the page is {out}.")
    output.emit(found.to_dict() if json else found.summary() + "\n")
    if found.contradicted:
        raise typer.Exit(found.exit_code)


@app.command("policy")
def policy(
    policy: PolicyArgument,
    *,
    no_page: Quick = False,
    json: Json = False,
    out: Page = None,
    overwrite: Overwrite = False,
) -> None:
    """Prove that the samplers of a policy draw exactly its probabilities, by enumerating all their intervals.

    Example: masquerade audit policy policy.yaml --out audit.html
    """
    from masquerade.audit.enumeration import audit_policy  # noqa: PLC0415  (loads numba)

    check_page(out, overwrite=overwrite)
    show(audit_policy(policy, page=not no_page), json=json, out=out, overwrite=overwrite)


@app.command("sampler")
def sampler(
    *,
    sampler: Annotated[
        str,
        required_option(
            "The function, draw(truth) or draw(truth, n), or a randomizer of another package such as "
            "pure-ldp:OUE.",
            "--sampler",
            metavar="MODULE:FUNCTION",
        ),
    ],
    import_path: Annotated[
        str | None,
        option("Folder to import the module from; its code is run.", "FOLDER", "--import-path"),
    ] = None,
    truths: Annotated[
        str, option("The truths: their number (0, 1, …), or their names separated by commas.", "K or A,B")
    ] = "2",
    epsilon: Annotated[float | None, option("The claimed ε.", "E", min=0.0)] = None,
    policy: Annotated[
        str | None,
        option("Alternatively, claim the channel of --variable in this policy.", "FILE", "--policy", "-p"),
    ] = None,
    variable: Annotated[str | None, option("The variable of the policy.", "NAME")] = None,
    draws: Annotated[int, option("Number of draws per truth.", min=1000)] = 100_000,
    alpha: Annotated[float, option("Probability of contradicting a true claim by chance.")] = ALPHA,
    json: Json = False,
    out: Page = None,
    overwrite: Overwrite = False,
) -> None:
    """Bound the ε of any randomizer from below by drawing from it.

    A module that is not installed is imported only from the folder given with --import-path.
    Example: masquerade audit sampler --sampler mymodule:randomize --import-path . --truths 5 --epsilon 1
    """
    from masquerade.audit.foreign import FOREIGN, foreign_sampler  # noqa: PLC0415  (loads numpy)
    from masquerade.audit.sampler import audit_sampler, import_sampler  # noqa: PLC0415  (loads numpy)

    check_page(out, overwrite=overwrite)
    _check_alpha(alpha)
    output.refuse(((policy is None) != (variable is None), "--policy and --variable go together."))
    names: list[Any] = list(range(int(truths))) if truths.isdecimal() else truths.split(",")
    channel = None
    if policy is not None and variable is not None:
        group_ = mq.Policy.load(policy).group(variable)
        output.refuse((group_.names != (variable,), f"{variable} is disguised together with others."))
        channel = group_.matrix_channel
        names = list(mq.Policy.load(policy).schema[variable].categories) if truths == "2" else names
    if sampler in FOREIGN:
        output.refuse((epsilon is None, "A randomizer of another package needs --epsilon."))
        drawn = foreign_sampler(sampler, len(names), float(epsilon or 0))
    else:
        _check_importable(sampler, import_path)
        drawn = import_sampler(sampler)
    found = audit_sampler(drawn, names, epsilon=epsilon, channel=channel, draws=draws, alpha=alpha)
    show(found, json=json, out=out, overwrite=overwrite)


@canaries_app.command("make")
def make(
    policy: PolicyArgument,
    *,
    out: Annotated[str, required_option("File for the synthetic records (.csv).", "--out", "-o")],
    key: Annotated[str, required_option("File for the key that `read` needs: keep it secret.", "--key")],
    n: Annotated[int, option("Number of canaries.", "N", "--n")] = 10_000,
    column: Annotated[str, option("Name of the column that identifies the canaries.", "NAME")] = "canary",
    overwrite: Overwrite = False,
) -> None:
    """Make canaries: synthetic records to send through a pipeline, and the key to check its output.

    Example: masquerade audit canaries make policy.yaml --out canaries.csv --key canaries.key
    """
    from masquerade.audit.canary_key import make_canaries  # noqa: PLC0415  (loads numba)

    output.check_target(out, overwrite=overwrite)
    output.check_target(key, overwrite=overwrite)
    if not out.lower().endswith(".csv"):
        raise InputError(f"{out}: canaries are written as .csv.")
    frame, made = make_canaries(policy, n, column=column)
    made.save(key)
    output.write_whole(out, frame.to_csv(index=False, lineterminator="\n").encode(), overwrite=overwrite)
    output.say(f"{len(frame):,} canaries are in {out}, named by column {column!r}; reading them needs {key}.")


@canaries_app.command("read")
def read(
    data: Annotated[str, argument("Output of the pipeline.", "DATA")],
    *,
    policy: PolicyFile,
    key: Annotated[str, required_option("The key that `make` wrote.", "--key")],
    second: Annotated[str | None, option("Output of a second run with the same canaries.", "FILE")] = None,
    memo: Annotated[bool, flag("Claim: the pipeline repeats reports (a memo).", "--memo")] = False,
    shuffled: Annotated[bool, flag("Claim: the pipeline shuffles the rows.", "--shuffled")] = False,
    alpha: Annotated[float, option("Probability of contradicting a true claim by chance.")] = ALPHA,
    json: Json = False,
    out: Page = None,
    overwrite: Overwrite = False,
) -> None:
    """Check canaries after a pipeline: wrong policy, clear columns, seeds, memo, order, lost rows.

    Example: masquerade audit canaries read out.csv -p policy.yaml --key canaries.key --shuffled
    """
    from masquerade.audit.canaries import Claim, read_canaries  # noqa: PLC0415  (loads numba)

    check_page(out, overwrite=overwrite)
    _check_alpha(alpha)
    claims: list[Claim] = []
    if memo:
        claims.append("memo")
    if shuffled:
        claims.append("shuffled")
    found = read_canaries(data, policy, key, second=second, claims=tuple(claims), alpha=alpha)
    show(found, json=json, out=out, overwrite=overwrite)


@app.command("release")
def release(
    data: Annotated[str, argument("The disguised records.", "DATA")],
    *,
    policy: PolicyFile,
    truth: Annotated[
        str | None, option("The clear records, in the same order or with --id, to measure linkage.", "FILE")
    ] = None,
    earlier: Annotated[
        list[str] | None, option("An earlier release about the same people; may be repeated.", "FILE")
    ] = None,
    person: Annotated[str | None, option("Column that names the person.", "COLUMN", "--id")] = None,
    network: Annotated[
        str | None, option("Bayesian network of the population (.bif); by default learnt from DATA.", "FILE")
    ] = None,
    no_attacker: Annotated[bool, flag("Do not simulate an attacker.", "--no-attacker")] = False,
    records: Annotated[int, option("Number of records simulated for the attacker.", min=100)] = 2000,
    alpha: Annotated[float, option("Probability of contradicting a true claim by chance.")] = ALPHA,
    json: Json = False,
    out: Page = None,
    overwrite: Overwrite = False,
) -> None:
    """Attack records before their release: goodness of fit, repeats, singling out, linkage, copies, guesses.

    Example: masquerade audit release disguised.csv -p policy.yaml --out audit.html
    """
    from masquerade.audit.release import audit_release  # noqa: PLC0415  (loads numba)

    check_page(out, overwrite=overwrite)
    _check_alpha(alpha)
    loaded = mq.Policy.load(policy)
    known = None if network is None else mq.learn.read_bif(network, loaded.schema)
    with output.report_warnings():
        found = audit_release(
            data,
            loaded,
            truth=truth,
            earlier=earlier or (),
            id=person,
            network=known,
            attacker=not no_attacker,
            alpha=alpha,
            records=records,
        )
    show(found, json=json, out=out, overwrite=overwrite)


def _check_importable(sampler: str, folder: str | None) -> None:
    """Put the folder given by the user on the import path; without a folder, require an installed module."""
    module, colon, _ = sampler.partition(":")
    package = module.partition(".")[0]
    if not colon or not package.isidentifier():
        return  # `import_sampler` raises an error that explains the form
    if folder is not None:
        if not Path(folder).is_dir():
            raise InputError(f"--import-path {folder}: there is no such folder.")
        sys.path.insert(0, str(Path(folder).resolve()))
    elif find_spec(package) is None:
        raise InputError(
            f"--sampler {sampler!r}: no module {package!r} is installed. Code from a folder is run only if "
            "you name the folder: --import-path FOLDER, such as --import-path ."
        )


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise InputError(f"--alpha is a probability, such as 1e-5. Got {alpha:g} instead.")
