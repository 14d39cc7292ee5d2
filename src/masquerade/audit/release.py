"""A release as others will see it: what its records say about the policy, and about the people in them."""

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
from masquerade.channels.policy.privacy import record_gamma
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.util.formatting import counted, epsilon_text, log_gamma, percent
from masquerade.frames.metadata import MEMO
from masquerade.sources.records import Records

if TYPE_CHECKING:
    from masquerade.learn.networks.network import BayesianNetwork

FEW = 5  # people with the same clear values: fewer are singled out
EXCESS = 0.05  # by which a joint vulnerability may exceed the declared one
LINKED = 0.05  # success of linkage that is worth a word
DRAWS = (1, 2, 3, 5, 9, 31)
ROUNDING = 1e-9
MOST_CELLS = 1 << 20  # of a channel whose rows are looked at
MOST_VARIABLES = 120  # whose pairs are asked about
ASSUMED = "the attacker knows true values of the person, and that the person is among the records"
NOT_COVERED = (
    "what others have released about the same people",
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
    """Return what a disguised file or frame gives away, beyond the γ of its policy.

    `truth` are the clear records, in the same order or with the same `id`: linkage is then measured too.
    `earlier` are releases about the same people, matched by `id`. The attacker knows the population by
    `network`, or by one learnt from the release. Nothing returned is about one person. `seed` repeats the
    simulated records.

    Error: a test contradicts a claim only where chance would do so less often than `alpha`.

    >>> policy = mq.data.students_policy()
    >>> reports = mq.disguise(mq.data.students(), policy, shuffle=True)
    >>> found = mq.audit.audit_release(reports, policy, attacker=False, alpha=1e-6)
    >>> found.contradicted
    False
    """
    loaded = policy_of(policy)
    if earlier and id is None:
        raise InputError("Earlier releases are matched by persons: name the column ('id').")
    release = released_records(data, loaded, id)
    if release.rows == 0:
        raise InputError("The release has no records.")
    source = Records(_narrow(release), loaded)
    shares = _shares(source, loaded)
    findings = [
        *_origin(release, loaded),
        *_misfit(source, loaded, alpha),
        *_repeats(release, loaded, alpha),
        *_persons(release, id),
        *_singled_out(release, loaded),
    ]
    tables: list[AuditTable] = []
    not_covered = list(NOT_COVERED)
    truths = None if truth is None else _matched_truth(clear_records(truth, loaded, id), release)
    linked, table = _linkage(release, loaded, shares, truths, seed)
    findings += linked
    tables += [table] if table.rows else []
    changed, table = _earlier(release, [released_records(one, loaded, id) for one in earlier], loaded, shares)
    findings += changed
    tables += [table] if table.rows else []
    if attacker:
        attacked, successes, missing = _attacked(source, loaded, network, records, seed)
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
    """Return the estimated shares of every variable whose counts can be estimated."""
    found: dict[str, Floats] = {}
    for name in policy.schema:
        query = Query(by=(name,))
        if not source.check([query]):
            values = np.maximum(source.answer([query])[0].values, 0.0)
            if values.sum() > 0:
                found[name] = values / values.sum()
    return found


def _origin(release: CodedRecords, policy: Policy) -> list[Finding]:
    said = release.said.get("policy")
    if said is None:
        if not policy.disguised:
            return []
        return [
            Finding(
                about="origin",
                verdict="not covered",
                says="the records do not say under which policy they were disguised, or whether they were at "
                "all: clear records that look like reports would pass",
                repair="audit the file that `masquerade disguise` wrote, with what stands beside it, or send "
                "canaries through the pipeline: `masquerade audit canaries`",
            )
        ]
    own = said == policy.id
    return [
        Finding(
            about="origin",
            verdict="not contradicted" if own else "contradicted",
            says=f"the records say that they were disguised under {'this' if own else 'another'} policy",
            repair="" if own else "audit them with the policy that they were disguised under",
        )
    ]


def _misfit(source: Records, policy: Policy, alpha: float) -> list[Finding]:
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
            repair="find out under which policy the records were disguised, and whether once"
            if wrong
            else "",
        )
    ]


def _repeats(release: CodedRecords, policy: Policy, alpha: float) -> list[Finding]:
    """Look for rows that stand in the file twice in the same order: a part that was appended again.

    Two records are drawn apart, so their reports agree with a chance of at most Σ P(report | truth)², of the
    truth for which it is largest, in whatever order they stand: a run of equal rows longer than that allows
    comes about with a chance below alpha. Where people are dealt questions, the order is taken for random.
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
                says=f"rows stand in it twice in the same order ({counted(repeated, 'run')} of {length} "
                "rows occur again): a part was appended again, or draws repeat",
                attack="equal runs of rows, longer than chance gives",
                repair="release every record once, with randomness of the operating system",
            )
        ]
    return [
        Finding(
            about="repeats",
            verdict="not contradicted",
            says=f"no {length} rows in a row occur again elsewhere in the file",
        )
    ]


def _chance_to_agree(policy: Policy) -> float | None:
    """Return a bound of the chance that two records are reported alike, None where no channel tells."""
    found = 1.0
    for group in policy.groups:
        if group.response is not None:
            return None
        if (
            math.prod(group.sizes) * math.prod(group.report_sizes) <= MOST_CELLS
        ):  # else nothing is said of this group
            found *= float((group.matrix_channel.matrix**2).sum(axis=1).max())
    return found


def _row_keys(release: CodedRecords) -> NDArray[np.int64]:
    table = np.stack(list(release.codes.values()), axis=1)
    _, keys = np.unique(table, axis=0, return_inverse=True)
    return np.asarray(keys).ravel()


def _persons(release: CodedRecords, column: str | None) -> list[Finding]:
    if release.persons is None:
        return []
    twice = release.rows - len(set(release.persons))
    if not twice:
        return [Finding(about="persons", verdict="not contradicted", says="everybody has one record")]
    return [
        Finding(
            about="persons",
            verdict="contradicted",
            says=f"{counted(twice, 'record')} more than persons in column {column!r}: every further "
            "draw multiplies γ",
            repair="release one record of every person, or disguise with a memo",
        )
    ]


def _singled_out(release: CodedRecords, policy: Policy) -> list[Finding]:
    clear = [name for name in policy.schema if name not in policy.disguised and name in release.codes]
    if not clear:
        return []
    table = np.stack([release.codes[name] for name in clear], axis=1)
    _, counts = np.unique(table, axis=0, return_counts=True)
    alone, few = int((counts == 1).sum()), int(counts[counts < FEW].sum())
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
            says=f"{names} single people out: {counted(alone, 'record')} alone in a combination, {few:,} "
            f"share theirs with fewer than {FEW} in all",
            attack="whoever knows these values finds the record, and reads all its reports",
            value=float(counts.min()),
            repair="disguise these columns too, or make them coarser: `masquerade anonymize`",
        )
    ]


def _matched_truth(truth: CodedRecords, release: CodedRecords) -> CodedRecords:
    if truth.persons is not None:
        own, other = rows_of_persons(release, truth)
        if len(own) < release.rows:
            raise InputError(
                f"The true records lack {release.rows - len(own):,} of the persons of the release."
            )
        return truth.at(other)
    if truth.rows != release.rows:
        raise InputError(
            f"There are {truth.rows:,} true records and {release.rows:,} released ones: name the column that "
            "tells whose they are ('id')."
        )
    return truth


def _linkage(
    release: CodedRecords,
    policy: Policy,
    shares: dict[str, Floats],
    truth: CodedRecords | None,
    seed: int | None,
) -> tuple[list[Finding], AuditTable]:
    columns = ("attributes known", "best first", "right record (formula)")
    if policy.stratum_variable is not None:
        return [], AuditTable("Linkage", columns, ())
    curve = linkage_curve(policy, shares, release.rows, seed=seed)
    rows: list[tuple[Any, ...]] = []
    for names, success in curve:
        row: tuple[Any, ...] = (len(names), names[-1], success)
        if truth is not None:
            row += (measured_linkage(policy, truth.codes, release.codes, names, seed=seed)[0],)
        rows.append(row)
    if not rows:
        return [], AuditTable("Linkage", columns, ())
    worst = max(max(row[2:]) for row in rows)
    last = rows[-1]
    said = f"an attacker who knows {counted(last[0], 'true value')} of a person finds the record in "
    said += f"{percent(last[2])} of cases" + (f" (measured: {percent(last[3])})" if truth is not None else "")
    finding = Finding(
        about="linkage",
        verdict="at risk" if worst > LINKED else "not contradicted",
        says=f"{said}; blind: {percent(1 / release.rows)}",
        attack="records are scored by the likelihood of their reports given what is known",
        assumption=ASSUMED,
        value=worst,
        repair="release fewer variables of a person, deal them in blocks, or mask more"
        if worst > LINKED
        else "",
    )
    measured = ("right record (measured)",) if truth is not None else ()
    note = "The formula takes variables as independent, with the shares that the release tells."
    return [finding], AuditTable("Linkage by known attributes", (*columns, *measured), tuple(rows), note)


def _earlier(
    release: CodedRecords, earlier: Sequence[CodedRecords], policy: Policy, shares: dict[str, Floats]
) -> tuple[list[Finding], AuditTable]:
    """Say what releases about the same people tell together, and what a memo shows of changes."""
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
        "A best guess after several fresh draws of one value; and what a memo shows of a change",
        columns,
        tuple(rows),
        "With a memo, unchanged values repeat their report and further releases tell nothing more; but two "
        "different reports of a person then prove a change. – stands for too many combinations to sum.",
    )
    findings = [_compared(release, other, place, policy) for place, other in enumerate(earlier, start=1)]
    findings += _draws_together(release, earlier, policy)
    return findings, table if earlier else AuditTable(table.title, columns, ())


def _draws_together(release: CodedRecords, earlier: Sequence[CodedRecords], policy: Policy) -> list[Finding]:
    """Say what all releases multiply to, if they are more than one draw: a memo and a policy are one."""
    about_same = [other for other in earlier if len(rows_of_persons(release, other)[0])]
    drawn = [(other.said.get(MEMO), other.said.get("policy")) for other in (release, *about_same)]
    by_memo = {draw for draw in drawn if draw[0] is not None}
    draws = len(by_memo) + sum(draw[0] is None for draw in drawn)
    if len(by_memo) < 2:  # reports tell of those without a memo
        return []
    bound = epsilon_text(draws * log_gamma(record_gamma(policy)))
    return [
        Finding(
            about="draws",
            verdict="contradicted",
            says=f"{draws} draws about the same persons, by {counted(len(by_memo), 'memo')}: all releases "
            f"together have ε = {bound}",
            attack="the ids of memos in the releases are compared",
            value=float(draws),
            repair="disguise with the memo of the first release, and withdraw the others",
        )
    ]


def change_seen(matrix: Floats) -> float:
    """Return the largest chance that a changed value shows, as 1 − Σ_m P[l, m]·P[l', m], under a memo."""
    same = matrix @ matrix.T
    return float(max((1 - same[a, b] for a, b in combinations(range(len(matrix)), 2)), default=0.0))


def _compared(release: CodedRecords, other: CodedRecords, place: int, policy: Policy) -> Finding:
    own, theirs = rows_of_persons(release, other)
    columns = [
        name for group in policy.groups if group.disguised for name in group.reports if name in release.codes
    ]
    differ = np.zeros(len(own), dtype=bool)
    for name in columns:
        differ |= release.codes[name][own] != other.codes[name][theirs]
    both, changed = len(own), int(differ.sum())
    about = f"earlier release {place}"
    memo = MEMO in release.said and release.said.get(MEMO) == other.said.get(MEMO)
    if not both:
        return Finding(about=about, verdict="not covered", says="it has no person in common with this one")
    if not changed:
        return Finding(
            about=about,
            verdict="not contradicted",
            says=f"all {both:,} persons in both have the same reports, as a memo gives: nothing more is told",
        )
    bound = epsilon_text(2 * log_gamma(record_gamma(policy)))
    if memo:
        return Finding(
            about=about,
            verdict="at risk",
            says=f"the same memo drew both, and {changed:,} of {both:,} persons have another report now: "
            "their value changed for certain",
            value=changed / both,
            repair="release changes under a new policy id, or not at all, if a change itself is sensitive",
        )
    return Finding(
        about=about,
        verdict="contradicted",
        says=f"{changed:,} of {both:,} persons were drawn anew: both releases together have ε = {bound}, "
        "not that of one draw",
        attack="reports of one person in two releases are compared",
        value=changed / both,
        repair="disguise with a memo, and withdraw one of the releases",
    )


def _attacked(
    source: Records, policy: Policy, network: BayesianNetwork | None, records: int, seed: int | None
) -> tuple[list[Finding], AuditTable | None, list[str]]:
    if any(group.response is not None for group in policy.groups):
        return (
            [],
            None,
            ["the attacker who knows the population: variables are dealt in blocks, γ holds for all"],
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
    found = attack(policy, used, records=records, seed=seed)
    learnt = "" if network is not None else " (by a network learnt from the release: an estimate)"
    findings = [*_worst(found, learnt), *_near_copies(found, used, policy)]
    return findings, success_table(found), []


def _worst(found: Sequence[Success], learnt: str) -> list[Finding]:
    if not found:
        return []
    best = max(found, key=lambda one: one.whole - one.prior)
    shift = max(found, key=lambda one: one.shift)
    bound = (
        f", of {math.exp(shift.bound):,.3g} allowed"
        if shift.bound < 700
        else "; no γ bounds that, since a column is released in clear"
    )
    reached = (
        "beyond any bound, by a clear column"
        if math.isinf(shift.shift)
        else f"by a factor of {shift.shift:,.3g}"
    )
    return [
        Finding(
            about="attacker who knows the population",
            verdict="not contradicted"
            if shift.shift <= math.exp(min(shift.bound, 700)) * (1 + 1e-9)
            else "contradicted",
            says=f"guesses {best.target} right in {percent(best.whole)}, {percent(best.prior)} without "
            f"any report; at worst odds (of {shift.target}) moved {reached}{bound}{learnt}",
            attack="exact posteriors from all reports of a record; averages and the worst only",
            value=best.whole,
            low=best.whole - 2 * best.stderr,
            high=best.whole + 2 * best.stderr,
        )
    ]


def _near_copies(found: Sequence[Success], network: BayesianNetwork, policy: Policy) -> list[Finding]:
    """Flag variables that others betray, together with those they are linked to."""
    betrayed = {one.target: one for one in found if one.whole - one.own > EXCESS}
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
                says=f"are near-copies of one trait: with its own report {worst.target} is guessed right "
                f"{percent(worst.own)} of the time, with all of them {percent(worst.whole)}",
                attack="the attacker combines the reports of variables that go together",
                value=worst.whole - worst.own,
                repair=repair,
            )
        )
    return findings
