"""What a server or a user may try, and who is named for it."""

import numpy as np
import pytest
from tests.unit.protocols.aggregation.people import (
    DISGUISED,
    clear_counts,
    codes_of,
    on_a_circle,
    people,
    server_of,
    until,
    whole,
)

from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.aggregation import committee
from masquerade.protocols.aggregation.history import LISTED, NUMBER_SIZE, SESSION_SIZE
from masquerade.protocols.aggregation.messages import Kind, MessageRefused, bundle, plain, signed
from masquerade.protocols.aggregation.seed_shares import SHARE_SIZE
from masquerade.protocols.aggregation.survivor_tree import SurvivorTree, leaves_near


def listed(server, gone=()):
    """Return the lists that a server would show if some users had dropped out."""
    alive = np.ones(server.terms.parameters.users, dtype=bool)
    alive[server.graph.position[list(gone)]] = False
    tree = SurvivorTree(alive)
    return {
        place: plain(Kind.SURVIVORS, server.context, tree.shown(leaves_near(server.graph, place)))
        for place in range(len(alive))
        if place not in gone
    }


def endorsed(server, signatures, place):
    near = server.graph.around(place)
    return plain(Kind.ENDORSEMENTS, server.context, bundle([signatures.get(other) for other in near]))


def test_two_lists_of_survivors_are_noticed():
    population = people()
    server = server_of(population)
    honest = until(population, server, Kind.SURVIVORS)
    other = listed(server, gone=[5])
    shown = {place: honest[place] if place < 6 else other[place] for place in range(12)}
    signatures = {place: population.users[place].receive(shown[place])[-64:] for place in range(12)}
    with pytest.raises(MessageRefused, match="not signed by") as refused:
        population.users[0].receive(endorsed(server, signatures, 0))
    assert refused.value.culprits == ("user 6",)
    same = {place: signatures[place] for place in range(6)}
    with pytest.raises(MessageRefused, match="Only 5 neighbours signed"):
        population.users[0].receive(endorsed(server, same, 0))


def test_who_is_not_on_the_list_cannot_sign_it():
    population = people()
    server = server_of(population)
    until(population, server, Kind.SURVIVORS)
    shown = listed(server, gone=[5])
    signatures = {place: population.users[place].receive(message)[-64:] for place, message in shown.items()}
    signatures[5] = bytes(64)
    with pytest.raises(MessageRefused, match="not on the list") as refused:
        population.users[0].receive(endorsed(server, signatures, 0))
    assert refused.value.culprits == ("user 5",)


@pytest.mark.parametrize("mode", ["semi-honest", "malicious"])
def test_of_a_neighbour_one_share_leaves_and_never_the_other(mode):
    population = people(server=mode)
    server = server_of(population)
    honest = until(population, server, Kind.SURVIVORS)
    reply = population.users[0].receive(honest[0])
    held = population.users[0]._round.held
    with pytest.raises(MessageRefused, match="out of turn"):
        population.users[0].receive(listed(server, gone=[5])[0])  # now as if user 5 had dropped out
    if mode == "semi-honest":
        assert len(reply) == 9 + 2 + 11 * SHARE_SIZE + 64
        assert held == []  # what was not given is gone


def test_what_leaves_is_the_share_that_the_list_calls_for():
    population = people(server="semi-honest")
    server = server_of(population)
    until(population, server, Kind.SURVIVORS)
    held = list(population.users[0]._round.held)
    reply = population.users[0].receive(listed(server, gone=[5])[0])
    shares = reply[11:-64]
    for slot, other in enumerate(server.graph.around(0)):
        own, key = held[slot][:SHARE_SIZE], held[slot][SHARE_SIZE:]
        assert shares[slot * SHARE_SIZE : (slot + 1) * SHARE_SIZE] == (key if other == 5 else own)
        assert (own if other == 5 else key) not in reply


def test_a_user_left_off_the_list_gives_nothing():
    population = people()
    server = server_of(population)
    until(population, server, Kind.SURVIVORS)
    tree = SurvivorTree(np.arange(12) != 0)
    with pytest.raises(MessageRefused, match="not on the list"):
        population.users[0].receive(plain(Kind.SURVIVORS, server.context, tree.shown([0])))


def test_lists_that_are_too_short_are_refused():
    population = people(20, minimum=13, dropouts="0.3")
    server = server_of(population)
    until(population, server, Kind.SURVIVORS)
    with pytest.raises(QueryRefused, match="12 users survived") as refused:
        population.users[0].receive(listed(server, gone=range(12, 20))[0])
    assert refused.value.refusals[0].code == "roster_too_small"
    with pytest.raises(MessageRefused, match="neighbours survived"):
        population.users[0].receive(listed(server, gone=range(5, 20))[0])


def second_round(population, silent, before):
    """Run a second round with a server that does not keep to the rules, up to the list of survivors."""
    server = server_of(population, number=2, before=before)
    server._before = None
    return server, until(population, server, Kind.SURVIVORS, silent)


def test_one_dropout_between_two_rounds_gives_nothing_away():
    population = people()
    server = server_of(population)
    until(population, server, None)
    first = server.outcome
    assert np.array_equal(first.counts, clear_counts(12, range(12)))
    evil, lists = second_round(population, {4}, first)
    for place, message in lists.items():
        with pytest.raises(QueryRefused, match="1 of 12 users left") as refused:
            population.users[place].receive(message)
        assert refused.value.refusals[0].code == "departed_too_few"
    # what the server has: masked votes and not one share; the difference of sums is not the record of user 4
    assert evil._endorsements == {}
    assert evil._given == {}
    masked = np.sum(list(evil._votes.values()), axis=0, dtype=evil.terms.width)
    codes = codes_of(12)
    record = np.zeros(6, dtype=np.int64)
    record[codes["a"][4] * 3 + codes["b"][4]] = 1
    assert not np.array_equal((first.counts - masked) % 256, record)
    with pytest.raises(RoundAborted, match="signed the list"):
        evil.advance()


def test_an_honest_server_does_not_even_show_such_a_list():
    population = people()
    population.ask(whole(population))
    population.gone.add(4)
    assert [refusal.code for refusal in population.refusals()] == ["departed_too_few"]
    with pytest.raises(QueryRefused, match="1 of 12 users left"):
        population.ask(whole(population))
    population.gone.clear()
    population.leaving = {4: Kind.DELIVERY}
    with pytest.raises(RoundAborted, match="1 of 12 users left") as aborted:
        population.ask(whole(population))
    assert aborted.value.spent


def test_enough_users_leaving_together_hide_each_other():
    population = people(24, minimum=5, dropouts="0.25")
    first = population.ask(whole(population))
    population.gone.update(range(5))
    second = population.ask(whole(population))
    assert np.array_equal(first.counts - second.counts, clear_counts(24, range(5)))


def test_a_colluder_cannot_stand_in_for_somebody_who_left():
    """As many users as before, but one is new: the difference would be one record less a known one."""
    population = people()
    server = server_of(population)
    until(population, server, None, silent={11})  # the colluder stays away
    first = server.outcome
    assert first.survivors == tuple(range(11))
    server = server_of(population, number=2, before=first)
    server._before, server._invited = None, range(12)
    lists = until(population, server, Kind.SURVIVORS, silent={4})
    assert 11 in lists
    with pytest.raises(QueryRefused, match="not counted before"):
        population.users[0].receive(lists[0])


def test_disguised_users_go_on_whoever_leaves():
    population = people(policy=DISGUISED)
    population.ask(whole(population))
    population.gone.add(4)
    outcome = population.ask(whole(population))
    assert len(outcome.survivors) == 11


def test_lists_of_different_pasts_do_not_mix():
    """The signature covers the list before: users who were shown different ones do not confirm each other."""
    population = people()
    server = server_of(population)
    until(population, server, None)
    entries = population.ledgers[3]._entries
    (name,) = [name for name in entries if name[0] == LISTED]
    head = SESSION_SIZE + NUMBER_SIZE
    entries[name] = entries[name][:head] + bytes(32) + entries[name][head + 32 :]
    later = server_of(population, number=2, before=server.outcome)
    lists = until(population, later, Kind.SURVIVORS)
    signature = population.users[3].receive(lists[3])
    with pytest.raises(MessageRefused, match="not signed by 'user 3'"):
        later.receive(3, signature)
    population.users[0].receive(lists[0])
    with pytest.raises(MessageRefused, match="not signed by 'user 3'"):
        population.users[0].receive(endorsed(later, {3: signature[-64:]}, 0))


def test_an_advert_that_its_owner_did_not_sign_is_refused():
    population = people()
    server = server_of(population)
    shown = until(population, server, Kind.NEIGHBOURS)
    size = 2 * 32 + 64
    start = 9 + 2 + 4 * size  # user 0 sees user 5 in slot 4
    forged = signed(Kind.ADVERT, server.context, bytes(range(64)), SigningKey())[9:]
    message = shown[0][:start] + forged + shown[0][start + size :]
    with pytest.raises(MessageRefused, match="not signed by 'user 5'") as refused:
        population.users[0].receive(message)
    assert refused.value.culprits == ("user 5",)
    assert population.users[0].receive(shown[0])  # the right one is still taken


@pytest.mark.parametrize("key", [bytes(32), bytes([1] + [0] * 31), b"\xff" * 32])
def test_keys_that_agree_on_nothing_secret_are_refused_at_the_door(key):
    population = people()
    server = server_of(population)
    user = population.users[0]
    user.receive(server.advance()[0])
    for body in (key + bytes(range(32)), bytes(range(32)) + key):
        with pytest.raises(DecodingError):
            server.receive(0, signed(Kind.ADVERT, server.context, body, user._key))


def test_changed_shares_are_noticed_and_the_sender_is_named():
    population = people()
    server = server_of(population)
    delivered = until(population, server, Kind.DELIVERY)
    message = bytearray(delivered[0])
    message[9 + 2 + 3 * 80 + 7] ^= 1
    with pytest.raises(MessageRefused, match="shares of 'user 4'") as refused:
        population.users[0].receive(bytes(message))
    assert refused.value.culprits == ("user 4",)


def test_hiding_one_delivery_leads_to_no_sum():
    """A user that is shown fewer shares masks with fewer neighbours; its vote is then not taken."""
    population = people()
    server = server_of(population)
    delivered = until(population, server, Kind.DELIVERY)
    body = delivered[0][9:]
    bits = np.unpackbits(np.frombuffer(body[:2], dtype=np.uint8))
    bits[0] = 0
    vote = population.users[0].receive(delivered[0][:9] + np.packbits(bits).tobytes() + body[2 + 80 :])
    with pytest.raises(MessageRefused, match="other neighbours"):
        server.receive(0, vote)


def test_wrong_shares_do_no_harm_and_their_giver_is_named():
    population = people(dropouts="0.15")
    server = server_of(population)
    lists = until(population, server, Kind.ENDORSEMENTS)
    for place, message in lists.items():
        if place == 2:
            population.users[2]._round.held[4] = bytes([1] * 64)  # it has user 5 in slot 4
        server.receive(place, population.users[place].receive(message))
    assert server.advance() == {}
    assert server.outcome.culprits == ("user 2",)
    assert np.array_equal(server.outcome.counts, clear_counts(12, range(12)))


def test_a_dealer_of_wrong_shares_is_named():
    population = people()
    user = population.users[6]
    server = server_of(population)
    shown = until(population, server, Kind.NEIGHBOURS)
    for place, message in shown.items():
        if place == 6:
            right, user._round.own_seed = user._round.own_seed, bytes(31)
            reply = user.receive(message)
            user._round.own_seed = right
            body = bytearray(reply[9:-64])
            body[:32] = bytes(32)  # the commitment is to something else
            server.receive(place, signed(Kind.SHARES, server.context, bytes(body), user._key))
        else:
            server.receive(place, population.users[place].receive(message))
    with pytest.raises(RoundAborted, match="'user 6'") as aborted:
        until(population, server, None)
    assert aborted.value.culprits == ("user 6",)
    assert aborted.value.spent


def test_one_user_can_shift_any_count():
    """Votes are not validated, and the guarantee says so."""
    population = people()
    server = server_of(population)
    delivered = until(population, server, Kind.DELIVERY)
    user = population.users[0]
    for place, message in delivered.items():
        reply = population.users[place].receive(message)
        if place == 0:
            body = bytearray(reply[9:-64])
            body[2] = (body[2] + 50) % 256
            reply = signed(Kind.INPUT, server.context, bytes(body), user._key)
        server.receive(place, reply)
    until(population, server, None)
    shift = server.outcome.counts - clear_counts(12, range(12))
    assert shift.tolist() == [50, 0, 0, 0, 0, 0]


def drawn(population, server):
    """Return the calls of the committee, and its members."""
    calls = until(population, server, Kind.CALL)
    return calls, list(calls)


def test_a_replaced_commitment_is_noticed_by_its_owner():
    population = on_a_circle()
    server = server_of(population)
    calls, members = drawn(population, server)
    for place in members:
        server.receive(place, population.users[place].receive(calls[place]))
    shown = server.advance()[members[0]]
    for at, place in enumerate(members):
        body = bytearray(shown)
        body[9 + 1 + 32 * at] ^= 1
        with pytest.raises(MessageRefused, match="replaced"):
            population.users[place].receive(bytes(body))
        assert population.users[place].receive(shown)
        with pytest.raises(MessageRefused, match="already"):
            population.users[place].receive(shown)


def test_a_member_cannot_change_its_nonce_after_having_seen_the_others():
    population = on_a_circle()
    server = server_of(population)
    calls, members = drawn(population, server)
    for place in members:
        server.receive(place, population.users[place].receive(calls[place]))
    shown = server.advance()
    cheat = population.users[members[1]]
    cheat.receive(shown[members[1]])
    body = bytes([0]) + bytes(16)
    about = server._convening.about
    with pytest.raises(MessageRefused, match="another nonce") as refused:
        server.receive(members[1], signed(Kind.REVEAL, server.context.opening, body, cheat._key, about))
    assert refused.value.culprits == (f"user {members[1]}",)


def test_only_members_are_heard_and_others_do_not_answer_calls():
    population = on_a_circle()
    server = server_of(population)
    calls, members = drawn(population, server)
    outsider = next(place for place in range(14) if place not in members)
    with pytest.raises(MessageRefused, match="not among those who draw"):
        population.users[outsider].receive(calls[members[0]])


def test_a_graph_that_the_committee_did_not_draw_is_refused():
    population = on_a_circle()
    server = server_of(population)
    shown = until(population, server, Kind.NEIGHBOURS)
    for at in (9, 10, 9 + 1 + 16, 9 + 1 + 80 * 2 + 3):  # attempt, nonce, signatures
        message = bytearray(shown[0])
        message[at] ^= 1
        with pytest.raises(MessageRefused, match="not signed by"):
            population.users[0].receive(bytes(message))
    assert population.users[0].receive(shown[0])


def test_a_second_graph_in_a_session_is_refused():
    population = on_a_circle()
    first = server_of(population)
    until(population, first, None)
    other = server_of(population, number=2)  # forgets the graph and draws anew
    shown = until(population, other, Kind.NEIGHBOURS)
    with pytest.raises(MessageRefused, match="another graph"):
        population.users[0].receive(shown[0])


def test_the_committee_follows_from_the_session():
    population = on_a_circle()
    one, two = server_of(population), server_of(population, nonce=bytes([1] * 16))
    committees = [
        [committee.members(server.context, attempt, population.terms) for attempt in range(8)]
        for server in (one, two)
    ]
    assert committees[0] != committees[1]
    assert len({tuple(members) for members in committees[0]}) > 1


REPLIES = (Kind.ADVERT, Kind.SHARES, Kind.INPUT, Kind.ENDORSEMENT, Kind.UNMASKING)


@pytest.mark.parametrize("kind", REPLIES, ids=lambda kind: kind.name.lower())
def test_a_reply_with_any_bit_changed_is_refused(kind):
    population = people(9, minimum=4)
    server = server_of(population)
    outgoing = until(population, server, Kind(kind - 1))
    reply = population.users[0].receive(outgoing[0])
    for bit in range(8 * len(reply)) if len(reply) < 200 else range(0, 8 * len(reply), 9):
        changed = bytearray(reply)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DecodingError, MessageRefused)):
            server.receive(0, bytes(changed))
    server.receive(0, reply)  # nothing had changed


@pytest.mark.parametrize(
    "kind", [Kind.NEIGHBOURS, Kind.DELIVERY, Kind.ENDORSEMENTS], ids=lambda kind: kind.name
)
def test_what_users_signed_or_sealed_cannot_be_changed_by_the_server(kind):
    """All but the bits that say who is there: leaving somebody out is what a server can do to anyone."""
    population = people(9, minimum=4)
    server = server_of(population)
    message = until(population, server, kind)[0]
    slots = range(8 * 9, 8 * 10)
    for bit in [bit for bit in range(0, 8 * len(message), 5) if bit not in slots]:
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DecodingError, MessageRefused)):
            population.users[0].receive(bytes(changed))
    assert population.users[0].receive(message)


def test_no_mask_is_used_twice():
    """Under the same masks, two votes of a user would show their difference: here the same vote twice."""
    population = people()
    sent = {}

    def listen(place, message):
        if message[0] == Kind.INPUT:
            sent.setdefault(place, []).append(np.frombuffer(message[11:17], dtype=np.uint8))
        return [message]

    population.inward = listen
    first, second = population.ask(whole(population)), population.ask(whole(population))
    assert np.array_equal(first.counts, second.counts)
    # masks are fresh: all six bytes alike with probability 2^-48 a user, 12 users
    assert all(not np.array_equal(*votes) for votes in sent.values())
    assert len(sent) == 12
