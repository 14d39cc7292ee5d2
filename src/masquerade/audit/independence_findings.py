"""Findings on the independence of draws, and the consequences of a dependence for the people reported on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from masquerade.audit.findings import Finding
from masquerade.audit.independence import (
    IndependenceOutcome,
    check_between_calls,
    check_blocks,
    check_drift,
    check_long_stretches,
    check_new_processes,
    check_serial,
    draw_evidence,
)
from masquerade.audit.new_processes import draw_in_new_processes, find_recipe
from masquerade.audit.sampler_calls import vectorize_sampler

ROUNDS: Final = 8  # calls per truth in a new process
SAME_NOISE: Final = (
    "two reports share their noise: anyone who subtracts one from the other removes it, and knows the second "
    "truth as soon as the first is known"
)
OPPOSITE_NOISE: Final = (
    "the noise of two reports cancels: anyone who averages them learns more than two independent reports tell"
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """Comparison that a test makes, attacks that shared or opposite noise allows, and the repair."""

    compares: str
    shared: str
    opposite: str
    repair: str


UNSTEADY: Final = (
    "the distribution of reports changes over time: people do not get the reports that were audited"
)
CLOCKED: Final = (
    "the seed is fixed or taken from a clock: anyone who has the code draws the same noise and computes "
    "every truth"
)
FRESH: Final = "draw every report from a generator with fresh entropy (`secrets`), and set no seed"
TESTS: Final[dict[str, Meaning]] = {
    "serial": Meaning("reports of one call", SAME_NOISE, OPPOSITE_NOISE, FRESH),
    "calls": Meaning("reports of two calls", SAME_NOISE, OPPOSITE_NOISE, FRESH),
    "blocks": Meaning(
        "counts in blocks of reports",
        "counts vary more than counts of independent draws: reports of a block share some of their noise, "
        "which does not average out",
        "counts are nearly the same in every block, as if cards were dealt without replacement: anyone who "
        "knows all "
        "truths of a block but one can compute the last from the reports",
        FRESH,
    ),
    "stretches": Meaning(
        "reports far apart",
        "a stretch of noise is repeated: anyone who knows the truths of the first stretch computes the "
        "noise, "
        "and with it the truths of the second",
        "a stretch of noise is repeated with the opposite sign: averages of both have no noise left",
        FRESH,
    ),
    "drift": Meaning(
        "reports of short and long calls",
        UNSTEADY,
        UNSTEADY,
        FRESH,
    ),
    "processes": Meaning(
        "reports of two new processes",
        CLOCKED,
        CLOCKED,
        "remove the seed: a generator must take entropy from the system when it starts",
    ),
}


def audit_independence(
    sampler: Callable[..., Any],
    truths: Sequence[Any],
    stretches: tuple[Sequence[Any], Sequence[Any]],
    draws: int,
    *,
    alpha: float,
    features: Callable[[Any], Any] | None,
) -> list[Finding]:
    """Return findings on independent draws, each wrong with probability at most `alpha`.

    Parameters
    ----------
    sampler : callable
        ``sampler(truth)`` or ``sampler(truth, n)``.
    truths : sequence
        Truths to draw reports of.
    stretches : tuple of two sequences
        Reports of the same truths in long calls: an earlier and a later stretch.
    draws : int
        Number of draws per truth in the audit. These tests use a quarter as many.
    alpha : float
        Probability of a false alarm of each test.
    features : callable, optional
        Function that converts reports to numbers.

    Returns
    -------
    list of Finding
        One finding per dependence, or a single finding that none was seen.
    """
    evidence = draw_evidence(vectorize_sampler(sampler), truths, stretches, draws, features)
    checks = (check_serial, check_between_calls, check_blocks, check_long_stretches, check_drift)
    outcomes = [check(evidence) for check in checks]
    missing = ""
    rounds, size = len(evidence.calls), evidence.calls.shape[-1]
    recipe = find_recipe(sampler)
    if isinstance(recipe, str):
        missing = recipe
    else:
        pair = draw_in_new_processes(recipe, truths, ROUNDS, size)
        if isinstance(pair, str):
            missing = pair
        else:
            outcomes.append(check_new_processes(*pair))
    effort = f"{rounds} calls of {size} reports for each of {len(truths)} truths"
    wrong = [outcome for outcome in outcomes if outcome.p < alpha]
    if any(outcome.test == "calls" for outcome in wrong):  # the other tests assume that calls are independent
        wrong = [outcome for outcome in wrong if outcome.test in {"calls", "processes"}]
    findings = [_describe(outcome, effort) for outcome in wrong]
    if not findings:
        findings = [_not_contradicted(outcomes, effort)]
    if missing:
        findings.append(
            Finding(
                about="new processes",
                verdict="not covered",
                says=f"new processes were not searched for a seed fixed in the code: {missing}",
                repair="audit it from the command line, as module:function",
            )
        )
    return findings


def _describe(outcome: IndependenceOutcome, effort: str) -> Finding:
    meaning = TESTS[outcome.test]
    chance = f"p = {outcome.p:.2g}" if outcome.p > 0 else "p < 1e-300"
    return Finding(
        about="independence",
        verdict="contradicted",
        says=f"{meaning.compares} depend on each other ({outcome.case}; {effort}, {chance}): "
        + (meaning.shared if outcome.noise == "shared" else meaning.opposite),
        attack=ATTACK,
        value=outcome.p,
        repair=meaning.repair,
    )


ATTACK: Final = (
    "pairs of reports: at a fixed distance in one call, at mirrored positions of one call, or from two "
    "calls, truths or processes; and counts in blocks. The case is chosen on one part of the draws, and "
    "exact conditional tests use the other"
)


def _not_contradicted(outcomes: Sequence[IndependenceOutcome], effort: str) -> Finding:
    listed = ", ".join(TESTS[outcome.test].compares for outcome in outcomes)
    smallest = min(outcome.p for outcome in outcomes)
    return Finding(
        about="independence",
        verdict="not contradicted",
        says=f"no dependence was seen between {listed} ({effort}, smallest p = {smallest:.2g})",
        attack=ATTACK,
        value=smallest,
    )
