"""The small parts: graph, shares, tree of survivors, batches, masks, messages."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.aggregation.people import on_a_circle, people

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, SharesInconsistent
from masquerade.protocols.aggregation import masks, seed_shares
from masquerade.protocols.aggregation.batch import Batch, Table, found_in, smallest_cover
from masquerade.protocols.aggregation.graph import complete_graph, harary_graph
from masquerade.protocols.aggregation.message_sizes import most_traffic
from masquerade.protocols.aggregation.messages import bundle, kind_of, unbundle
from masquerade.protocols.aggregation.parameters import Parameters
from masquerade.protocols.aggregation.survivor_tree import SurvivorTree, leaves_near, read_shown, shown_size

GRAPHS = [complete_graph(9), harary_graph(20, 6, bytes(32)), harary_graph(901, 40, bytes(32))]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.users} users")
def test_neighbours_are_mutual_and_slots_lead_back(graph):
    for place in range(graph.users):
        near = graph.around(place)
        assert len(set(near) - {place}) == graph.neighbours
        for other, back in zip(near, graph.backs(place), strict=True):
            assert graph.around(other)[back] == place


def test_the_circle_depends_on_what_was_drawn():
    one, other = harary_graph(500, 10, bytes(32)), harary_graph(500, 10, bytes([1] * 32))
    assert not np.array_equal(one.order, other.order)
    assert sorted(one.order.tolist()) == list(range(500))


@pytest.mark.parametrize("missing", [(), (1,), (2, 5), (1, 3, 8), (4, 6, 7)])
def test_any_threshold_shares_open_a_seed(missing):
    seed = os.urandom(31)
    shares = dict(enumerate(map(seed_shares.decode_share, seed_shares.deal(seed, 5, range(1, 9))), start=1))
    left = {x: y for x, y in shares.items() if x not in missing}
    assert seed_shares.open_seed(left, 5) == seed


def test_fast_opening_is_lagrange_interpolation():
    seed = bytes(range(31))
    shares = seed_shares._deal_from_parts(seed, [7, 5**100, 3**150], range(1, 12))
    used = {x: seed_shares.decode_share(shares[x - 1]) for x in (2, 5, 7, 11)}
    value = 0
    for x, y in used.items():
        weight = 1
        for other in used:
            if other != x:
                weight = weight * other * pow(other - x, -1, seed_shares.FIELD) % seed_shares.FIELD
        value += weight * y
    assert (value % seed_shares.FIELD).to_bytes(31, "big") == seed == seed_shares.open_seed(used, 4)


def test_one_share_fewer_says_nothing():
    """For every seed there is a polynomial through t − 1 given shares: all seeds are equally likely."""
    seed, other = bytes(31), bytes([1] * 31)
    shares = dict(enumerate(map(seed_shares.decode_share, seed_shares.deal(seed, 3, (1, 2, 3))), start=1))
    # the third share that would open the other seed exists: f(0) = 3 f(1) − 3 f(2) + f(3)
    third = (int.from_bytes(other, "big") - 3 * shares[1] + 3 * shares[2]) % seed_shares.FIELD
    assert seed_shares.open_seed({1: shares[1], 2: shares[2], 3: third}, 3) == other


def test_wrong_shares_are_named_and_too_many_are_an_error():
    seed = os.urandom(31)
    shares = dict(enumerate(map(seed_shares.decode_share, seed_shares.deal(seed, 4, range(1, 11))), start=1))
    shares[2] ^= 1
    shares[9] ^= 4
    assert seed_shares.open_checked(shares, 4, lambda found: found == seed) == (seed, [2, 9])
    with pytest.raises(SharesInconsistent):
        seed_shares.open_checked({x: shares[x] for x in (1, 2, 3, 4)}, 4, lambda found: found == seed)


def test_a_share_beyond_the_field_is_refused():
    with pytest.raises(DecodingError):
        seed_shares.decode_share(b"\xff" * 32)


@pytest.mark.parametrize(("users", "width"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_the_ring_is_the_narrowest_that_holds_the_sum(users, width):
    assert masks.ring(users).itemsize == width


def test_sums_wrap_in_the_ring_only():
    width = masks.ring(300)
    vectors = [masks.mask(os.urandom(32), 50, width) for _ in range(600)]
    assert np.array_equal(masks.total(vectors, 50, width), np.sum(vectors, axis=0, dtype=np.int64) % 2**16)
    with pytest.raises(InputError, match="64 bits"):
        masks.ring(2**63, 4)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.users} users")
def test_every_user_reads_the_same_root_and_its_own_stretch(graph):
    alive = np.random.default_rng(5).random(graph.users) < 0.9
    tree = SurvivorTree(alive)
    for place in range(graph.users):
        leaves = leaves_near(graph, place)
        shown = read_shown(tree.shown(leaves), leaves, graph.users)
        assert shown.root == tree.root
        assert shown.root.count == alive.sum()
        for position in graph.position[[place, *graph.around(place)]]:
            assert shown.bits[position] == alive[position]


def test_a_changed_list_has_another_root():
    graph = GRAPHS[2]
    alive = np.ones(graph.users, dtype=bool)
    tree, leaves = SurvivorTree(alive), leaves_near(graph, 3)
    data = tree.shown(leaves)
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 1
        try:
            shown = read_shown(bytes(changed), leaves, graph.users)
        except DecodingError:
            continue
        assert shown.root != tree.root


def test_a_list_with_users_that_do_not_exist_is_refused():
    alive = np.ones(256, dtype=bool)
    with pytest.raises(DecodingError, match="do not exist"):
        read_shown(SurvivorTree(alive).shown([0]), [0], 200)


SIZES = (2, 3, 4)


def test_a_vote_is_one_in_every_table_it_belongs_to():
    tables = (Table((0, 2)), Table((1,), ((0, 1),)), Table((1,), ((0, 0),)))
    batch = Batch(tuple(sorted(tables)), SIZES)
    found = batch.split(batch.vote((1, 2, 3), np.dtype(np.int64)))
    assert np.argwhere(found[tables[0]]).tolist() == [[1, 3]]
    assert found[tables[1]].tolist() == [0, 0, 1]
    assert found[tables[2]].tolist() == [0, 0, 0]


def test_covered_tables_are_read_off_larger_ones():
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.integers(0, size, 200) for size in SIZES]).tolist()
    wanted = [
        Table((0, 1, 2)),
        Table((0,)),
        Table((2,), ((1, 2),)),
        Table((), ((0, 1), (2, 3))),
        Table(()),
        Table((0, 2), ((1, 0),)),
    ]
    cover = smallest_cover(wanted, SIZES)
    assert cover == (Table((0, 1, 2)),)
    whole = Batch(cover, SIZES)
    known = whole.split(sum(whole.vote(row, np.dtype(np.int64)) for row in rows))
    for table in wanted:
        alone = Batch((table,), SIZES)
        counts = sum(alone.vote(row, np.dtype(np.int64)) for row in rows)
        assert np.array_equal(found_in(known, table), alone.split(counts)[table])
    assert found_in({Table((0,)): np.zeros(2)}, Table((1,))) is None


@st.composite
def tables(draw):
    columns = draw(st.sets(st.integers(0, 2)))
    given_columns = draw(st.sets(st.sampled_from(sorted(set(range(3)) - columns) or [0]))) - columns
    return Table(
        tuple(sorted(columns)), tuple((c, draw(st.integers(0, SIZES[c] - 1))) for c in sorted(given_columns))
    )


@given(st.sets(tables(), min_size=1, max_size=8))
def test_batches_come_back_from_bytes(listed):
    batch = Batch(tuple(sorted(listed)), SIZES)
    assert Batch.decode(batch.encode(), SIZES) == batch


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_random_bytes_are_a_batch_or_a_decoding_error(data):
    try:
        batch = Batch.decode(data, SIZES)
    except DecodingError:
        return
    assert batch.encode() == data


@pytest.mark.parametrize(
    "table",
    [Table((1, 0)), Table((0, 0)), Table((3,)), Table((0,), ((0, 1),)), Table((0,), ((1, 3),))],
    ids=["unordered", "twice", "unknown", "condition on itself", "unknown code"],
)
def test_tables_in_another_spelling_are_refused(table):
    with pytest.raises(DecodingError):
        Batch.decode(Batch((table,), (2, 3, 4, 2)).encode(), SIZES)


def test_batches_beyond_the_limit_or_out_of_order_are_refused():
    with pytest.raises(DecodingError, match="at most"):
        Batch.decode(Batch((Table((0, 1)),), (300, 300)).encode(), (300, 300))
    for listed in ([Table((1,)), Table((0,))], [Table((0,)), Table((0,))], []):
        with pytest.raises(DecodingError, match="in order"):
            Batch.decode(Batch(tuple(listed), SIZES).encode(), SIZES)


@given(
    st.lists(st.none() | st.binary(min_size=5, max_size=5), min_size=1, max_size=20), st.binary(max_size=40)
)
def test_bundles_come_back_and_random_ones_fail_cleanly(items, noise):
    assert unbundle(bundle(items), len(items), 5) == items
    try:
        found = unbundle(noise, len(items), 5)
    except DecodingError:
        return
    assert bundle(found) == noise


def test_kinds_that_do_not_exist_are_refused():
    for message in (b"", bytes(8), bytes([99]) + bytes(8)):
        with pytest.raises(DecodingError):
            kind_of(message)
    assert [kind_of(bytes([i]) + bytes(8)) for i in range(14)] == list(range(14))


def test_every_pair_is_joined_on_the_circle():
    graph = harary_graph(30, 4, bytes(32))
    edges = {frozenset((place, other)) for place in range(30) for other in graph.around(place)}
    assert len(edges) == 60
    assert len(list(itertools.chain(*edges))) == 120


@pytest.mark.parametrize("place", [0, 255, 256, 4990, 8191, 8192, 9983, 9999])
def test_a_stretch_of_the_list_leads_to_the_root_whatever_lies_between(place):
    """One leaf, two with a common parent or without, three across the end of the circle."""
    graph = harary_graph(10_000, 76, bytes(32))
    surviving = np.random.default_rng(5).random(10_000) < 0.95
    tree = SurvivorTree(surviving)
    leaves = leaves_near(graph, int(graph.order[place]))
    data = tree.shown(leaves)
    shown = read_shown(data, leaves, 10_000)
    assert shown.root == tree.root
    assert len(data) == shown_size(leaves, 10_000)
    near = (place + np.arange(-38, 39)) % 10_000
    assert np.array_equal(shown.bits[near], surviving[near])
    for at in range(0, len(data), 7):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            assert read_shown(changed, leaves, 10_000).root != tree.root
        except DecodingError:
            continue


@pytest.mark.parametrize("make", [people, on_a_circle])
@pytest.mark.parametrize("server", ["semi-honest", "malicious"])
def test_the_most_bytes_are_those_of_a_round_where_all_are_there(make, server):
    population = make(server=server)
    batch = Batch((Table((0, 1)),), population.terms.sizes)
    population.ask(batch)
    most = most_traffic(population.terms.parameters, batch)
    assert (population.cost.sent.max(), population.cost.received.max()) == most


def test_ten_thousand_users_stay_within_their_bytes():
    sent, received = most_traffic(Parameters.of(10_000), Batch((Table((0,)),), (1000,)))
    assert sent < 16_000
    assert received < 24_000
