"""What came of canaries, made-up records that went through a deployed pipeline.

Disguising acts on records one by one, so a single run of many canaries tells as much as many runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from masquerade.audit.canary_channels import channel_findings, channel_row, sent_through
from masquerade.audit.canary_key import Canaries
from masquerade.audit.canary_repeats import run_findings, twin_findings
from masquerade.audit.canary_reports import CanaryReports, reports_of
from masquerade.audit.epsilon_bracket import clopper_pearson
from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.channels.policy import Policy, policy_of
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted

OTHER_TESTS = 3  # twins, order, a second run: alpha is that of the whole audit
Claim = Literal["memo", "shuffled"]
CLAIMS: tuple[Claim, ...] = ("memo", "shuffled")
NOT_COVERED = (
    "what the pipeline does to records that do not look like canaries",
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
    """Return what became of canaries: which claims about the pipeline they contradict.

    `data` is what came out; where it has the canaries' column they are found by it among others, else the
    file must be theirs alone and its rows are tried in their order. `second` is what came out of a second
    run with the same canaries. `claims` are what else the pipeline is said to do: remember (``memo``), mix
    the rows (``shuffled``).

    Error: chance contradicts any claim of a sound pipeline less often than `alpha`.

    >>> policy = mq.data.students_policy()
    >>> records, key = mq.audit.make_canaries(policy, n=1000)
    >>> out = mq.disguise(records, policy, keep=["canary"])
    >>> mq.audit.read_canaries(out, policy, key, alpha=1e-6).contradicted
    False
    >>> mq.audit.read_canaries(records, policy, key, alpha=1e-6).contradicted
    True
    """
    loaded = policy_of(policy)
    known = key if isinstance(key, Canaries) else Canaries.load(key)
    if known.policy_id != loaded.id:
        raise InputError("The canaries were made for another policy: make new ones for this one.")
    for claim in claims:
        if claim not in CLAIMS:
            raise InputError(f"A claim is one of {', '.join(CLAIMS)}. Got {claim!r} instead.")
    found = reports_of(data, loaded, known)
    findings = [_returned(found, known)]
    tables: tuple[AuditTable, ...] = ()
    tests = [] if found.rows is None else list(sent_through(found, loaded, known))
    share = alpha / (len(tests) + OTHER_TESTS)
    if found.rows is None:
        findings.append(_unmatched(claims))
    elif len(found.rows) == 0:
        return Audit("Audit of a pipeline by canaries", tuple(findings), (), NOT_COVERED)
    else:
        judged = [finding for item in tests for finding in channel_findings(item, share)]
        wrong = {finding.about for finding in judged if finding.verdict == "contradicted"}
        findings += [
            *judged,
            *_moved(found, loaded, known, wrong),
            *twin_findings(found, loaded, known, share),
        ]
        rows = [channel_row(item) for item in tests]
        columns = ("variable", "canaries", "as they were", "expected", "ε at least", "ε of the policy")
        tables = (AuditTable("What came of the canaries", columns, tuple(rows)),)
    findings += _order(found, claims, share)
    if second is not None:
        findings += run_findings(
            (found, reports_of(second, loaded, known)), loaded, known, share, memo="memo" in claims
        )
    elif "memo" in claims:
        says = "whether reports are remembered: a second run of the same canaries is needed"
        findings.append(Finding(about="memo", verdict="not covered", says=says))
    title = f"Audit of a pipeline by {counted(len(known.names), 'canary', 'canaries')}"
    return Audit(title, tuple(findings), tables, NOT_COVERED)


def _returned(found: CanaryReports, key: Canaries) -> Finding:
    made = len(key.names)
    back = found.reports.rows
    if found.named and found.times:
        return Finding(
            about="rows",
            verdict="contradicted",
            says=f"{counted(found.times, 'canary', 'canaries')} came back more than once",
            repair="release every record once: every further draw multiplies γ",
        )
    if back == made:
        return Finding(
            about="rows", verdict="not contradicted", says=f"all {made:,} canaries came back, each once"
        )
    verb = "were dropped" if back < made else "too many came back"
    which = _dropped(found, key) if found.named and back < made else ""
    return Finding(
        about="rows",
        verdict="contradicted",
        says=f"{abs(made - back):,} of {made:,} canaries {verb}{which}",
        attack="canaries are counted",
        value=back / made,
        repair="find the step that loses rows: estimates are about those left, and who is missing may tell",
    )


def _dropped(found: CanaryReports, key: Canaries) -> str:
    """Say which value those that were dropped share, if there is one."""
    if found.rows is None:
        return ""
    gone = np.ones(len(key.names), dtype=bool)
    gone[found.rows] = False
    for name, codes in key.codes.items():
        values, counts = np.unique(codes[gone], return_counts=True)
        if len(values) == 1 and counts[0] >= 20 and len(np.unique(codes)) > 1:
            return f", all with the same value of {name}: who is dropped tells it"
    return ""


def _unmatched(claims: tuple[Claim, ...]) -> Finding:
    mixed = "as claimed" if "shuffled" in claims else "or came back in another number"
    return Finding(
        about="canaries",
        verdict="not covered",
        says=f"the rows cannot be matched to canaries: they were mixed, {mixed}, and no column names them",
        repair="let the pipeline keep the canaries' column in a test run",
    )


def _moved(found: CanaryReports, policy: Policy, key: Canaries, wrong: set[str]) -> list[Finding]:
    """Say of columns that are wrong whether their reports follow another variable's values: swapped."""
    rows = found.rows
    alone = [
        group
        for group in policy.groups
        if len(group.names) == 1 and group.response is None and not group.own_report and group.disguised
    ]
    if rows is None or policy.stratum_variable is not None or len(alone) < 2:
        return []
    findings = []
    for group in (one for one in alone if one.names[0] in wrong):
        report = found.reports.codes[group.names[0]]
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
                        attack="reports of one column beside the values of another",
                        repair="find the step that renames or reorders columns",
                    )
                )
    return findings


def _order(found: CanaryReports, claims: tuple[Claim, ...], alpha: float) -> list[Finding]:
    """Compare the order of canaries that came out with that in which they went in (Kendall's τ)."""
    claimed = "shuffled" in claims
    if found.rows is None:
        says = "rows came out in an order that nobody can match to the canaries'"
        return [Finding(about="order", verdict="not contradicted", says=says)]
    from scipy.stats import kendalltau  # noqa: PLC0415  (slow to import)

    test = kendalltau(np.arange(len(found.rows)), found.rows)
    tau, p = float(test.statistic), float(test.pvalue)
    if p < alpha and abs(tau) > 0.05:
        return [
            Finding(
                about="order",
                verdict="contradicted" if claimed else "at risk",
                says=f"the order of rows is kept (Kendall's τ = {tau:.2f}): whoever knows that of the input "
                "knows whose records these are",
                attack="order of the canaries in and out",
                value=tau,
                repair="mix the rows: `masquerade disguise --shuffle`",
            )
        ]
    says = f"the rows were mixed (Kendall's τ = {tau:.2f})"
    return [Finding(about="order", verdict="not contradicted", says=says, value=tau)]
