"""`masquerade session reconcile`: a proposal that all parties of a planned session can accept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from masquerade.cli import output
from masquerade.cli.options import Json, Overwrite, argument, option
from masquerade.core.util.formatting import counted, gamma_text

if TYPE_CHECKING:
    from fractions import Fraction

    from rich.table import Table

    from masquerade.services.parties.reconcile import ConsentProposal

POLICY = "--policy"


def reconcile(
    files: Annotated[list[Path], argument("The offers of the parties (YAML), two or more.", "OFFER.yaml")],
    *,
    policy: Annotated[
        Path | None, option("Write the policy of the proposal to this file (YAML).", "FILE", POLICY)
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Compute the strictest common consent of parties whose policies, limits and rules differ.

    Shows the disguise of every variable, who may receive which model, which learners are still possible and
    their errors, and what each party would have to relax for more. Nothing is sent, and no record is read.

    Example: masquerade session reconcile north.yaml south.yaml
    """
    from masquerade.core.errors import InputError  # noqa: PLC0415
    from masquerade.services.parties.reconcile import Offer  # noqa: PLC0415
    from masquerade.services.parties.reconcile import reconcile as combine  # noqa: PLC0415

    output.check_target(policy, overwrite=overwrite)
    proposal = combine([Offer.read(file) for file in files])
    if policy is not None:
        if proposal.policy is None:
            raise InputError(
                "No variable is the same at all parties that have it: there is no policy to write."
            )
        proposal.policy.save(policy)
    if json:
        output.emit(proposal.to_dict())
        return
    output.emit(output.render(*_parts(proposal)))


def _parts(proposal: ConsentProposal) -> list[Table | str]:
    """Return the tables and sentences that show a proposal."""
    parties = ", ".join(proposal.parties)
    answer = "can accept" if proposal.is_possible else "could accept, but no model is possible"
    title = f"What {parties} {answer}"
    masks = output.plain_table(title, ["variables", "held by"], ["γ"])
    for mask in proposal.masks:
        masks.add_row(", ".join(mask.names), ", ".join(mask.holders), _gamma(mask.gamma))
    learners = output.plain_table("Learners", ["learner", "why not"], ["± points (95%)"])
    for it in proposal.learners:
        margin = "–" if it.margin is None else f"{100 * it.margin:.2f}"
        learners.add_row(it.learner, it.reason, margin)
    return [masks, *_rules(proposal), learners, *_relaxations(proposal)]


def _rules(proposal: ConsentProposal) -> list[str]:
    """Return the common rules as sentences."""
    limit = "none" if proposal.limit == math.inf else f"γ = {gamma_text(proposal.limit)} for a whole record"
    receivers = proposal.receivers
    whom = "anyone (no party names receivers)" if receivers is None else ", ".join(receivers) or "nobody"
    lines = [
        f"Limit: {limit}.",
        f"At least {counted(proposal.least_records, 'record')} are counted together.",
        f"The model goes to: {whom}.",
        (
            f"Errors are for {counted(proposal.people, 'record')} divided by {proposal.partition}, if all "
            "categories are equally common."
        ),
    ]
    if proposal.most_variables is not None:
        lines.append(f"Tables of at most {counted(proposal.most_variables, 'variable')}.")
    lines += [f"Never together: {', '.join(some)}." for some in proposal.protect]
    lines += [f"Left out: {names} ({reason})." for names, reason in proposal.left_out]
    return lines


def _relaxations(proposal: ConsentProposal) -> list[Table | str]:
    """Return the table of relaxations."""
    if not proposal.relaxations:
        return ["No single party could make more possible."]
    table = output.plain_table("For more", ["party", "would relax", "and all gain"])
    for it in proposal.relaxations:
        table.add_row(it.party, it.relax, it.gain)
    return [table]


def _gamma(gamma: Fraction | float) -> str:
    return "clear" if gamma == math.inf else gamma_text(gamma)
