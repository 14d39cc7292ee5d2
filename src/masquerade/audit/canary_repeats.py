"""Test whether reports repeat: between twins (a reused seed), or between two runs (a memo)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.canary_key import Canaries, Codes
from masquerade.audit.canary_reports import CanaryReports, joint_codes
from masquerade.audit.coded_records import CodedRecords
from masquerade.audit.findings import Finding
from masquerade.channels.policy import Policy
from masquerade.core.util.formatting import percent


def twin_findings(output: CanaryReports, policy: Policy, key: Canaries, alpha: float) -> list[Finding]:
    """Test whether canaries with the same values get the same reports more often than by chance."""
    rows = output.rows
    if rows is None or len(rows) < 4:
        return []
    table = np.stack([codes[rows] for codes in key.codes.values()], axis=1)
    _, group_of_row = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(np.asarray(group_of_row).ravel(), kind="stable")
    ranked = np.asarray(group_of_row).ravel()[order]
    first = np.flatnonzero((ranked[:-1] == ranked[1:]) & (np.arange(len(ranked) - 1) % 2 == 0))
    pairs = [(order[i], order[i + 1]) for i in first.tolist()]
    if not pairs:
        return []
    left, right = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    chance = _same_chance(policy, key, rows[left], rows[right])
    same = _same_reports(policy, output.reports, left, output.reports, right)
    return [_repeat_finding("seed", same, chance, alpha, "twins, canaries with the same values,")]


def run_findings(
    runs: tuple[CanaryReports, CanaryReports], policy: Policy, key: Canaries, alpha: float, *, memo: bool
) -> list[Finding]:
    """Compare two runs of the same canaries: a memo repeats every report, fresh draws do not."""
    first, second = runs
    about = "memo" if memo else "second run"
    if first.rows is None or second.rows is None:
        return [Finding(about=about, verdict="not covered", says="rows of the two runs cannot be matched")]
    there = {canary: row for row, canary in enumerate(second.rows.tolist())}
    both = [(row, there[canary]) for row, canary in enumerate(first.rows.tolist()) if canary in there]
    if not both:
        return [Finding(about=about, verdict="not covered", says="the two runs have no canary in common")]
    left, right = (np.array(side, dtype=np.int64) for side in zip(*both, strict=True))
    same = _same_reports(policy, first.reports, left, second.reports, right)
    if not memo:
        canaries = first.rows[left]
        chance = _same_chance(policy, key, canaries, canaries)
        return [_repeat_finding("second run", same, chance, alpha, "the same canaries in both runs")]
    differ = int((~same).sum())
    if differ:
        return [
            Finding(
                about="memo",
                verdict="contradicted",
                says=f"the memo is off: {differ:,} of {len(same):,} canaries had different reports in the "
                "second run",
                attack="two runs of the same canaries",
                value=differ / len(same),
                repair="configure the pipeline's memo file and the column that names the person",
            )
        ]
    says = f"all {len(same):,} canaries had the same reports in both runs"
    return [Finding(about="memo", verdict="not contradicted", says=says)]


def _same_chance(policy: Policy, key: Canaries, left: Codes, right: Codes) -> NDArray[np.float64]:
    """Return the chance that fresh draws of both canaries agree on all disguised variables."""
    chance = np.ones(len(left))
    by = policy.stratum_variable
    for stratum in policy.strata or (None,):
        rows_here = np.ones(len(left), dtype=bool)
        if stratum is not None and by is not None:
            rows_here = key.codes[by][left] == policy.schema[by].code(stratum)
        for group in policy.groups_of(stratum):
            if not group.disguised:
                continue
            if group.response is not None:
                dealt = group.response.dealing.matrix[0]
                chance[rows_here] *= float((dealt**2).sum())
                continue
            matrix = group.matrix_channel.matrix
            truths = [
                joint_codes([key.codes[name][side[rows_here]] for name in group.names], group.sizes)
                for side in (left, right)
            ]
            chance[rows_here] *= (matrix @ matrix.T)[truths[0], truths[1]]
    return chance


def _same_reports(
    policy: Policy, first: CodedRecords, rows: Codes, second: CodedRecords, others: Codes
) -> NDArray[np.bool_]:
    same = np.ones(len(rows), dtype=bool)
    for group in policy.groups:
        if group.disguised:
            for name in group.reports:
                same &= first.codes[name][rows] == second.codes[name][others]
    return same


def _repeat_finding(
    about: str, same: NDArray[np.bool_], chance: NDArray[np.float64], alpha: float, who: str
) -> Finding:
    """Judge by Chernoff's bound whether equal reports are more frequent than fresh draws explain."""
    n, share, expected = len(same), float(same.mean()), float(chance.mean())
    divergence = _divergence(share, min(expected, 1 - 1e-12)) if share > expected else 0.0
    often = n * divergence > math.log(1 / alpha)
    says = (
        f"{who} had the same reports in {percent(share)} of {n:,} pairs; fresh draws give {percent(expected)}"
    )
    if often:
        return Finding(
            about=about,
            verdict="contradicted",
            says=f"{says}: the generator reuses its seed, or draws do not depend on the person",
            attack="number of equal reports, against Σ P² of fresh draws",
            value=share,
            repair="draw with the operating system's randomness, never with a fixed seed",
        )
    return Finding(about=about, verdict="not contradicted", says=says, value=share)


def _divergence(share: float, expected: float) -> float:
    """Return KL(share ‖ expected), −ln of Chernoff's tail bound per trial.

    The bound also holds if the trials have different probabilities with mean `expected`.
    """
    divergence = 0.0
    if share > 0:
        divergence += share * math.log(share / max(expected, 1e-300))
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - expected))
    return divergence
