"""Audit of a published release: its fit to the policy, and the risk for the people in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.attacker import RECORDS, Success, attack, averaging, forest, success_table
from masquerade.audit.coded_records import CodedRecords, clear_records, released_records, rows_of_persons
from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.audit.linkage import linkage_curve, measured_linkage
from masquerade.channels.policy import Policy, policy_of
from masquerade.channels.policy.record import record_gamma
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.util.formatting import counted, epsilon_text, log_gamma, percent
from masquerade.frames.metadata import MEMO
from masquerade.sources.records import Records

if TYPE_CHECKING:
    from masquerade.learn.networks.network import BayesianNetwork

FEW = 5  # a combination of clear values shared by fewer people singles them out
EXCESS = 0.05  # a variable is flagged if other reports raise the success of guessing it by this much
LINKED = 0.05  # a release is at risk if linkage succeeds at least this often
DRAWS = (1, 2, 3, 5, 9, 31)
ROUNDING = 1e-9
MOST_CELLS = 1 << 20  # largest channel whose rows are examined
MOST_VARIABLES = 120  # most variables whose pairs are queried
ASSUMED = "the attacker knows true values of the person, and that the person is among the records"
NOT_COVERED = (
    "releases by others about the same people",
    "presence: that a person is among the records is not hidden by disguising values",
    "attackers who know more than the population's network and the reports",
)


def audit_release(
    data: Any,
    policy: Policy | str | Path,
    *,
    truth: Any = None,
    earlier: Sequence[Any] = (),
    id: str | None = None,  # noqa: A002  (the word users know)
    network: BayesianNetwork | None = None,
    attacker: bool = True,
    alpha: float = 1e-5,
    records: int = RECORDS,
    seed: int | None = None,
) -> Audit:
    """Audit a disguised file or frame for risks beyond the γ of its policy.

    No result refers to a single person.

    Parameters
    ----------
    data : frame or path
        Disguised records.
    policy : Policy or path
        Policy under which they were disguised.
    truth : frame or path, optional
        The clear records, in the same order or with the same `id`. With them, linkage is measured too.
    earlier : sequence of frame or path, optional
        Earlier releases about the same people, matched by `id`.
    id : str, optional
        Column that identifies persons.
    network : BayesianNetwork, optional
        The attacker's knowledge of the population. By default a network learnt from the release.
    attacker : bool, optional
        Also compute the success of an attacker who knows the population.
    alpha : float, optional
        Significance level: largest probability of contradicting a true claim by chance.
    records : int, optional
        Number of simulated records for the attacker.
    seed : int, optional
        Seed of the simulated records.

    Returns
    -------
    Audit
        Findings on origin, fit, repeated rows, persons, clear columns, linkage and the attacker.

    Raises
    ------
    InputError
        If the release is empty, or if `earlier` or `truth` cannot be matched to it.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> reports = mq.disguise(mq.data.students(), policy, shuffle=True)
    >>> found = mq.audit.audit_release(reports, policy, attacker=False, alpha=1e-6)
    >>> found.contradicted
    False
    """
    loaded = policy_of(policy)
    if earlier and id is None:
        raise InputError("Earlier releases are matched by person: name the column of persons ('id').")
    release = released_records(data, loaded, id)
    if release.rows == 0:
        raise InputError("The release has no records.")
    source = Records(_narrow(release), loaded)
    shares = _shares(source, loaded)
    findings = [
        *_origin(release, loaded),
        *_fit_findings(source, loaded, alpha),
        *_repeats(release, loaded, alpha),
        *_persons(release, id),
        *_singled_out(release, loaded),
    ]
    tables: list[AuditTable] = []
    not_covered = list(NOT_COVERED)
    truths = None if truth is None else _match_truth(clear_records(truth, loaded, id), release)
    linked, table = _linkage(release, loaded, shares, truths, seed)
    findings += linked
    tables += [table] if table.rows else []
    changed, table = _earlier(release, [released_records(one, loaded, id) for one in earlier], loaded, shares)
    findings += changed
    tables += [table] if table.rows else []
    if attacker:
        attacked, successes, missing = _attack_findings(source, loaded, network, records, seed)
        findings += attacked
        tables += [] if successes is None else [successes]
        not_covered += missing
    title = f"Audit of a release: {counted(release.rows, 'record')} under policy {loaded.id[:12]}"
    return Audit(title, tuple(findings), tuple(tables), tuple(not_covered))


def _narrow(release: CodedRecords) -> dict[str, NDArray[Any]]:
    return {
        name: codes.astype(np.min_scalar_type(int(codes.max(initial=0))))
        for name, codes in release.codes.items()
    }


def _shares(source: Records, policy: Policy) -> dict[str, Floats]:
    """Return the estimated shares of all variables that can be estimated."""
    shares: dict[str, Floats] = {}
    for name in policy.schema:
        query = Query(by=(name,))
        if not source.check([query]):
            values = np.maximum(source.answer([query])[0].values, 0.0)
            if values.sum() > 0:
                shares[name] = values / values.sum()
    return shares


def _origin(release: CodedRecords, policy: Policy) -> list[Finding]:
    stated = release.metadata.get("policy")
    if stated is None:
        if not policy.disguised:
            return []
        return [
            Finding(
                about="origin",
                verdict="not covered",
                says="the records do not state under which policy they were disguised, or whether they were "
                "disguised: clear records that look like reports would pass",
                repair="audit the file that `masquerade disguise` wrote, with its metadata file, or send "
                "canaries through the pipeline: `masquerade audit canaries`",
            )
        ]
    same = stated == policy.id
    return [
        Finding(
            about="origin",
            verdict="not contradicted" if same else "contradicted",
            says=f"the records state that they were disguised under {'this' if same else 'a different'} "
            "policy",
            repair="" if same else "audit them with the policy that they were disguised under",
        )
    ]


def _fit_findings(source: Records, policy: Policy, alpha: float) -> list[Finding]:
    tested: dict[str, float] = {}
    for group in policy.groups:
        for name in group.names:
            if group.disguised and policy.stratum_variable is None and not source.check([Query(by=(name,))]):
                tested[name] = source.misfit((name,)).p_value
    if not tested:
        return []
    name, p = min(tested.items(), key=lambda item: item[1])
    wrong = p * len(tested) < alpha
    return [
        Finding(
            about="policy",
            verdict="contradicted" if wrong else "not contradicted",
            says=f"no truth explains the reports of {name} under this policy (p = {p:.2g})"
            if wrong
            else f"some truth explains the reports of each of {counted(len(tested), 'variable')}",
            attack="likelihood-ratio test of the reports against all possible truths",
            value=p,
            repair="find out under which policy the records were disguised, and whether only once"
            if wrong
            else "",
        )
    ]


def _repeats(release: CodedRecords, policy: Policy, alpha: float) -> list[Finding]:
    """Search for a run of rows that occurs twice in the same order, such as a segment appended twice.

    Records are drawn independently, so two of them have equal reports with probability at most Σ P(report |
    truth)², for the truth with the largest sum. Runs of equal rows are reported only if they are so long that
    their probability is below alpha. If people are dealt different questions, the order is assumed to be
    random.
    """
    n = release.rows
    keys = _row_keys(release)
    pairs = n * (n - 1) / 2
    same = _chance_to_agree(policy)
    if same is None:
        _, counts = np.unique(keys, return_counts=True)
        same = float((counts.astype(float) * (counts - 1) / 2).sum()) / max(pairs, 1)
    if same >= 1 - ROUNDING or n < 4:
        return []
    length = max(2, math.ceil(math.log(pairs / alpha) / math.log(1 / max(same, 1 / max(pairs, 2)))))
    if length > n // 2:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(keys, length)
    rng = np.random.default_rng(0)
    mixed = (windows.astype(np.uint64) * rng.integers(1, 1 << 62, length, dtype=np.uint64)).sum(axis=1)
    order = np.argsort(mixed, kind="stable")
    again = (np.diff(mixed[order]) == 0) & (np.abs(np.diff(order)) >= length)
    repeated = int(again.sum())
    if repeated:
        return [
            Finding(
                about="repeats",
                verdict="contradicted",
                says=f"rows occur twice in the same order ({counted(repeated, 'run')} of {length} rows occur "
                "again): a segment was appended again, or draws repeat",
                attack="equal runs of rows, longer than chance explains",
                repair="release every record once, with the operating system's randomness",
            )
        ]
    return [
        Finding(
            about="repeats",
            verdict="not contradicted",
            says=f"no run of {length} rows occurs again in the file",
        )
    ]


def _chance_to_agree(policy: Policy) -> float | None:
    """Return an upper bound of the probability that two records have equal reports; None if there is none."""
    chance = 1.0
    for group in policy.groups:
        if group.response is not None:
            return None
        if (
            math.prod(group.sizes) * math.prod(group.report_sizes) <= MOST_CELLS
        ):  # larger groups are skipped, which keeps the bound valid
            chance *= float((group.matrix_channel.matrix**2).sum(axis=1).max())
    return chance


def _row_keys(release: CodedRecords) -> NDArray[np.int64]:
    table = np.stack(list(release.codes.values()), axis=1)
    _, keys = np.unique(table, axis=0, return_inverse=True)
    return np.asarray(keys).ravel()


def _persons(release: CodedRecords, column: str | None) -> list[Finding]:
    if release.persons is None:
        return []
    twice = release.rows - len(set(release.persons))
    if not twice:
        return [Finding(about="persons", verdict="not contradicted", says="every person has one record")]
    return [
        Finding(
            about="persons",
            verdict="contradicted",
            says=f"column {column!r} names fewer persons than there are records (a difference of {twice:,}): "
            "every further draw multiplies γ",
            repair="release one record of every person, or disguise with a memo",
        )
    ]


def _singled_out(release: CodedRecords, policy: Policy) -> list[Finding]:
    clear = [name for name in policy.schema if name not in policy.disguised and name in release.codes]
    if not clear:
        return []
    table = np.stack([release.codes[name] for name in clear], axis=1)
    _, counts = np.unique(table, axis=0, return_counts=True)
    unique, few = int((counts == 1).sum()), int(counts[counts < FEW].sum())
    names = ", ".join(clear)
    if not few:
        return [
            Finding(
                about="clear columns",
                verdict="not contradicted",
                says=f"every combination of {names} is shared by {int(counts.min()):,} records or more",
                value=float(counts.min()),
            )
        ]
    return [
        Finding(
            about="clear columns",
            verdict="at risk",
            says=f"{names} single people out: {counted(unique, 'record')} with a unique combination, "
            f"{few:,} with "
            f"one that fewer than {FEW} people share",
            attack="anyone who knows these values finds the record, and reads all its reports",
            value=float(counts.min()),
            repair="disguise these columns too, or generalize them: `masquerade anonymize`",
        )
    ]


def _match_truth(truth: CodedRecords, release: CodedRecords) -> CodedRecords:
    if truth.persons is not None:
        rows, truth_rows = rows_of_persons(release, truth)
        if len(rows) < release.rows:
            raise InputError(
                f"The true records lack {release.rows - len(rows):,} of the persons of the release."
            )
        return truth.at(truth_rows)
    if truth.rows != release.rows:
        raise InputError(
            f"There are {truth.rows:,} true records and {release.rows:,} released records: name the column "
            "that "
            "identifies persons ('id')."
        )
    return truth


def _linkage(
    release: CodedRecords,
    policy: Policy,
    shares: dict[str, Floats],
    truth: CodedRecords | None,
    seed: int | None,
) -> tuple[list[Finding], AuditTable]:
    columns = ("attributes known", "most informative first", "right record (formula)")
    if policy.stratum_variable is not None:
        return [], AuditTable("Linkage", columns, ())
    curve = linkage_curve(policy, shares, release.rows, seed=seed)
    rows: list[tuple[Any, ...]] = []
    for names, chance in curve:
        row: tuple[Any, ...] = (len(names), names[-1], chance)
        if truth is not None:
            row += (measured_linkage(policy, truth.codes, release.codes, names, seed=seed)[0],)
        rows.append(row)
    if not rows:
        return [], AuditTable("Linkage", columns, ())
    worst = max(max(row[2:]) for row in rows)
    last = rows[-1]
    success = f"an attacker who knows {counted(last[0], 'true value')} of a person finds the record in "
    success += f"{percent(last[2])} of cases" + (
        f" (measured: {percent(last[3])})" if truth is not None else ""
    )
    finding = Finding(
        about="linkage",
        verdict="at risk" if worst > LINKED else "not contradicted",
        says=f"{success}; by chance: {percent(1 / release.rows)}",
        attack="records are scored by the likelihood of their reports given the known values",
        assumption=ASSUMED,
        value=worst,
        repair="release fewer variables of a person, deal them in blocks, or disguise more"
        if worst > LINKED
        else "",
    )
    measured = ("right record (measured)",) if truth is not None else ()
    note = "The formula assumes independent variables, with the shares estimated from the release."
    return [finding], AuditTable("Linkage by known attributes", (*columns, *measured), tuple(rows), note)


def _earlier(
    release: CodedRecords, earlier: Sequence[CodedRecords], policy: Policy, shares: dict[str, Floats]
) -> tuple[list[Finding], AuditTable]:
    """Test releases about the same people together, and compute how often a memo reveals a change."""
    columns = ("variable", *(counted(draws, "draw") for draws in DRAWS), "change seen, at most")
    rows = []
    for group in policy.groups:
        if not group.disguised or group.response is not None or len(group.names) > 1:
            continue
        matrix = group.matrix_channel.matrix
        prior = shares.get(group.names[0], np.full(len(matrix), 1 / len(matrix)))
        guesses = [averaging(matrix, prior, draws) for draws in DRAWS]
        rows.append((group.names[0], *guesses, change_seen(matrix)))
    table = AuditTable(
        "Success of a best guess after several fresh draws of one value, and visibility of a change under "
        "a memo",
        columns,
        tuple(rows),
        "With a memo, unchanged values repeat their report and further releases reveal nothing more. But two "
        "different reports of a person then prove a change. – means too many combinations to sum.",
    )
    findings = [_compare(release, other, place, policy) for place, other in enumerate(earlier, start=1)]
    findings += _draws_together(release, earlier, policy)
    return findings, table if earlier else AuditTable(table.title, columns, ())


def _draws_together(release: CodedRecords, earlier: Sequence[CodedRecords], policy: Policy) -> list[Finding]:
    """Return the total ε of all releases if they are several draws; equal memo and policy mean one draw."""
    about_same = [other for other in earlier if len(rows_of_persons(release, other)[0])]
    drawn = [(other.metadata.get(MEMO), other.metadata.get("policy")) for other in (release, *about_same)]
    by_memo = {draw for draw in drawn if draw[0] is not None}
    draws = len(by_memo) + sum(draw[0] is None for draw in drawn)
    if len(by_memo) < 2:  # releases without a memo are compared by their reports
        return []
    bound = epsilon_text(draws * log_gamma(record_gamma(policy)))
    return [
        Finding(
            about="draws",
            verdict="contradicted",
            says=f"{draws} draws about the same persons, by {counted(len(by_memo), 'memo')}: all releases "
            f"together have ε = {bound}",
            attack="the memo ids of the releases are compared",
            value=float(draws),
            repair="disguise with the memo of the first release, and withdraw the others",
        )
    ]


def change_seen(matrix: Floats) -> float:
    """Return the largest probability that a memo reveals a changed value: 1 − Σ_m P[l, m]·P[l', m]."""
    same = matrix @ matrix.T
    return float(max((1 - same[a, b] for a, b in combinations(range(len(matrix)), 2)), default=0.0))


def _compare(release: CodedRecords, other: CodedRecords, place: int, policy: Policy) -> Finding:
    rows, other_rows = rows_of_persons(release, other)
    columns = [
        name for group in policy.groups if group.disguised for name in group.reports if name in release.codes
    ]
    differ = np.zeros(len(rows), dtype=bool)
    for name in columns:
        differ |= release.codes[name][rows] != other.codes[name][other_rows]
    both, changed = len(rows), int(differ.sum())
    about = f"earlier release {place}"
    memo = MEMO in release.metadata and release.metadata.get(MEMO) == other.metadata.get(MEMO)
    if not both:
        return Finding(about=about, verdict="not covered", says="it has no person in common with this one")
    if not changed:
        return Finding(
            about=about,
            verdict="not contradicted",
            says=f"all {both:,} persons in both have the same reports, as with a memo: nothing more is "
            "revealed",
        )
    bound = epsilon_text(2 * log_gamma(record_gamma(policy)))
    if memo:
        return Finding(
            about=about,
            verdict="at risk",
            says=f"the same memo drew both, and {changed:,} of {both:,} persons have a different report now: "
            "their value certainly changed",
            value=changed / both,
            repair="if a change itself is sensitive, release it under a new policy id or not at all",
        )
    return Finding(
        about=about,
        verdict="contradicted",
        says=f"{changed:,} of {both:,} persons were drawn again: both releases together have ε = {bound}, "
        "not the ε of one draw",
        attack="reports of one person in two releases are compared",
        value=changed / both,
        repair="disguise with a memo, and withdraw one of the releases",
    )


def _attack_findings(
    source: Records, policy: Policy, network: BayesianNetwork | None, records: int, seed: int | None
) -> tuple[list[Finding], AuditTable | None, list[str]]:
    if any(group.response is not None for group in policy.groups):
        return (
            [],
            None,
            ["the attacker who knows the population: not covered for variables dealt in blocks; γ holds"],
        )
    used = network
    if used is None:
        askable = [name for name in policy.schema if not source.check([Query(by=(name,))])]
        if len(askable) < len(policy.schema) or len(askable) > MOST_VARIABLES:
            return [], None, ["the attacker who knows the population: give a network"]
        pairs = [Query(by=pair) for pair in combinations(askable, 2)]
        if source.check(pairs):
            return (
                [],
                None,
                ["the attacker who knows the population: pairs cannot be estimated, give a network"],
            )
        used = forest(source)
    successes = attack(policy, used, records=records, seed=seed)
    origin = "" if network is not None else " (by a network learnt from the release: an estimate)"
    findings = [*_worst(successes, origin), *_near_copies(successes, used, policy)]
    return findings, success_table(successes), []


def _worst(successes: Sequence[Success], origin: str) -> list[Finding]:
    if not successes:
        return []
    best = max(successes, key=lambda one: one.whole - one.prior)
    shift = max(successes, key=lambda one: one.shift)
    bound = (
        f", of {math.exp(shift.bound):,.3g} allowed"
        if shift.bound < 700  # exp overflows beyond
        else "; no γ bounds it, since a column is released in clear"
    )
    reached = (
        "without bound, by a clear column"
        if math.isinf(shift.shift)
        else f"by a factor of {shift.shift:,.3g}"
    )
    return [
        Finding(
            about="attacker who knows the population",
            verdict="not contradicted"
            if shift.shift <= math.exp(min(shift.bound, 700)) * (1 + 1e-9)
            else "contradicted",
            says=f"guesses {best.target} correctly in {percent(best.whole)} of cases, in "
            f"{percent(best.prior)} without any report; at worst, the odds of {shift.target} change "
            f"{reached}{bound}{origin}",
            attack="exact posteriors from all reports of a record; only averages and the worst case are kept",
            value=best.whole,
            low=best.whole - 2 * best.stderr,
            high=best.whole + 2 * best.stderr,
        )
    ]


def _near_copies(successes: Sequence[Success], network: BayesianNetwork, policy: Policy) -> list[Finding]:
    """Flag variables that reports of other variables reveal, together with the variables linked to them."""
    betrayed = {one.target: one for one in successes if one.whole - one.own > EXCESS}
    near: dict[str, set[str]] = {name: set() for name in network.schema}
    for name, parents in network.structure.items():
        for parent in parents:
            near[name].add(parent)
            near[parent].add(name)
    findings, seen = [], set[str]()
    for name in betrayed:
        if name in seen:
            continue
        group, waiting = {name}, [name]
        while waiting:
            for other in near[waiting.pop()]:
                if other not in group:
                    group.add(other)
                    waiting += [other] if other in betrayed else []
        seen |= group & set(betrayed)
        worst = max((betrayed[one] for one in group if one in betrayed), key=lambda one: one.whole - one.own)
        members = [one for one in policy.schema if one in group]
        clear = [one for one in members if one not in policy.disguised]
        repair = "disguise them through one joint channel, or deal them in blocks (`masquerade plan`)"
        repair = f"disguise {', '.join(clear)} too; or {repair}" if clear else repair
        findings.append(
            Finding(
                about=", ".join(members),
                verdict="at risk",
                says=f"are near-copies of one trait: from its own report alone, {worst.target} is guessed "
                f"right {percent(worst.own)} of the time; from all of them, {percent(worst.whole)}",
                attack="the attacker combines the reports of correlated variables",
                value=worst.whole - worst.own,
                repair=repair,
            )
        )
    return findings
