"""γ of a whole record against plain enumeration of all records and report vectors."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest

from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import READER, privacy
from masquerade.channels.policy.record import record_gamma
from masquerade.core.errors import PolicyError
from masquerade.core.guarantee import Disclosure
from masquerade.core.record_gamma import MOST_STATES, FollowUp, RecordPart
from masquerade.core.record_gamma import record_gamma as gamma_of_parts

POLICIES = 500


def _random_channel(rng: random.Random, size: int) -> dict[str, Any]:
    """Return a channel of one of several kinds, some with reports that rule out a truth."""
    kind = rng.choice(["symmetric", "for_gamma", "matrix", "zeros"])
    if kind == "symmetric":
        return {"kind": "symmetric", "p": f"{rng.randint(1, 6)}/10"}
    if kind == "for_gamma":
        return {"kind": "for_gamma", "gamma": rng.randint(2, 9)}
    least = 0 if kind == "zeros" and rng.random() < 0.3 else 1
    rows = []
    for truth in range(size):
        weights = [rng.randint(least, 7) for _ in range(size)]
        weights[truth] += 9
        rows.append([f"{weight}/{sum(weights)}" for weight in weights])
    return {"kind": "matrix", "rows": rows}


def _has_zero(channel: dict[str, Any] | None) -> bool:
    rows = (channel or {}).get("rows", [])
    return any(entry.startswith("0/") for row in rows for entry in row)


def _random_missing(rng: random.Random, size: int, *, is_masked: bool) -> dict[str, Any]:
    """Return a missing category that is masked like an answer, or one or two more that are sent in clear."""
    answers = [f"c{code}" for code in range(size)]
    if not is_masked or rng.random() < 0.5:
        return {"missing": answers[-1]}
    missing = ["refused", "not asked"][: rng.randint(1, 2)]
    return {"categories": [*answers, *missing], "missing": missing, "clear_missing": "accepted"}


def _random_policy(rng: random.Random) -> Policy:
    names = [f"v{index}" for index in range(rng.randint(2, 4))]
    sizes = {name: rng.choice([2, 2, 3]) for name in names}
    variables: dict[str, Any] = {
        name: {"categories": [f"c{code}" for code in range(size)]} for name, size in sizes.items()
    }
    values: dict[str, Any] = {"masquerade": 1, "variables": variables}
    rest = list(names)
    if len(names) > 2 and rng.random() < 0.6:
        group = sorted(rng.sample(names, rng.randint(2, len(names) - 1)))
        rest = [name for name in names if name not in group]
        if rng.random() < 0.7:
            values["blocks"] = [{"gamma": rng.randint(2, 9), **_random_dealing(rng, group)}]
        else:
            values["joint"] = [{"variables": group, "channel": {"kind": "for_gamma", "gamma": 5}}]
    clear = [name for name in rest if rng.random() < 0.3]
    for name in names:
        own = _random_channel(rng, sizes[name]) if name in rest and name not in clear else None
        variables[name] |= {} if own is None else {"channel": own}
        if rng.random() < 0.5 and not _has_zero(own):
            variables[name] |= _random_missing(rng, sizes[name], is_masked=own is not None)
    masked = [name for name in rest if name not in clear]
    if clear and masked and rng.random() < 0.6:
        # the reports must be the same in all strata: those of a square channel are
        values["strata"] = {
            "by": clear[0],
            "channels": {"c0": {masked[0]: {"kind": "for_gamma", "gamma": rng.randint(2, 9)}}},
        }
    return Policy.from_dict(values)


def _random_dealing(rng: random.Random, group: list[str]) -> dict[str, Any]:
    """Return blocks of one size, blocks of units, or a list of blocks of different sizes with weights."""
    kind = rng.choice(["size", "units", "list"])
    if kind == "units" and len(group) > 2:
        return {"variables": [group[:2], *group[2:]], "k": rng.randint(1, len(group) - 1)}
    if kind == "list":
        blocks = [[name] for name in group] + [list(pair) for pair in combinations(group, 2)]
        chosen = rng.sample(blocks, rng.randint(1, len(blocks)))
        chosen += [[name] for name in group if not any(name in block for block in chosen)]
        design = [{"variables": block, "weight": rng.randint(1, 5)} for block in chosen]
        return {"variables": group, "design": design}
    return {"variables": group, "k": rng.randint(1, len(group))}


def _random_follow_ups(rng: random.Random, policy: Policy) -> tuple[FollowUp, ...]:
    names, found = list(policy.schema), []
    for index, name in enumerate(names[1:], start=1):
        if rng.random() < 0.6:
            parents = rng.sample(names[:index], rng.randint(1, min(2, index)))
            shown = {
                parent: tuple(sorted(rng.sample(range(len(policy.schema[parent])), rng.randint(1, 2))))
                for parent in parents
            }
            missing = policy.schema[name].missing
            not_asked = rng.randrange(len(policy.schema[name]))
            if missing and rng.random() < 0.5:
                not_asked = policy.schema[name].code(missing[-1])
            found.append(FollowUp(name, shown, not_asked))
    return tuple(found)


def _report_chances(policy: Policy, record: dict[str, int]) -> dict[tuple[int, ...], Fraction]:
    """Return the chance of every whole report of a record, by multiplying out all its parts."""
    by = policy.stratum_variable
    stratum = None if by is None else policy.schema[by].categories[record[by]]
    reports: dict[tuple[int, ...], Fraction] = {(): Fraction(1)}
    for group in policy.groups_of(stratum):
        codes = [record[name] for name in group.names]
        if not group.disguised:
            continue  # compared records agree on clear variables
        joint = 0
        for code, size in zip(codes, group.sizes, strict=True):
            joint = joint * size + code
        if group.response is None:
            own = group.matrix_channel.row(joint)
        else:
            own = _block_chances(group.response, codes)
        reports = {
            (*report, code): chance * share
            for report, chance in reports.items()
            for code, share in own.items()
        }
    return reports


def _block_chances(response: Any, codes: list[int]) -> dict[int, Fraction]:
    chances: dict[int, Fraction] = {}
    for block, share in response.dealing.row(0).items():
        members = response.by_cells[block].tolist()
        code, classes = 0, 1
        for member in (place for place in members if place < len(codes)):  # shorter blocks are padded
            code = code * response.sizes[member] + codes[member]
            classes *= response.sizes[member]
        for report, chance in response.channel_of(classes).row(code).items():
            chances[block * response.classes + report] = share * chance
    return chances


def _enumerated_gamma(policy: Policy, follow_ups: tuple[FollowUp, ...]) -> Fraction | float:
    names = list(policy.schema)
    clear = policy.clear_variables
    records = []
    for codes in product(*(range(len(policy.schema[name])) for name in names)):
        record = dict(zip(names, codes, strict=True))
        asked = (
            record[one.name] == one.not_asked
            or all(record[name] in admitted for name, admitted in one.shown.items())
            for one in follow_ups
        )
        if all(asked):
            known = [record[name] for name in clear]
            for name in policy.clear_missing:  # which missing label, or that there is an answer
                variable = policy.schema[name]
                known.append(-1 if record[name] in variable.answered_codes else record[name])
            records.append((tuple(known), _report_chances(policy, record)))
    largest: Fraction | float = Fraction(1)
    for (known, first), (other, second) in product(records, records):
        if known == other:
            for report, chance in first.items():
                against = second.get(report, Fraction(0))
                largest = max(largest, chance / against if against else math.inf)
    return largest


def _dealt(policy: Policy, key: str) -> list[Any]:
    """Return an entry of all blocks of a policy file."""
    return [it for block in policy.to_dict().get("blocks", ()) for it in block.get(key) or ()]


def test_record_gamma_equals_enumeration_of_all_records_and_reports() -> None:
    rng = random.Random(33)  # noqa: S311  (cases, not masks)
    kinds = {"follow-ups": 0, "blocks": 0, "strata": 0, "unbounded": 0, "below the product": 0}
    kinds |= {"units": 0, "listed blocks": 0, "follow-ups of dealt questions": 0}
    kinds |= {"masked missing": 0, "clear missing": 0, "clear missing below the product": 0}
    for _ in range(POLICIES):
        policy = _random_policy(rng)
        follow_ups = _random_follow_ups(rng, policy)
        gamma = record_gamma(policy, follow_ups)
        assert gamma == _enumerated_gamma(policy, follow_ups), (policy.to_dict(), follow_ups)
        kinds["follow-ups"] += bool(follow_ups)
        kinds["blocks"] += any(group.response is not None for group in policy.groups)
        kinds["units"] += any(isinstance(it, list) for it in _dealt(policy, "variables"))
        kinds["listed blocks"] += bool(_dealt(policy, "design"))
        kinds["follow-ups of dealt questions"] += any(
            policy.group(name).response is not None for one in follow_ups for name in (one.name, *one.shown)
        )
        kinds["strata"] += bool(policy.strata)
        kinds["unbounded"] += gamma == math.inf
        kinds["below the product"] += gamma < record_gamma(policy)
        absent = {name for name in policy.disguised if policy.schema[name].missing}
        kinds["masked missing"] += bool(absent - set(policy.clear_missing))
        kinds["clear missing"] += bool(policy.clear_missing)
        kinds["clear missing below the product"] += bool(
            policy.clear_missing and gamma < record_gamma(policy)
        )
    assert min(kinds.values()) >= 10, kinds


def test_thirteen_follow_ups_of_one_answer_count_thirteen_times() -> None:
    mask = Fraction(3)
    parts = [RecordPart((f"q{index}",), (2,), mask) for index in range(14)]
    follow_ups = [FollowUp(f"q{index}", {"q0": (1,)}, 0) for index in range(1, 14)]
    assert gamma_of_parts(parts, follow_ups) == mask**14


def test_conditions_on_too_many_answers_never_lower_gamma() -> None:
    size = int(MOST_STATES**0.25) + 1
    parts = [RecordPart((name,), (size,), Fraction(5)) for name in ("first", "second")]
    follow_up = FollowUp("second", {"first": (0,)}, 0)
    assert gamma_of_parts(parts, [follow_up]) == Fraction(25)


@pytest.mark.parametrize("gamma", [Fraction(19), Fraction(57, 2)])
def test_blocks_spend_gamma_once_however_many_variables_they_deal(gamma: Fraction) -> None:
    names = [f"q{index}" for index in range(12)]
    policy = Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {name: {"categories": ["yes", "no"]} for name in names},
            "blocks": [{"variables": names, "k": 3, "gamma": str(gamma)}],
        }
    )
    assert record_gamma(policy) == gamma


def test_a_follow_up_inside_thirty_dealt_questions_is_not_listed() -> None:
    names = tuple(f"q{index}" for index in range(30))
    dealt = RecordPart(names, (2,) * 30, Fraction(19))
    assert gamma_of_parts([dealt], [FollowUp("q1", {"q0": (0,)}, 1)]) == 19


MISSING = {"categories": ["yes", "no", "refused"], "missing": "refused"}
REFUSING = {"yes": Fraction(95, 100), "no": Fraction(1, 100)}  # who would rather not say


def _belief_after_a_refusal(policy: Policy, belief: Fraction) -> Fraction:
    """Return the belief in "yes" after the report "refused", if people refuse as in REFUSING."""
    channel = policy.group("drugs").matrix_channel
    refused = policy.schema["drugs"].code("refused")

    def chance(answer: str) -> Fraction:
        answered = channel.row(policy.schema["drugs"].code(answer)).get(refused, Fraction(0))
        return REFUSING[answer] * channel.row(refused)[refused] + (1 - REFUSING[answer]) * answered

    weights = {"yes": belief * chance("yes"), "no": (1 - belief) * chance("no")}
    return weights["yes"] / sum(weights.values())


def test_a_refusal_in_clear_raises_five_percent_to_eighty_three_and_must_be_accepted() -> None:
    """γ = 19 bounds what a masked refusal tells, whoever refuses; in clear nothing does."""
    five = Fraction(1, 20)
    masked = Policy.from_dict(
        {"masquerade": 1, "limit": {"breach": "5%:50%"},
         "variables": {"drugs": MISSING | {"channel": {"kind": "for_gamma", "gamma": 19}}}}
    )  # fmt: skip
    after = _belief_after_a_refusal(masked, five)
    assert five < after <= Fraction(1, 2)
    assert masked.clear_missing == ()
    accepted = MISSING | {"channel": {"kind": "for_gamma", "gamma": 19}, "clear_missing": "accepted"}
    clear = Policy.from_dict({"masquerade": 1, "limit": {"gamma": 19}, "variables": {"drugs": accepted}})
    assert _belief_after_a_refusal(clear, five) == Fraction(5, 6)  # 83%
    assert (clear.clear_missing, clear.record_gamma) == (("drugs",), 19)
    grouped = {"kind": "grouped", "groups": [["yes", "no"], ["refused"]], "p": "0.3"}
    with pytest.raises(PolicyError, match=r"variables\.drugs: .*clear_missing: accepted"):
        Policy.from_dict({"masquerade": 1, "variables": {"drugs": MISSING | {"channel": grouped}}})


def test_missing_in_clear_is_said_before_everything_else() -> None:
    accepted = MISSING | {"channel": {"kind": "for_gamma", "gamma": 3}, "clear_missing": "accepted"}
    policy = Policy.from_dict(
        {"masquerade": 1, "variables": {"drugs": accepted, "sex": {"categories": ["f", "m"]}}}
    )
    figures = privacy(policy)
    assert figures.summary().startswith("Sent in clear: whether drugs is missing.")
    assert figures.guarantee.disclosures[0] == Disclosure(READER, "clear missing answers", ("drugs",), None)
    assert figures.to_dict()["missing_in_clear"] == ["drugs"]
    assert [item.gamma for item in figures.variables] == [3]


def test_a_policy_with_missing_in_clear_is_written_and_read_back() -> None:
    accepted = MISSING | {"channel": {"kind": "for_gamma", "gamma": 3}, "clear_missing": "accepted"}
    policy = Policy.from_dict({"masquerade": 1, "variables": {"drugs": accepted}})
    channel = policy.group("drugs").matrix_channel
    built = Policy.build(policy.schema, {"drugs": channel}, clear_missing=["drugs"])
    again = Policy.from_dict(built.to_dict())
    assert built.id == again.id == policy.id
    assert again.clear_missing == ("drugs",)
    assert built.select(["drugs"]).clear_missing == ("drugs",)
    with pytest.raises(PolicyError, match="clear_missing"):
        Policy.build(policy.schema, {"drugs": channel})


@pytest.mark.parametrize("entry", [{"missing": None}, {"channel": None}])
def test_missing_in_clear_needs_a_missing_category_and_a_channel(entry: dict[str, Any]) -> None:
    accepted = MISSING | {"channel": {"kind": "for_gamma", "gamma": 3}, "clear_missing": "accepted"} | entry
    given = {key: value for key, value in accepted.items() if value is not None}
    with pytest.raises(PolicyError, match="needs 'missing' and a 'channel'"):
        Policy.from_dict({"masquerade": 1, "variables": {"drugs": given}})
