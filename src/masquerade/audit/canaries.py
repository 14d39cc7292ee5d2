"""Reading canaries: the reports of synthetic records that were sent through a deployed pipeline.

Disguising acts on each record separately, so one run of many canaries is as informative as many runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from masquerade.audit.canary_channels import channel_findings, channel_row, pair_groups
from masquerade.audit.canary_key import Canaries
from masquerade.audit.canary_repeats import run_findings, twin_findings
from masquerade.audit.canary_reports import CanaryReports, find_reports
from masquerade.audit.epsilon_bracket import clopper_pearson
from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.channels.policy import Policy, policy_of
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted

OTHER_TESTS = 3  # twins, order and a second run share alpha with the tests of channels
Claim = Literal["memo", "shuffled"]
CLAIMS: tuple[Claim, ...] = ("memo", "shuffled")
NOT_COVERED = (
    "how the pipeline treats records that do not look like canaries",
    "copies of the clear records that the pipeline keeps elsewhere",
)


def read_canaries(
    data: Any,
    policy: Policy | str | Path,
    key: Canaries | str | Path,
    *,
    second: Any = None,
    claims: tuple[Claim, ...] = (),
    alpha: float = 1e-5,
) -> Audit:
    """Test claims about a pipeline by the reports of its canaries.

    Parameters
    ----------
    data : frame or path
        Output of the pipeline. If it has the canaries' column, they are found by it among other records.
        Otherwise it must contain canaries only, and its rows are matched by their order.
    policy : Policy or path
        Policy that the pipeline should follow.
    key : Canaries or path
        Key that `make_canaries` returned.
    second : frame or path, optional
        Output of a second run with the same canaries.
    claims : tuple of str, optional
        Further claims about the pipeline: ``"memo"`` (it repeats the report of a person), ``"shuffled"`` (it
        shuffles the rows).
    alpha : float, optional
        Largest chance that any claim of a sound pipeline is contradicted.

    Returns
    -------
    Audit
        One finding per claim.

    Raises
    ------
    InputError
        If the key belongs to a different policy, or a claim is unknown.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> records, key = mq.audit.make_canaries(policy, n=1000)
    >>> out = mq.disguise(records, policy, keep=["canary"])
    >>> mq.audit.read_canaries(out, policy, key, alpha=1e-6).contradicted
    False
    >>> mq.audit.read_canaries(records, policy, key, alpha=1e-6).contradicted
    True
    """
    loaded = policy_of(policy)
    canaries = key if isinstance(key, Canaries) else Canaries.load(key)
    if canaries.policy_id != loaded.id:
        raise InputError("The canaries were made for a different policy: make new ones for this policy.")
    for claim in claims:
        if claim not in CLAIMS:
            raise InputError(f"A claim is one of {', '.join(CLAIMS)}. Got {claim!r} instead.")
    output = find_reports(data, loaded, canaries)
    findings = [_count_finding(output, canaries)]
    tables: tuple[AuditTable, ...] = ()
    tests = [] if output.rows is None else list(pair_groups(output, loaded, canaries))
    share = alpha / (len(tests) + OTHER_TESTS)
    if output.rows is None:
        findings.append(_no_match_finding(claims))
    elif len(output.rows) == 0:
        return Audit("Audit of a pipeline by canaries", tuple(findings), (), NOT_COVERED)
    else:
        judged = [finding for item in tests for finding in channel_findings(item, share)]
        wrong = {finding.about for finding in judged if finding.verdict == "contradicted"}
        findings += [
            *judged,
            *_swap_findings(output, loaded, canaries, wrong),
            *twin_findings(output, loaded, canaries, share),
        ]
        rows = [channel_row(item) for item in tests]
        columns = ("variable", "canaries", "unchanged", "expected", "ε at least", "ε of the policy")
        tables = (AuditTable("Reports of the canaries", columns, tuple(rows)),)
    findings += _order_findings(output, claims, share)
    if second is not None:
        findings += run_findings(
            (output, find_reports(second, loaded, canaries)), loaded, canaries, share, memo="memo" in claims
        )
    elif "memo" in claims:
        says = "whether reports are repeated: this needs a second run of the same canaries"
        findings.append(Finding(about="memo", verdict="not covered", says=says))
    title = f"Audit of a pipeline by {counted(len(canaries.names), 'canary', 'canaries')}"
    return Audit(title, tuple(findings), tables, NOT_COVERED)


def _count_finding(output: CanaryReports, key: Canaries) -> Finding:
    made = len(key.names)
    back = output.reports.rows
    if output.named and output.times:
        return Finding(
            about="rows",
            verdict="contradicted",
            says=f"canaries came back more than once ({counted(output.times, 'further row')})",
            repair="release every record once: every further draw multiplies γ",
        )
    if back == made:
        return Finding(
            about="rows", verdict="not contradicted", says=f"all {made:,} canaries came back, each once"
        )
    if back < made:
        which = _describe_dropped(output, key) if output.named else ""
        says = f"{made - back:,} of {made:,} canaries were dropped{which}"
    else:
        says = f"{back:,} records came back, but only {made:,} canaries were made"
    return Finding(
        about="rows",
        verdict="contradicted",
        says=says,
        attack="canaries are counted",
        value=back / made,
        repair="find the step that loses or adds rows: estimates describe the remaining rows only, and a "
        "missing row may reveal something about its person",
    )


def _describe_dropped(output: CanaryReports, key: Canaries) -> str:
    """Return the name of a variable on which all dropped canaries agree, as text, or ""."""
    if output.rows is None:
        return ""
    gone = np.ones(len(key.names), dtype=bool)
    gone[output.rows] = False
    for name, codes in key.codes.items():
        values, counts = np.unique(codes[gone], return_counts=True)
        if len(values) == 1 and counts[0] >= 20 and len(np.unique(codes)) > 1:
            return f", all with the same value of {name}: being dropped reveals it"
    return ""


def _no_match_finding(claims: tuple[Claim, ...]) -> Finding:
    reason = "as claimed" if "shuffled" in claims else "or their number changed"
    return Finding(
        about="canaries",
        verdict="not covered",
        says=f"the rows cannot be matched to canaries: they were shuffled, {reason}, and there is no column "
        "that identifies them",
        repair="make the pipeline keep the canaries' column in a test run",
    )


def _swap_findings(output: CanaryReports, policy: Policy, key: Canaries, wrong: set[str]) -> list[Finding]:
    """Test whether the reports of a contradicted column follow the values of a different variable."""
    rows = output.rows
    alone = [
        group
        for group in policy.groups
        if len(group.names) == 1 and group.response is None and not group.own_report and group.disguised
    ]
    if rows is None or policy.stratum_variable is not None or len(alone) < 2:
        return []
    findings = []
    for group in (one for one in alone if one.names[0] in wrong):
        report = output.reports.codes[group.names[0]]
        for other in alone:
            if other is group or other.sizes != group.sizes:
                continue
            same = int((key.codes[other.names[0]][rows] == report).sum())
            low, _ = clopper_pearson(same, len(rows), 1e-6)
            if float(low) > 1 / group.sizes[0] + 1e-12:
                findings.append(
                    Finding(
                        about=group.names[0],
                        verdict="contradicted",
                        says=f"the column follows the values of {other.names[0]}: columns were swapped",
                        attack="reports of one column against the values of another",
                        repair="find the step that renames or reorders columns",
                    )
                )
    return findings


def _order_findings(output: CanaryReports, claims: tuple[Claim, ...], alpha: float) -> list[Finding]:
    """Compare the order of the canaries in the output with the order in the input (Kendall's τ)."""
    claimed = "shuffled" in claims
    if output.rows is None:
        says = "the order of the rows cannot be matched to the order of the canaries"
        return [Finding(about="order", verdict="not contradicted", says=says)]
    from scipy.stats import kendalltau  # noqa: PLC0415  (slow to import)

    test = kendalltau(np.arange(len(output.rows)), output.rows)
    tau, p = float(test.statistic), float(test.pvalue)
    if p < alpha and abs(tau) > 0.05:
        return [
            Finding(
                about="order",
                verdict="contradicted" if claimed else "at risk",
                says=f"the order of rows is kept (Kendall's τ = {tau:.2f}): anyone who knows the order of "
                "the "
                "input knows whose records these are",
                attack="order of the canaries in and out",
                value=tau,
                repair="shuffle the rows: `masquerade disguise --shuffle`",
            )
        ]
    says = f"the rows do not follow the order of the canaries (Kendall's τ = {tau:.2f})"
    return [Finding(about="order", verdict="not contradicted", says=says, value=tau)]
