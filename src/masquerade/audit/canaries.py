"""Canaries: made-up records that go through a deployed pipeline, and what came of them.

Disguising acts on records one by one, so a single run of many canaries tells as much as many runs.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.coded_records import CodedRecords, released_records
from masquerade.audit.epsilon_bracket import clopper_pearson, epsilon_bracket, misdrawn, one_run_bound
from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy, policy_of
from masquerade.core.atomic import write_whole
from masquerade.core.errors import FileError, InputError, SchemaError
from masquerade.core.json_text import parse_json
from masquerade.core.private_file import read_private
from masquerade.core.words import counted, epsilon_text, log_gamma, percent

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
COLUMN = "canary"
FEWEST = 200
READING = 0.05
OTHER_TESTS = 3  # twins, order, a second run: alpha is that of the whole audit
Claim = Literal["memo", "shuffled"]
CLAIMS: tuple[Claim, ...] = ("memo", "shuffled")
Codes = NDArray[np.int64]
NOT_COVERED = (
    "what the pipeline does to records that do not look like canaries",
    "copies of the clear records that the pipeline keeps elsewhere",
)


@dataclass(frozen=True, slots=True)
class Canaries:
    """Made-up people and their true values, in pairs of twins: the key by which they are read again.

    Keep it apart from the pipeline: whoever has it can tell canaries from people.

    >>> policy = mq.data.students_policy()
    >>> records, key = mq.audit.make_canaries(policy, n=200)
    >>> key.save("key.json")
    >>> mq.audit.Canaries.load("key.json").policy_id == policy.id
    True
    """

    policy_id: str
    column: str
    names: tuple[str, ...]
    codes: Mapping[str, Codes]

    def save(self, path: str | Path) -> None:
        """Write the key, readable by its owner only."""
        values = {
            "masquerade_canaries": FORMAT,
            "policy": self.policy_id,
            "column": self.column,
            "names": list(self.names),
            "codes": {name: codes.tolist() for name, codes in self.codes.items()},
        }
        write_whole(Path(path), json.dumps(values), private=True)

    @classmethod
    def load(cls, path: str | Path) -> Canaries:
        """Return the key in a file."""
        try:
            values = parse_json(read_private(Path(path), "a key of canaries"))
            if values["masquerade_canaries"] != FORMAT:
                raise FileError(f"{path}: this is no key of canaries.")
            codes = {str(name): np.array(own, dtype=np.int64) for name, own in values["codes"].items()}
            found = cls(str(values["policy"]), str(values["column"]), tuple(map(str, values["names"])), codes)
        except FileNotFoundError:
            raise FileError(f"{path}: there is no such file.") from None
        except (InputError, KeyError, TypeError, ValueError, AttributeError):
            raise FileError(f"{path}: this is no key of canaries.") from None
        if {len(own) for own in codes.values()} != {len(found.names)}:
            raise FileError(f"{path}: this is no key of canaries.")
        return found


def make_canaries(
    policy: Policy | str | Path, n: int = 10_000, *, column: str = COLUMN
) -> tuple[pd.DataFrame, Canaries]:
    """Return made-up records for a pipeline, and the key by which `read_canaries` reads what comes out.

    Values are drawn evenly over all categories, by the operating system's randomness; every record has a twin
    with the same values. `column` names them, for pipelines that keep a column or remember persons by one.

    >>> policy = mq.data.students_policy()
    >>> records, key = mq.audit.make_canaries(policy, n=200)
    >>> records.shape, list(records.columns)
    ((200, 5), ['canary', 'exams', 'year', 'pills', 'sleep'])
    """
    import pandas as pd  # noqa: PLC0415  (loaded when a frame is made)

    loaded = policy_of(policy)
    if n < FEWEST:
        raise InputError(f"{n:,} canaries show nothing: make {FEWEST:,} or more.")
    if column in loaded.schema or column in loaded.observed:
        raise InputError(f"{column!r} is a column of the policy: name the canaries' column otherwise.")
    for field in loaded.fields:
        if field.edges is not None:
            raise InputError(
                f"{field.variable.name!r} is read from numbers in bins: canaries have categories only."
            )
    half = n // 2
    generator = np.random.default_rng(secrets.randbits(256))
    once = {name: generator.integers(0, len(loaded.schema[name]), half) for name in loaded.schema}
    order = generator.permutation(2 * half)
    codes = {name: np.concatenate([own, own])[order] for name, own in once.items()}
    names = tuple(f"c{secrets.token_hex(6)}" for _ in range(2 * half))
    frame = pd.DataFrame(
        {column: list(names)}
        | {
            name: np.array(loaded.schema[name].categories, dtype=object)[codes[name]].tolist()
            for name in loaded.schema
        }
    )
    return frame, Canaries(loaded.id, column, names, codes)


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
    found = _found(data, loaded, known)
    findings = [_returned(found, known)]
    tables: tuple[AuditTable, ...] = ()
    tests = [] if found.rows is None else list(_groups(found, loaded, known))
    share = alpha / (len(tests) + OTHER_TESTS)
    if found.rows is None:
        findings.append(_unmatched(claims))
    elif len(found.rows) == 0:
        return Audit("Audit of a pipeline by canaries", tuple(findings), (), NOT_COVERED)
    else:
        judged = [finding for item in tests for finding in _judged(item, share)]
        wrong = {finding.about for finding in judged if finding.verdict == "contradicted"}
        findings += [*judged, *_moved(found, loaded, known, wrong), *_twins(found, loaded, known, share)]
        rows = [_row(item) for item in tests]
        columns = ("variable", "canaries", "as they were", "expected", "ε at least", "ε of the policy")
        tables = (AuditTable("What came of the canaries", columns, tuple(rows)),)
    findings += _order(found, claims, share)
    if second is not None:
        findings += _runs((found, _found(second, loaded, known)), loaded, known, claims, share)
    elif "memo" in claims:
        says = "whether reports are remembered: a second run of the same canaries is needed"
        findings.append(Finding(about="memo", verdict="not covered", says=says))
    title = f"Audit of a pipeline by {counted(len(known.names), 'canary', 'canaries')}"
    return Audit(title, tuple(findings), tables, NOT_COVERED)


@dataclass(frozen=True, slots=True)
class _Found:
    """Reports of canaries: `rows` are which canaries, in the order of the file (None: nobody can tell)."""

    reports: CodedRecords
    rows: Codes | None
    named: bool
    times: int


@dataclass(frozen=True, slots=True)
class _Tested:
    """A group's truths and reports as codes, with the channel they should have gone through."""

    title: str
    truths: Codes
    reports: Codes
    channel: Channel
    straight: bool  # reports have the categories of truths


def _found(data: Any, policy: Policy, key: Canaries) -> _Found:
    try:
        reports = released_records(data, policy, key.column)
    except SchemaError:
        reports = released_records(data, policy)
        if reports.rows != len(key.names):
            return _Found(reports, None, named=False, times=0)
        rows = np.arange(reports.rows)
        aligned = _aligned(reports, rows, policy, key)
        return _Found(reports, rows if aligned else None, named=False, times=0)
    place = {name: i for i, name in enumerate(key.names)}
    persons = reports.persons or ()
    own = [row for row, name in enumerate(persons) if name in place]
    first: dict[str, int] = {}
    for row in own:
        first.setdefault(persons[row], row)
    kept = sorted(first.values())
    rows = np.array([place[persons[row]] for row in kept], dtype=np.int64)
    return _Found(reports.at(np.array(kept, dtype=np.int64)), rows, named=True, times=len(own) - len(kept))


def _aligned(reports: CodedRecords, rows: Codes, policy: Policy, key: Canaries) -> bool:
    """Tell whether the rows are in the canaries' order: they fit better so than moved by one."""
    gain = 0.0
    spread = 0.0
    for group in policy.groups:
        if group.response is not None or group.own_report:
            continue
        truth = _joint([key.codes[name][rows] for name in group.names], group.sizes)
        report = _joint([reports.codes[name] for name in group.reports], group.report_sizes)
        same = (truth == report).astype(float)
        other = (np.roll(truth, 1) == report).astype(float)
        gain += float((same - other).sum())
        spread += float(((same - other) ** 2).sum())
    return gain > 5 * math.sqrt(max(spread, 1.0))


def _groups(found: _Found, policy: Policy, key: Canaries) -> Iterator[_Tested]:
    """Yield every group with what went in and what came out, stratum by stratum."""
    rows = found.rows if found.rows is not None else np.zeros(0, dtype=np.int64)
    truths = {name: codes[rows] for name, codes in key.codes.items()}
    by = policy.stratum_variable
    for stratum in policy.strata or (None,):
        own = np.ones(len(rows), dtype=bool)
        if stratum is not None and by is not None:
            own = truths[by] == policy.schema[by].code(stratum)
        for group in policy.groups_of(stratum):
            title = " + ".join(group.names) + ("" if stratum is None else f" (stratum {stratum})")
            report = [found.reports.codes[name][own] for name in group.reports]
            truth = [truths[name][own] for name in group.names]
            if group.response is not None:
                yield from _dealt(title, group, truth, report)
                continue
            channel = group.matrix_channel
            straight = channel.truths == channel.reports and not group.own_report
            yield _Tested(
                title, _joint(truth, group.sizes), _joint(report, group.report_sizes), channel, straight
            )


def _dealt(title: str, group: Group, truth: list[Codes], report: list[Codes]) -> Iterator[_Tested]:
    response = group.response
    if response is None:
        return
    blocks, classes = report
    nothing = np.zeros(len(blocks), dtype=np.int64)
    yield _Tested(f"{title}: blocks", nothing, blocks, response.dealing, straight=False)
    true_classes = response.classes_of(truth, blocks)
    sizes = response.block_classes[blocks]
    for size in np.unique(sizes).tolist():
        own = sizes == size
        yield _Tested(
            f"{title}: {size} classes",
            true_classes[own],
            classes[own],
            response.channel_of(size),
            straight=True,
        )


def _counts(item: _Tested) -> NDArray[np.int64]:
    counts = np.zeros((item.channel.truths, item.channel.reports), dtype=np.int64)
    np.add.at(counts, (item.truths, item.reports), 1)
    return counts


def _judged(item: _Tested, alpha: float) -> list[Finding]:
    """Say whether a group went through its channel, in clear, or through another."""
    if not len(item.truths):
        return []
    clear = item.straight and bool((item.truths == item.reports).all())
    if item.channel.is_identity:
        says = "is released in clear, as the policy says"
        if clear:
            return [Finding(about=item.title, verdict="at risk", says=says)]
    elif clear and _all_kept(item) < alpha:
        return [
            Finding(
                about=item.title,
                verdict="contradicted",
                says=f"it is passed on in clear: all {len(item.truths):,} canaries came out unchanged",
                attack="canaries of known values",
                repair="stop the pipeline: this column was not disguised; withdraw what it released",
            )
        ]
    p = misdrawn(_counts(item), item.channel.matrix)
    if p < alpha:
        return [
            Finding(
                about=item.title,
                verdict="contradicted",
                says="the reports are not those of the policy's channel: wrong policy"
                + (" (a report that it never gives)" if p == 0 else f" (p = {p:.2g})"),
                attack="exact binomial tails of every truth and report, Bonferroni",
                value=p,
                repair="find out which policy, or which step besides, the pipeline uses",
            )
        ]
    low = _lower(item, READING)
    says = f"{counted(len(item.truths), 'canary', 'canaries')} show ε of at least {epsilon_text(low)}"
    return [
        Finding(
            about=item.title,
            verdict="not contradicted",
            says=f"{says}; the policy says {epsilon_text(log_gamma(item.channel.gamma))}",
            attack="canaries of known values; exact binomial tails",
            value=log_gamma(item.channel.gamma),
            low=low,
            level=1 - READING,
        )
    ]


def _all_kept(item: _Tested) -> float:
    """Return the chance that all canaries keep their value."""
    kept = item.channel.matrix[item.truths, item.truths]
    with np.errstate(divide="ignore"):
        return float(np.exp(np.log(kept).sum()))


def _lower(item: _Tested, alpha: float) -> float:
    """Return the better of two lower limits of ε: guesses in one run, or a set chosen on one half."""
    matrix = item.channel.matrix
    if len(matrix) < 2:
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(matrix[:, None, :] > 0, matrix[:, None, :] / matrix[None, :, :], 0.0)
    a, b, _ = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    two = (item.truths == a) | (item.truths == b)
    guess = np.where(matrix[a] > matrix[b], a, np.where(matrix[a] < matrix[b], b, -1))[item.reports]
    guessed = two & (guess >= 0)
    once = one_run_bound(int((guess == item.truths)[guessed].sum()), int(guessed.sum()), alpha / 2)
    half = np.arange(len(item.truths)) % 2 == 0
    parts = [
        _counts(_Tested(item.title, item.truths[own], item.reports[own], item.channel, item.straight))
        for own in (half, ~half)
    ]
    if min(int(part.sum(axis=1).min()) for part in parts) == 0:
        return once
    return max(once, epsilon_bracket(parts[0], parts[1], alpha / 2).lower)


def _row(item: _Tested) -> tuple[Any, ...]:
    kept = expected = None
    if item.straight and len(item.truths):
        kept = float((item.truths == item.reports).mean())
        expected = float(item.channel.matrix[item.truths, item.truths].mean())
    bound = log_gamma(item.channel.gamma)
    low = _lower(item, READING) if len(item.truths) else 0.0
    return item.title, len(item.truths), kept, expected, low, bound


def _returned(found: _Found, key: Canaries) -> Finding:
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


def _dropped(found: _Found, key: Canaries) -> str:
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


def _moved(found: _Found, policy: Policy, key: Canaries, wrong: set[str]) -> list[Finding]:
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


def _twins(found: _Found, policy: Policy, key: Canaries, alpha: float) -> list[Finding]:
    """Test whether canaries with the same values get the same reports more often than chance gives."""
    rows = found.rows
    if rows is None or len(rows) < 4:
        return []
    table = np.stack([codes[rows] for codes in key.codes.values()], axis=1)
    _, kind = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(np.asarray(kind).ravel(), kind="stable")
    ranked = np.asarray(kind).ravel()[order]
    first = np.flatnonzero((ranked[:-1] == ranked[1:]) & (np.arange(len(ranked) - 1) % 2 == 0))
    pairs = [(order[i], order[i + 1]) for i in first.tolist()]
    if not pairs:
        return []
    left, right = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    chance = _same_chance(policy, key, rows[left], rows[right])
    same = _same_reports(policy, found.reports, left, found.reports, right)
    return [_repeat_finding("seed", same, chance, alpha, "twins, canaries with the same values,")]


def _same_chance(policy: Policy, key: Canaries, left: Codes, right: Codes) -> NDArray[np.float64]:
    """Return the chance that fresh draws of both give the same reports of all disguised variables."""
    chance = np.ones(len(left))
    by = policy.stratum_variable
    for stratum in policy.strata or (None,):
        own = np.ones(len(left), dtype=bool)
        if stratum is not None and by is not None:
            own = key.codes[by][left] == policy.schema[by].code(stratum)
        for group in policy.groups_of(stratum):
            if not group.disguised:
                continue
            if group.response is not None:
                dealt = group.response.dealing.matrix[0]
                chance[own] *= float((dealt**2).sum())
                continue
            matrix = group.matrix_channel.matrix
            truths = [
                _joint([key.codes[name][side[own]] for name in group.names], group.sizes)
                for side in (left, right)
            ]
            chance[own] *= (matrix @ matrix.T)[truths[0], truths[1]]
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
    """Judge whether equal reports are more frequent than fresh draws make them (a bound for any chances)."""
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
            says=f"{says}: the generator's seed is used again, or draws do not depend on the person",
            attack="equal reports are counted, against Σ P² of fresh draws",
            value=share,
            repair="draw with the operating system's randomness, never with a fixed seed",
        )
    return Finding(about=about, verdict="not contradicted", says=says, value=share)


def _divergence(share: float, expected: float) -> float:
    """Return KL(share ‖ expected): −ln of Chernoff's bound of a tail, per trial, for any chances."""
    found = 0.0
    if share > 0:
        found += share * math.log(share / max(expected, 1e-300))
    if share < 1:
        found += (1 - share) * math.log((1 - share) / (1 - expected))
    return found


def _order(found: _Found, claims: tuple[Claim, ...], alpha: float) -> list[Finding]:
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


def _runs(
    runs: tuple[_Found, _Found], policy: Policy, key: Canaries, claims: tuple[Claim, ...], alpha: float
) -> list[Finding]:
    """Compare two runs of the same canaries: a memo repeats every report, fresh draws do not."""
    first, second = runs
    about = "memo" if "memo" in claims else "second run"
    if first.rows is None or second.rows is None:
        return [Finding(about=about, verdict="not covered", says="rows of the two runs cannot be matched")]
    there = {canary: row for row, canary in enumerate(second.rows.tolist())}
    both = [(row, there[canary]) for row, canary in enumerate(first.rows.tolist()) if canary in there]
    if not both:
        return [Finding(about=about, verdict="not covered", says="the two runs have no canary in common")]
    left, right = (np.array(side, dtype=np.int64) for side in zip(*both, strict=True))
    same = _same_reports(policy, first.reports, left, second.reports, right)
    if "memo" not in claims:
        canaries = first.rows[left]
        chance = _same_chance(policy, key, canaries, canaries)
        return [_repeat_finding("second run", same, chance, alpha, "the same canaries in both runs")]
    differ = int((~same).sum())
    if differ:
        return [
            Finding(
                about="memo",
                verdict="contradicted",
                says=f"the memo is off: {differ:,} of {len(same):,} canaries had other reports then",
                attack="two runs of the same canaries",
                value=differ / len(same),
                repair="give the pipeline its memo file and the column that names the person",
            )
        ]
    says = f"all {len(same):,} canaries had the same reports in both runs"
    return [Finding(about="memo", verdict="not contradicted", says=says)]


def _joint(columns: list[Codes], sizes: tuple[int, ...]) -> Codes:
    return np.asarray(np.ravel_multi_index(tuple(columns), sizes))
