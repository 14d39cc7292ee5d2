"""One history for all protocols: turns of clear votes, and sums that nothing can be compared with."""

import pytest

from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.history import FORMER, History
from masquerade.protocols.people.ledger import Claim, MemoryLedger

TERMS, SESSION = bytes([1] * 32), bytes([2] * 32)


def test_of_several_rounds_joined_at_one_turn_the_first_gets_it():
    history = History(MemoryLedger())
    turn = history.turn()
    history.ledger.claim([history.clear_vote(turn, TERMS, b"\xc0")])
    with pytest.raises(KeySpent):
        history.ledger.claim([history.clear_vote(turn, SESSION)])
    assert history.turn() == turn + 1
    assert history.clear_votes() == [(TERMS, b"\xc0")]


def test_turns_go_on_after_those_of_the_first_version():
    history = History(MemoryLedger())
    history.ledger.claim([Claim(FORMER, bytes(4)), history.clear_vote(0, TERMS, b"\xc0")])
    assert history.turn() == 2
    history.ledger.claim([history.clear_vote(2, SESSION)])
    assert history.turn() == 3


def refused(history, own=None):
    refusal = history.against_other_sums(own)
    return refusal and refusal.code


def test_a_clear_record_is_counted_in_one_session_of_sums_or_in_rounds_with_known_rosters():
    history = History(MemoryLedger())
    assert refused(history) is refused(history, SESSION) is None
    history.ledger.claim([history.clear_vote(0, SESSION)])
    assert refused(history, SESSION) is None
    assert refused(history, TERMS) == refused(history) == "already_spent"
    rosters = History(MemoryLedger())
    rosters.ledger.claim([rosters.clear_vote(0, TERMS, b"\xc0")])
    assert refused(rosters) is None
    assert refused(rosters, SESSION) == "already_spent"


def test_sums_of_the_first_version_close_rounds_with_known_rosters():
    history = History(MemoryLedger())
    history.ledger.claim([Claim(FORMER, bytes(4))])
    assert refused(history) == "already_spent"
    assert refused(history, SESSION) is None  # which session it was, its own claims tell
