"""A command: which variables of a policy are protected too weakly."""

from __future__ import annotations

from typing import Annotated

import typer

import masquerade as mq


def weakest(
    policy: Annotated[str, typer.Argument(help="The policy file.", metavar="POLICY")],
    *,
    gamma: Annotated[float, typer.Option(help="The largest γ that is still enough.")] = 19.0,
) -> None:
    """List the variables whose γ is above a bound, the weakest first."""
    figures = mq.privacy(mq.Policy.load(policy))
    above = sorted((item for item in figures.variables if item.gamma > gamma), key=lambda item: -item.gamma)
    for item in above:
        typer.echo(f"{', '.join(item.variables)}: {float(item.gamma):g}")
    raise typer.Exit(1 if above else 0)
