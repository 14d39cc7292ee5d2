"""What a server or a user may try, and who is named for it."""

import numpy as np
import pytest
from tests.unit.protocols.secure_aggregation.people import (
    DISGUISED,
    clear_counts,
    codes_of,
    on_a_circle,
    people,
    server_of,
    until,
    where,
    whole,
)

from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.shamir import SHARE_SIZE
from masquerade.protocols.people.history import TERMS_SIZE
from masquerade.protocols.secure_aggregation import circle
from masquerade.protocols.secure_aggregation.circle import SurvivorTree, leaves_near
from masquerade.protocols.secure_aggregation.history import LISTED, NUMBER_SIZE
from masquerade.protocols.secure_aggregation.messages import (
    AggregationAdvert,
    Announcement,
    Commitment,
    Commitments,
    Delivery,
    Endorsement,
    Endorsements,
    MessageRefused,
    Neighbours,
    Reveal,
    RoundCall,
    Shares,
    Survivors,
    Unmasking,
    Vote,
    kind_of,
)


def tree_of(server, gone=()):
    """Return the list of survivors as it would be if some users had dropped out."""
    alive = np.ones(server.terms.parameters.users, dtype=bool)
    alive[[server.graph.position[one] for one in gone]] = False
    return SurvivorTree(alive)


def listed(server, gone=(), tree=None):
    """Return the lists that a server would show if some users had dropped out."""
    tree = tree or tree_of(server, gone)
    return {
        place: Survivors(server.context.tag, tree.show_leaves(leaves_near(server.graph, place))).encode()
        for place in range(server.terms.parameters.users)
        if place not in gone
    }


def endorsed(server, signatures):
    """Return a message that shows signatures of witnesses."""
    shown = tuple(signatures.get(place) for place in server.witnesses)
    return Endorsements(server.context.tag, shown).encode(server.context)


def signature_of(reply):
    """Return the signature of what a user said."""
    at = where(Endorsement)
    return reply[at - 64 : at]


def sealed(population, server, place, kind, *fields, about=b""):
    """Return a message of a user who does not follow the protocol: signed all the same."""
    context = server.context.opening if kind in (Commitment, Reveal) else server.context
    unsigned = kind(context.tag, bytes(64), *fields)
    return unsigned.encode_signed(population.users[place]._identity, context, about)


def test_two_lists_of_survivors_are_noticed():
    population = people()
    server = server_of(population)
    honest = until(population, server, Survivors)
    other = listed(server, gone=[5])
    shown = {place: honest[place] if place < 6 else other[place] for place in range(12)}
    replies = {place: population.users[place].receive(shown[place]) for place in range(12)}
    signatures = {place: signature_of(reply) for place, reply in replies.items()}
    with pytest.raises(MessageRefused, match="not signed by") as refused:
        population.users[0].receive(endorsed(server, signatures))
    assert refused.value.culprits == ("user 6",)
    same = {place: signatures[place] for place in range(6)}
    with pytest.raises(MessageRefused, match=r"Only 6 witnesses signed .* at least 8 must"):
        population.users[0].receive(endorsed(server, same))


@pytest.mark.parametrize("mode", ["semi-honest", "malicious"])
def test_of_a_neighbour_one_share_leaves_and_never_the_other(mode):
    population = people(server=mode)
    server = server_of(population)
    honest = until(population, server, Survivors)
    reply = population.users[0].receive(honest[0])
    held = population.users[0]._round.held
    with pytest.raises(MessageRefused, match="out of sequence"):
        population.users[0].receive(listed(server, gone=[5])[0])  # now as if user 5 had dropped out
    if mode == "semi-honest":
        assert len(reply) == where(Unmasking, 2 + 11 * SHARE_SIZE)
        assert held == []  # what was not given is gone


def test_what_leaves_is_the_share_that_the_list_calls_for():
    population = people(server="semi-honest")
    server = server_of(population)
    until(population, server, Survivors)
    held = list(population.users[0]._round.held)
    reply = population.users[0].receive(listed(server, gone=[5])[0])
    shares = reply[where(Unmasking, 2) :]
    for slot, other in enumerate(server.graph.around(0)):
        own, key = held[slot][:SHARE_SIZE], held[slot][SHARE_SIZE:]
        assert shares[slot * SHARE_SIZE : (slot + 1) * SHARE_SIZE] == (key if other == 5 else own)
        assert (own if other == 5 else key) not in reply


def test_a_user_left_off_the_list_gives_nothing():
    population = people()
    server = server_of(population)
    until(population, server, Survivors)
    with pytest.raises(MessageRefused, match="not on the list"):
        population.users[0].receive(listed(server, tree=tree_of(server, [0]))[0])


def test_lists_that_are_too_short_are_refused():
    population = people(20, minimum=13, dropouts="0.3")
    server = server_of(population)
    until(population, server, Survivors)
    with pytest.raises(QueryRefused, match="12 users survived") as refused:
        population.users[0].receive(listed(server, gone=range(12, 20))[0])
    assert refused.value.refusals[0].code == "roster_too_small"
    with pytest.raises(MessageRefused, match="neighbours survived"):
        population.users[0].receive(listed(server, gone=range(5, 20))[0])


def second_round(population, silent, before):
    """Run a second round with a server that does not keep to the rules, up to the list of survivors."""
    server = server_of(population, number=2, before=before)
    server._before = None
    return server, until(population, server, Survivors, silent)


def test_one_dropout_between_two_rounds_gives_nothing_away():
    population = people()
    server = server_of(population)
    until(population, server, None)
    first = server.outcome
    assert np.array_equal(first.counts, clear_counts(12, range(12)))
    evil, lists = second_round(population, {4}, first)
    for place, message in lists.items():
        with pytest.raises(QueryRefused, match="1 of the 12 users counted before left") as refused:
            population.users[place].receive(message)
        assert refused.value.refusals[0].code == "departed_too_few"
    # what the server has: masked votes and not one share; the difference of sums is not the record of user 4
    assert not evil._said[Endorsement]
    assert not evil._said[Unmasking]
    masked = np.sum([[*said.vector] for said in evil._said[Vote].values()], axis=0)
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
    with pytest.raises(QueryRefused, match="1 of the 12 users counted before left"):
        population.ask(whole(population))
    population.gone.clear()
    population.leaving = {4: Delivery}
    with pytest.raises(RoundAborted, match="1 of the 12 users counted before left") as aborted:
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
    lists = until(population, server, Survivors, silent={4})
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
    head = TERMS_SIZE + NUMBER_SIZE
    entries[name] = entries[name][:head] + bytes(32) + entries[name][head + 32 :]
    later = server_of(population, number=2, before=server.outcome)
    lists = until(population, later, Survivors)
    signature = population.users[3].receive(lists[3])
    with pytest.raises(MessageRefused, match="not signed by 'user 3'"):
        later.receive(3, signature)
    population.users[0].receive(lists[0])
    with pytest.raises(MessageRefused, match="not signed by 'user 3'"):
        population.users[0].receive(endorsed(later, {3: signature_of(signature)}))


def test_an_advert_that_its_owner_did_not_sign_is_refused():
    population = people()
    server = server_of(population)
    shown = until(population, server, Neighbours)
    size = 2 * 32 + 64
    start = where(Neighbours, 1 + 2 + 4 * size)  # user 0 sees user 5 in slot 4
    keys = bytes(range(32)), bytes(range(32, 64))
    stranger = AggregationAdvert(server.context.tag, bytes(64), *keys).encode_signed(
        SigningKey(), server.context
    )
    forged = b"".join(keys) + signature_of(stranger + bytes(9))
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
    for keys in ((key, bytes(range(32))), (bytes(range(32)), key)):
        with pytest.raises(DecodingError):
            server.receive(0, sealed(population, server, 0, AggregationAdvert, *keys))


def test_changed_shares_are_noticed_and_the_sender_is_named():
    population = people()
    server = server_of(population)
    delivered = until(population, server, Delivery)
    message = bytearray(delivered[0])
    message[where(Delivery, 2 + 3 * 80 + 7)] ^= 1
    with pytest.raises(MessageRefused, match="shares of 'user 4'") as refused:
        population.users[0].receive(bytes(message))
    assert refused.value.culprits == ("user 4",)


def test_hiding_one_delivery_leads_to_no_sum():
    """A user that is shown fewer shares masks with fewer neighbours; its vote is then not taken."""
    population = people()
    server = server_of(population)
    delivered = until(population, server, Delivery)
    items = Delivery.decode(delivered[0], server.context).sealed_shares
    hidden = Delivery(server.context.tag, (None, *items[1:])).encode(server.context)
    vote = population.users[0].receive(hidden)
    with pytest.raises(MessageRefused, match="neighbours other than"):
        server.receive(0, vote)


def test_wrong_shares_do_no_harm_and_their_giver_is_named():
    population = people(dropouts="0.15")
    server = server_of(population)
    lists = until(population, server, Endorsements)
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
    shown = until(population, server, Neighbours)
    for place, message in shown.items():
        if place == 6:
            right, user._round.own_seed = user._round.own_seed, bytes(31)
            reply = user.receive(message)
            user._round.own_seed = right
            items = Shares.decode(reply, server.context).sealed_shares
            # the promise is of something else
            server.receive(place, sealed(population, server, 6, Shares, bytes(32), items))
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
    delivered = until(population, server, Delivery)
    for place, message in delivered.items():
        reply = population.users[place].receive(message)
        if place == 0:
            said = Vote.decode(reply, server.context)
            more = bytes([(said.vector[0] + 50) % 256]) + said.vector[1:]
            reply = sealed(population, server, 0, Vote, said.masked_with, more)
        server.receive(place, reply)
    until(population, server, None)
    shift = server.outcome.counts - clear_counts(12, range(12))
    assert shift.tolist() == [50, 0, 0, 0, 0, 0]


def drawn(population, server):
    """Return the calls of the committee, and its members."""
    calls = until(population, server, RoundCall)
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
        body[where(Commitments, 1 + 32 * at)] ^= 1
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
    said = sealed(population, server, members[1], Reveal, 0, bytes(16), about=server._about())
    with pytest.raises(MessageRefused, match="does not match its commitment") as refused:
        server.receive(members[1], said)
    assert refused.value.culprits == (f"user {members[1]}",)


def test_only_members_are_heard_and_others_do_not_answer_calls():
    population = on_a_circle()
    server = server_of(population)
    calls, members = drawn(population, server)
    outsider = next(place for place in range(14) if place not in members)
    with pytest.raises(MessageRefused, match="not in the committee that draws"):
        population.users[outsider].receive(calls[members[0]])


def test_a_graph_that_the_committee_did_not_draw_is_refused():
    population = on_a_circle()
    server = server_of(population)
    shown = until(population, server, Neighbours)
    for at in (where(Neighbours, at) for at in (0, 1, 1 + 16, 1 + 80 * 2 + 3)):  # attempt, nonce, signatures
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
    shown = until(population, other, Neighbours)
    with pytest.raises(MessageRefused, match="graph has changed"):
        population.users[0].receive(shown[0])


def test_the_committee_follows_from_the_session():
    population = on_a_circle()
    one, two = server_of(population), server_of(population, nonce=bytes([1] * 16))
    committees = [
        [circle.members(server.context, attempt, population.terms) for attempt in range(8)]
        for server in (one, two)
    ]
    assert committees[0] != committees[1]
    assert len({tuple(members) for members in committees[0]}) > 1


REPLIES = {
    AggregationAdvert: Announcement,
    Shares: Neighbours,
    Vote: Delivery,
    Endorsement: Survivors,
    Unmasking: Endorsements,
}


@pytest.mark.parametrize("kind", REPLIES, ids=lambda kind: kind.__name__.lower())
def test_a_reply_with_any_bit_changed_is_refused(kind):
    population = people(9, minimum=4)
    server = server_of(population)
    outgoing = until(population, server, REPLIES[kind])
    reply = population.users[0].receive(outgoing[0])
    for bit in range(8 * len(reply)) if len(reply) < 200 else range(0, 8 * len(reply), 9):
        changed = bytearray(reply)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((DecodingError, MessageRefused)):
            server.receive(0, bytes(changed))
    server.receive(0, reply)  # nothing had changed


@pytest.mark.parametrize("kind", [Neighbours, Delivery, Endorsements], ids=lambda kind: kind.__name__)
def test_what_users_signed_or_sealed_cannot_be_changed_by_the_server(kind):
    """All but the bits that say who is there: leaving somebody out is what a server can do to anyone."""
    population = people(9, minimum=4)
    server = server_of(population)
    message = until(population, server, kind)[0]
    start = where(kind, 1 if kind is Neighbours else 0)
    slots = range(8 * start, 8 * start + 16)
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
        if kind_of(message) is Vote:
            sent.setdefault(place, []).append(np.frombuffer(message[-6:], dtype=np.uint8))
        return [message]

    population.inward = listen
    first, second = population.ask(whole(population)), population.ask(whole(population))
    assert np.array_equal(first.counts, second.counts)
    # masks are fresh: all six bytes alike with probability 2^-48 a user, 12 users
    assert all(not np.array_equal(*votes) for votes in sent.values())
    assert len(sent) == 12
