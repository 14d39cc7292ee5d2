"""`masquerade privacy`: what a policy guarantees, for the person who has to sign it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import masquerade as mq
from masquerade.cli.options import Json, Overwrite, PolicyArgument
from masquerade.cli.output import as_json, check_target, emit, render, say
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from masquerade.channels.policy import Policy
    from masquerade.channels.privacy import PolicyPrivacy

PLOT_ENDINGS = (".png", ".svg")


def command(
    policy: PolicyArgument,
    *,
    json: Json = False,
    plot: Annotated[
        str | None,
        typer.Option(help="Also draw how far any belief can rise, as .png or .svg.", metavar="FILE"),
    ] = None,
    prior: Annotated[
        list[str] | None,
        typer.Option(
            help="How common the categories are, as VARIABLE=0.2,0.8; else all alike.", metavar="V=P,..."
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="A truth less likely than this does not count for K.", metavar="T")
    ] = 0.0,
    rho: Annotated[
        list[float] | None,
        typer.Option(
            help="A belief before the report, whose highest belief after it is wanted.", show_default="0.05"
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Tell what disguised records give away: by variable, over a record, and to whom.

    Example: masquerade privacy policy.yaml --plot privacy.png
    """
    from masquerade.cli import guarantees  # noqa: PLC0415  (loads numpy)

    beliefs = list(dict.fromkeys(rho or [0.05]))
    check(beliefs, threshold, plot)
    if plot is not None:
        check_target(Path(plot), overwrite=overwrite)
    loaded = mq.Policy.load(policy)
    priors = priors_given(prior or [], loaded)
    figures = mq.privacy(loaded, priors, beliefs, threshold)
    if plot is not None:
        from masquerade.cli.breach_plot import breach_plot  # noqa: PLC0415  (loads matplotlib)

        breach_plot(figures, Path(plot), overwrite=overwrite)
        say(f"the curve is drawn in {plot}.")
    if json:
        emit(as_json(plain(figures, loaded)))
    else:
        emit(render(*guarantees.as_text(figures, loaded, priors, beliefs, threshold)))


def plain(figures: PolicyPrivacy, policy: Policy) -> dict[str, Any]:
    """Return the figures for JSON, each channel in words too."""
    from masquerade.cli.guarantees import words_of  # noqa: PLC0415

    values = figures.to_dict()
    for kind in ("variables", "groups"):
        for entry, item in zip(values[kind], getattr(figures, kind), strict=True):
            entry["channel"] = words_of(item, policy)
    return values


def check(beliefs: Sequence[float], threshold: float, plot: str | None) -> None:
    """Refuse what cannot work before the policy is read."""
    for belief in beliefs:
        if not 0 < belief < 1:
            raise InputError(f"--rho is a belief between 0 and 1, such as 0.05. Got {belief:g} instead.")
    if not 0 <= threshold < 1:
        raise InputError(f"--threshold is a probability below 1. Got {threshold:g} instead.")
    if plot is not None and not plot.lower().endswith(PLOT_ENDINGS):
        raise InputError(f"{plot}: a plot ends in {' or '.join(PLOT_ENDINGS)}.")


def priors_given(texts: Sequence[str], policy: Policy) -> dict[str, list[float]]:
    """Return the distributions in "V=0.2,0.8"."""
    from masquerade.cli.query_arguments import known  # noqa: PLC0415

    found: dict[str, list[float]] = {}
    for text in texts:
        name, equals, shares = text.rpartition("=")
        if not equals:
            raise InputError(f"--prior {text!r}: a distribution is given as VARIABLE=0.2,0.8.")
        variable = known(name.strip(), policy.schema, "--prior")
        try:
            values = [share(part) for part in shares.split(",")]
        except (ValueError, ZeroDivisionError):
            raise InputError(f"--prior {text!r}: a distribution is given as VARIABLE=0.2,0.8.") from None
        if len(values) != len(variable) or min(values) < 0 or abs(sum(values) - 1) > 1e-6:
            raise InputError(
                f"--prior {variable.name}: {len(variable)} probabilities that sum to 1 are needed, in the "
                f"policy's order. Got {len(values)} that sum to {sum(values):g}."
            )
        found[variable.name] = values
    return found


def share(text: str) -> float:
    """Return a probability written as 0.2 or 1/5."""
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(above)
