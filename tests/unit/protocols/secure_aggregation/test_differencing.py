"""What several sums give away together: lists that overlap, users listed in vain, circles in parts."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.unit.protocols.frequency_mining.people import Village, refusal
from tests.unit.protocols.secure_aggregation.people import (
    DISGUISED,
    SCHEMA,
    again,
    clear_counts,
    codes_of,
    on_a_circle,
    people,
    server_of,
    until,
)

import masquerade as mq
from masquerade.channels.privacy_level import PrivacyLimit
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.people.history import History
from masquerade.protocols.people.ledger import MemoryLedger
from masquerade.protocols.people.questions import Question
from masquerade.protocols.people.roster import Roster
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, Parameters, QuestionBatch
from masquerade.protocols.secure_aggregation.circle import (
    SurvivorTree,
    harary_graph,
    leaf_node,
    leaves_near,
    leaves_of,
    needed_nodes,
    parent,
    read_shown,
)
from masquerade.protocols.secure_aggregation.messages import (
    Endorsement,
    Endorsements,
    MessageRefused,
    Stretch,
    Survivors,
    Vote,
    kind_of,
)
from masquerade.protocols.secure_aggregation.server import Server
from masquerade.protocols.secure_aggregation.user import AggregationUser


def shown(server, gone):
    """Have a server list all users but some, whoever voted; return what it shows."""
    alive = np.ones(server.terms.parameters.users, dtype=bool)
    alive[[server.graph.position[one] for one in gone]] = False
    tree = SurvivorTree(alive)
    server._root = tree.root
    return {
        place: Survivors(server.context.tag, tree.show_leaves(leaves_near(server.graph, place))).encode()
        for place in server._said[Vote]
    }


def round_with(population, number, before, silent, gone):
    """Run a round in which some are silent, with a server that lists all but those it says are gone."""
    server = server_of(population, number, before)
    server._before = None  # it does not keep to the rules
    until(population, server, Survivors, silent)
    outgoing = shown(server, gone)
    while outgoing:
        for place, message in outgoing.items():
            reply = population.users[place].receive(message)
            if reply is not None:
                server.receive(place, reply)
        outgoing = server.advance()
    return server.outcome


# disguises beyond the limit


@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_a_disguise_beyond_the_limit_is_summed_as_clear(server):
    """γ of some 10^15 hides nothing: twelve people and then eleven tell what the twelfth answered."""
    telling = mq.Policy.build(
        SCHEMA, {"a": mq.channels.symmetric(2, "1e-8"), "b": mq.channels.symmetric(3, "1e-8")}
    )
    population = people(policy=telling, server=server)
    population.terms = replace(population.terms, limit=PrivacyLimit.parse({"gamma": "1e17"}))
    population.users = [again(population, place, MemoryLedger()) for place in range(12)]
    before = round_with(population, 1, None, (), ())
    after = round_with(population, 2, before, (11,), (11,))
    codes = codes_of(12)
    (cell,) = np.flatnonzero(before.counts - after.counts)
    assert cell == codes["a"][11] * 3 + codes["b"][11]  # wrong once in 10^6 runs
    population = people(policy=telling, server=server)
    before = round_with(population, 1, None, (), ())
    with pytest.raises((QueryRefused, RoundAborted), match="1 of the 12 users counted before left"):
        round_with(population, 2, before, (11,), (11,))


def test_users_with_a_lower_limit_stop_where_others_do_not_chain_their_lists():
    population = people(policy=DISGUISED)
    strict = replace(population.terms, limit=PrivacyLimit.parse({"gamma": "1.1"}))
    assert population.terms.disguised
    assert not population.terms.chained
    assert not strict.disguised
    assert strict.chained


# users who are listed and not there


class Credulous(AggregationUser):
    """A user who believes that neighbours took part though no shares of them came."""

    def _stand(self, now, said):
        held = now.held
        now.held = [item or bytes(64) for item in held]
        try:
            return super()._stand(now, said)
        finally:
            now.held = held


def of_users(kind):
    population = people(20, minimum=5, dropouts="0.3")
    codes = codes_of(20)
    for place, old in enumerate(population.users):
        record = {name: int(column[place]) for name, column in codes.items()}
        population.users[place] = kind(old.name, old._identity, record, population.terms)
    return population


ABSENT, VICTIM = {1, 2, 3, 4}, 7


def test_four_listed_in_vain_would_let_one_leave_alone():
    """The first list has four users more than were summed; the second is five shorter: one record is left."""
    population = of_users(Credulous)
    first = round_with(population, 1, None, ABSENT, ())
    second = round_with(population, 2, first, {*ABSENT, VICTIM}, {*ABSENT, VICTIM})
    assert np.array_equal(first.counts - second.counts, clear_counts(20, [VICTIM]))


def test_nobody_stands_on_a_list_with_neighbours_who_sent_no_shares():
    population = of_users(AggregationUser)
    server = server_of(population)
    until(population, server, Survivors, ABSENT)
    for place, message in shown(server, ()).items():
        with pytest.raises(MessageRefused, match="counts 'user 1', who sent no shares") as refused:
            population.users[place].receive(message)
        assert refused.value.culprits == ("the server",)
    assert population.users[0].receive(shown(server, ABSENT)[0])  # those who were there may be listed


# numbers that no leaf has


@pytest.mark.parametrize("users", [256, 257, 600, 1500, 10_000])
def test_every_node_of_the_list_stands_for_users(users):
    """A node that stood for nobody could count anybody, and nobody would notice."""
    leaves = leaves_of(users)
    assert 256 * (leaves - 1) < users <= 256 * leaves
    for leaf in range(leaves):
        for height, index in needed_nodes([leaf], leaves):
            assert index << height < leaves


def test_an_empty_leaf_would_count_whom_it_likes():
    """Three leaves with users and one without: with one user less and a forged one, nobody seems gone."""
    full, less = b"\xff" * 32, b"\xff" * 31 + b"\xfe"
    honest = [leaf_node(full)] * 3
    forged = bytes(32) + (1).to_bytes(4, "big")
    before = parent(parent(honest[0], honest[1]), parent(honest[2], leaf_node(bytes(32))))
    after = parent(parent(honest[0], leaf_node(less)), parent(honest[2], forged))
    assert before[32:] == after[32:]  # nobody left, it seems
    tree = SurvivorTree(np.ones(768, dtype=bool))
    with pytest.raises(DecodingError, match="1 leaves and 1 nodes"):
        read_shown(Stretch(tree.show_leaves([2]).leaves, (*tree.show_leaves([2]).nodes, forged)), [2], 768)


# two lists in one round


def test_signatures_of_neighbours_would_not_keep_a_circle_together():
    """Users who look at their neighbours' signatures alone: two halves of a circle, two lists, one sum.

    Between the halves k − t users sign, half of them either list, and give no shares; so everybody has t
    neighbours who gave some. Users beside them need 2(t − k/2) − (k − t) signatures of colluders, counted on
    both sides: many places of a circle have as many.
    """
    n, k, t = 10_000, 76, 56  # what signatures of neighbours were used with
    colluding = np.zeros(n, dtype=int)
    colluding[np.random.default_rng(1).choice(n, n // 10, replace=False)] = 1
    around = np.concatenate([colluding, colluding, colluding])
    half, between = k // 2, k - t
    places = 0
    for p in range(n, 2 * n):
        q = p + 1
        while q - p - 1 - around[p + 1 : q].sum() < between:
            q += 1
        places += around[p + 1 : p + 1 + half].sum() + around[q - half : q].sum() >= 2 * (t - half) - between
    assert places > 100


@pytest.mark.parametrize("make", [people, on_a_circle])
def test_of_two_lists_in_a_round_no_two_have_a_quorum(make):
    population = make()
    server = server_of(population)
    until(population, server, Survivors)
    lists = [shown(server, ()), shown(server, {5})]
    said = [{}, {}]
    for place in server._said[Vote]:
        which = int(place % 2 and place != 5)
        reply = population.users[place].receive(lists[which][place])
        if reply is not None:
            said[which][place] = Endorsement.decode(reply, server.context).signature
    confirmed = 0
    for place, which in ((0, 0), (1, 1)):
        signatures = tuple(said[which].get(witness) for witness in server.witnesses)
        message = Endorsements(server.context.tag, signatures).encode(server.context)
        try:
            population.users[place].receive(message)
        except MessageRefused as refused:
            assert "witnesses signed the list" in str(refused)  # noqa: PT017
        else:
            confirmed += 1
    assert confirmed <= (make is on_a_circle)  # where all are witnesses, neither half is a quorum


def test_who_is_no_witness_signs_nothing():
    population = on_a_circle()
    server = server_of(population)
    for place, message in until(population, server, Survivors).items():
        reply = population.users[place].receive(message)
        assert (reply is not None) == (place in server.witnesses)
        assert reply is None or kind_of(reply) is Endorsement


# a circle in parts


def opens(colluding, listed, part, n, k, t):
    """Tell whether a sum over some of the users on a list opens, if the server does what it can.

    It hides from these the shares of others on the list; users not on it are there until they have sent
    shares. An honest user gives shares if t of its neighbours are on the list; one in the part has no other
    on the list among them, since masks with these would stay.
    """
    near = [{(p + d) % n for d in range(-(k // 2), k // 2 + 1)} - {p} for p in range(n)]
    others = listed - part - colluding
    givers = {
        p
        for p in listed - colluding
        if len(near[p] & (listed | colluding)) >= t and (p in others or not near[p] & others)
    } | colluding
    dropped = {p for p in set(range(n)) - listed - colluding if len(near[p] & givers) >= t}
    sent = part | dropped | colluding
    return all(len(near[p] & givers) >= t and len(near[p] & sent) >= t for p in part - colluding)


def gaps(colluding, n, k, t):
    """Return how many stretches of k/2 − 1 places have t − k/2 − 1 colluders, none of them overlapping."""
    size, least = k // 2 - 1, t - k // 2 - 1
    starts = [p for p in range(n) if sum((p + i) % n in colluding for i in range(size)) >= least]
    most = 0
    for first in starts:
        found, end = 0, 0
        for start in sorted((p - first) % n for p in starts):
            if start >= end and start + size <= n:
                found, end = found + 1, start + size
        most = max(most, found)
    return most


def test_no_part_of_a_list_opens_unless_colluders_fill_two_gaps():
    """All that a server might try on small circles: arcs, whatever lies between them, one user alone."""
    n, k, t = 36, 12, 9
    parted = safe = 0
    for seed in range(6000):
        rng = Random(seed)  # noqa: S311  (a server to play against)
        start, length = rng.randrange(n), rng.randint(1, n - 1)
        walls = [[(start + edge + i) % n for i in range(-rng.randint(0, 8), 6)] for edge in (0, length)]
        colluding = {p for wall in walls for p in rng.sample(wall, min(rng.randint(0, 4), len(wall)))}
        colluding |= set(rng.sample(range(n), rng.randint(0, 2)))
        near = [{(p + d) % n for d in range(-(k // 2), k // 2 + 1)} - {p} for p in range(n)]
        if any(len(near[p] & colluding) >= 2 * t - k for p in set(range(n)) - colluding):
            continue  # too many around somebody: excluded by a bound of its own
        kept = rng.choice([0, 0, 0.2, 0.5])
        gone = {p for wall in walls for p in wall if rng.random() >= kept} - colluding
        listed = set(range(n)) - gone
        part = {(start + i) % n for i in range(length)} & listed | colluding
        if not part - colluding or not listed - part - colluding:
            continue
        if opens(colluding, listed, part, n, k, t):
            parted += 1
            assert gaps(colluding, n, k, t) >= 2
        else:
            safe += 1
    assert parted > 10
    assert safe > 1000


def test_two_gaps_of_colluders_would_part_a_circle():
    """The precondition: t − k/2 colluders in each of two gaps, all others in the gaps said to be gone."""
    n, k, t = 36, 12, 9
    walls = [set(range(6)), set(range(18, 24))]
    colluding = {0, 2, 4, 18, 20, 22}
    listed = set(range(n)) - (walls[0] | walls[1]) | colluding
    assert opens(colluding, listed, set(range(6, 18)), n, k, t)
    assert not opens(colluding - {4}, listed - {4}, set(range(6, 18)), n, k, t)
    graph = harary_graph(n, k, bytes(32))
    arcs = [set(graph.order[6:18]), set(graph.order[24:])]
    assert not any(set(graph.around(place)) & arcs[1] for place in arcs[0])  # no masks between them


# lists after lists


def test_lists_that_fit_the_first_one_are_refused_beside_each_other():
    """All 24; without five of them; without these and one more: each is fine after the first alone."""
    population = people(24, minimum=5, dropouts="0.25")
    first = round_with(population, 1, None, (), ())
    second = round_with(population, 2, first, range(5), range(5))
    assert np.array_equal(first.counts - second.counts, clear_counts(24, range(5)))
    server = server_of(population, 3, second)
    server._before = None
    until(population, server, Survivors, range(6))
    for place, message in shown(server, range(6)).items():
        with pytest.raises(QueryRefused, match="1 of the 19 users counted before left"):
            population.users[place].receive(message)


def test_users_of_another_past_are_not_counted_in():
    """Five who left come back: they did not see the second list, and those who did are told of them."""
    population = people(24, minimum=5, dropouts="0.25")
    first = round_with(population, 1, None, (), ())
    round_with(population, 2, first, range(5), range(5))
    server = server_of(population, 3, first)
    server._before = None
    server._past = first.past
    until(population, server, Survivors)
    lists = shown(server, ())
    for place in range(5, 24):
        with pytest.raises(QueryRefused, match="not counted before"):
            population.users[place].receive(lists[place])
    for place in range(5):
        server.receive(place, population.users[place].receive(lists[place]))  # they know no better
    with pytest.raises(RoundAborted, match=r"Only 5 witnesses signed .* at least 14 must"):
        server.advance()


# other protocols


def test_a_clear_record_is_not_counted_by_two_protocols():
    village = Village(12, minimum=3)
    village.until(village.round(), "done")
    sizes = {name: len(village.policy.observed[name]) for name in village.policy.schema}
    batch = QuestionBatch((Question(("smoker",)),), sizes)
    roster = Roster(village.terms.members)
    terms = AggregationTerms(roster, Parameters.of(12, minimum=5), village.policy)
    name, voted = "u1", village.users["u1"]
    user = AggregationUser(
        name, village.identities[name], voted._reports, terms, ledger=voted._history.ledger
    )
    announced = Server(terms, bytes(16), 1, batch).advance()[roster.places[name]]
    with pytest.raises(QueryRefused, match="counted in another session"):
        user.receive(announced)


def test_after_a_clear_sum_no_clear_vote_leaves_in_frequency_mining():
    ledgers = {f"u{i}": Village(1).users["u0"]._history.ledger for i in range(4)}
    village = Village(4, ledgers=ledgers)
    history = History(ledgers["u0"])
    ledgers["u0"].claim([history.clear_vote(history.turn(), bytes(32))])
    said = refusal(village.users["u0"].receive(village.round().message))
    assert said.code == "already_spent"
    assert "counted in another session" in said.reason
