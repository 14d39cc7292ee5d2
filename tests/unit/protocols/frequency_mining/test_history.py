"""What several counts give away together: rosters that overlap, colluders in them, and epochs apart."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.protocols.frequency_mining.people import BY_REGION, SMOKES, Village, frame, policy, refusal

import masquerade as mq
from masquerade.channels.privacy_level import PrivacyLimit
from masquerade.core.errors import QueryRefused
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.frequency_mining.messages import (
    Enrolment,
    FrequencyTerms,
    MiningStep,
    SignedMiningMessage,
)
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger
from masquerade.protocols.people.questions import Question
from masquerade.simulation import people_from
from masquerade.simulation.frequency import FrequencyMining
from masquerade.sources.people.frequency import FrequencyTally

ILL = Question((), (("ill", 0),))


# rosters that overlap


def test_three_overlapping_rosters_leave_no_record_to_subtract():
    """All, all but D, and D without its first: what remains is the first one's record, and nobody saw it."""
    people = FrequencyMining(people_from(frame(12), policy(), seed=None), minimum=3)
    names = list(people.users)
    rest, group = names[:7], names[7:]

    def count(users, *by):
        return FrequencyTally(people.terms, people.exchange, users).answer([mq.Query(by=by)])[0]

    count(names, "ill")
    count(rest, "ill", "smoker")  # 5 left, and 7 of 12 stay
    with pytest.raises(QueryRefused, match="4 of the 12 users counted before take part, and at least 7 must"):
        count(group[1:], "ill", "region")


def test_too_many_departed_are_refused_by_the_tally_too_unless_all_is_disguised():
    people = FrequencyMining(people_from(frame(12), policy("smoker", "region"), seed=None), minimum=3)
    tally = people.tally()
    tally.answer([mq.Query(by="ill")])
    for stay, codes in [(7, []), (6, ["departed_too_many"]), (3, ["departed_too_many"])]:
        tally.users = tuple(people.users)[:stay]
        assert [found.code for found in tally.check([mq.Query(by=("ill", "smoker"))])] == codes
        assert tally.check([mq.Query(by=("region", "smoker"))]) == []


def test_a_disguise_beyond_the_limit_counts_as_clear():
    """γ of some 10^15 hides nothing: twelve people and then eleven tell what the twelfth answered."""
    telling = mq.Policy.build(policy().schema, {"smoker": mq.channels.binary("1e-15")})
    accepting = PrivacyLimit.parse({"gamma": "1e16"})

    def smokers(village, number, users, question):
        (table,) = village.until(village.round((question,), number, users), "done").tables.values()
        return int(np.ravel(table)[0])

    village = Village(12, telling, limit=accepting)  # whoever accepts such a γ is told apart
    before = smokers(village, 1, village.names, SMOKES)
    after = smokers(village, 2, village.names[:-1], Question(("smoker",)))
    assert before - after == (village.data["smoker"].iloc[-1] == "yes")  # wrong once in 10^14 runs
    village = Village(12, telling)
    smokers(village, 1, village.names, SMOKES)
    with pytest.raises(QueryRefused, match="1 of the 12 users counted before left"):
        smokers(village, 2, village.names[:-1], Question(("smoker",)))


def test_what_is_within_the_limit_alone_is_beyond_it_together():
    """Two variables of γ = 12 each: a record has 144, and neither is bounded by 19."""
    each = {"smoker": mq.channels.for_gamma(2, 12), "ill": mq.channels.for_gamma(2, 12)}
    used = mq.Policy.build(policy().schema, each)
    assert Village(6, used).terms.bounded_variables == frozenset()
    assert Village(6, used, limit=PrivacyLimit.parse({"gamma": 144})).terms.bounded_variables == {
        "smoker",
        "ill",
    }
    one = mq.Policy.build(policy().schema, {"smoker": each["smoker"], "ill": mq.channels.for_gamma(2, 10**6)})
    assert Village(6, one).terms.bounded_variables == {
        "smoker"
    }  # what tells almost all counts as clear by itself


# colluders in the roster


def test_one_colluder_fewer_than_the_minimum_sees_the_last_vote_and_the_guarantee_says_so():
    people = FrequencyMining(people_from(frame(12), policy(), seed=None), minimum=4)
    tally = people.tally()
    victim, *colluding = list(people.users)[:4]
    assert tally.guarantee.colluders == people.terms.colluders == 2
    assert tally.guarantee.excluded_coalitions == (("miner", "3 users"),)
    assert "among any 4 users" in tally.guarantee.assumptions[0]
    (table,) = FrequencyTally(people.terms, people.exchange, [victim, *colluding]).answer(
        [mq.Query(by="region")]
    )
    left = table.values.copy()
    for name in colluding:
        left[people.users[name]._reports["region"]] -= 1
    assert np.flatnonzero(left).tolist() == [people.users[victim]._reports["region"]]


# other epochs


def seasons(n=8, used=None, **later):
    """Return people as they are counted in spring, and as in summer: the same identities and ledgers."""
    kept = {"ledgers": {f"u{i}": MemoryLedger() for i in range(n)}}
    spring = Village(n, used, **kept)
    kept["identities"] = spring.identities
    return spring, Village(n, later.pop("summer", used), epoch="summer", **kept, **later)


def said(village, questions=(SMOKES,), users=None, number=1):
    return refusal(village.users["u0"].receive(village.round(questions, number, users).message))


def test_counts_of_two_epochs_do_not_differ_by_few_people():
    spring, summer = seasons()
    spring.until(spring.round(), "done")
    for users, code in [
        (["u0", "u1", "u2", "u3", "u4", "u5", "u6"], "departed_too_few"),
        (["u0", "u1", "u2", "u3"], "departed_too_many"),
    ]:
        found = said(summer, users=users)
        assert found.code == code
        assert "as counted in epoch 'spring'" in found.reason
    with pytest.raises(QueryRefused, match="the difference of two counts would show their answers"):
        summer.step(summer.round(users=summer.names[:-1]))
    assert summer.until(summer.round(users=summer.names[:5]), "done").tables


def test_the_same_people_are_counted_in_another_epoch_and_newcomers_are_not():
    spring, summer = seasons()
    spring.until(spring.round(users=spring.names[:5]), "done")
    assert said(summer).code == "not_survivors"
    assert summer.until(summer.round(users=summer.names[:5]), "done").tables


def test_whoever_agreed_is_counted_with_few_people_less_and_the_guarantee_says_so():
    spring, summer = seasons(agreed=["spring"])
    spring.until(spring.round(), "done")
    tally = FrequencyTally(
        summer.terms, lambda user, data: summer.users[user].receive(data), summer.names[1:], agreed=["spring"]
    )
    assert tally.answer([mq.Query(by="ill")])[0].n == 7
    words = " ".join(tally.guarantee.assumptions)
    assert "no difference of two clear counts, of one epoch or of two, is about fewer than 3 users" in words
    assert "clear counts of this epoch and of spring may differ by few users" in words


def test_whoever_agreed_to_another_epoch_agreed_to_that_one_only():
    spring, summer = seasons(agreed=["winter"])
    spring.until(spring.round(), "done")
    assert said(summer, users=summer.names[:7]).code == "departed_too_few"


def test_people_with_other_identities_are_other_people():
    spring, _ = seasons()
    spring.until(spring.round(), "done")
    ledgers = {name: user._history.ledger for name, user in spring.users.items()}
    assert said(Village(8, epoch="summer", ledgers=ledgers)).code == "not_survivors"


def test_an_epoch_that_was_agreed_to_stays_closed_to_its_own_rounds():
    spring, summer = seasons(agreed=["spring"])
    spring.until(spring.round(), "done")
    summer.until(summer.round(users=summer.names[:7]), "done")
    assert said(spring, [ILL], number=2).code == "not_survivors"  # spring's terms agree to nothing


def test_disguised_counts_of_other_epochs_are_no_hindrance():
    spring, summer = seasons(used=policy("smoker"))
    spring.until(spring.round([SMOKES]), "done")
    assert summer.until(summer.round([ILL], users=summer.names[:7]), "done").tables
    assert summer.until(summer.round([SMOKES], number=2, users=summer.names[:7]), "done").tables
    spring, summer = seasons(summer=policy("smoker"))
    spring.until(spring.round([SMOKES, BY_REGION]), "done")
    assert summer.until(summer.round([SMOKES], users=summer.names[:7]), "done").tables
    assert said(summer, [ILL], summer.names[:7], 2).code == "departed_too_few"


@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 3)])
def test_of_two_minimums_the_larger_holds_between_epochs(first, second):
    ledgers = {f"u{i}": MemoryLedger() for i in range(14)}
    spring = Village(14, minimum=first, ledgers=ledgers)
    summer = Village(14, minimum=second, ledgers=ledgers, epoch="summer", identities=spring.identities)
    spring.until(spring.round(), "done")
    assert said(summer, users=summer.names[:10]).code == "departed_too_few"
    assert said(summer, users=summer.names[:9]) is None


def test_rounds_of_two_epochs_that_are_open_at_once_end_with_one():
    spring, summer = seasons()
    first = spring.until(spring.round(), "votes")
    second = summer.until(summer.round(users=summer.names[:7]), "votes")  # nobody has voted in spring yet
    assert SignedMiningMessage.decode(spring.users["u0"].receive(first.message)).step is MiningStep.VOTE
    assert refusal(summer.users["u0"].receive(second.message)).code == "already_spent"


def test_earlier_epochs_are_remembered_after_a_restart(tmp_path):
    ledgers = {f"u{i}": FileLedger(tmp_path / f"u{i}.db") for i in range(5)}
    spring = Village(5, ledgers=ledgers)
    spring.until(spring.round(), "done")
    ledgers["u0"].close()
    ledgers["u0"] = FileLedger(tmp_path / "u0.db")
    summer = Village(5, epoch="summer", ledgers=ledgers, identities=spring.identities)
    assert said(summer, users=summer.names[:4]).code == "departed_too_few"


def test_a_ledger_that_lacks_the_terms_of_a_vote_lets_no_clear_vote_leave():
    spring, summer = seasons()
    spring.until(spring.round(), "done")
    ledger = spring.users["u0"]._history.ledger
    del ledger._entries["terms", spring.terms.id]
    assert "but lacks its terms" in said(summer).reason


def test_terms_are_kept_so_that_rosters_can_be_compared():
    terms = Village(4, minimum=4, epoch="autumn").terms
    kept = Enrolment.decode(terms.encoding)
    assert kept == Enrolment("autumn", terms.policy.id, 4, dict(terms.members))
    with pytest.raises(DecodingError, match="not a message of type 'masquerade frequency terms 1'"):
        Enrolment.decode(b"\0\0\0\1x" + terms.encoding)
    assert len(terms.encoding) < 100 + 40 * 4 + len(terms.policy.id)
    assert FrequencyTerms("e", terms.policy, terms.members, 3).colluders == 1
