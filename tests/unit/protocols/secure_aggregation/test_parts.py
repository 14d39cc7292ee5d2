"""The small parts: graph, tree of survivors, batches, masks, messages."""

import itertools
import os

import numpy as np
import pytest
from tests.unit.protocols.secure_aggregation.people import on_a_circle, people, where

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation import masks
from masquerade.protocols.secure_aggregation.agreement import Parameters, QuestionBatch
from masquerade.protocols.secure_aggregation.circle import (
    SurvivorTree,
    complete_graph,
    count_of,
    harary_graph,
    leaves_near,
    read_shown,
)
from masquerade.protocols.secure_aggregation.message_sizes import most_traffic
from masquerade.protocols.secure_aggregation.messages import (
    KINDS,
    Announcement,
    Endorsement,
    Stretch,
    kind_of,
)

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
    assert one.order != other.order
    assert sorted(one.order) == list(range(500))


@pytest.mark.parametrize(("users", "width"), [(255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_the_ring_is_the_narrowest_that_holds_the_sum(users, width):
    assert masks.ring(users) == width


def test_sums_wrap_in_the_ring_only():
    for width, length in [(1, 51), (1, 1), (2, 50), (4, 7), (8, 3), (2, 0)]:
        vectors = [masks.mask(os.urandom(32), length, width) for _ in range(1200)]
        numbers = np.array([np.frombuffer(one, dtype=f"<u{width}") for one in vectors], dtype=np.uint64)
        expected = numbers[:700].sum(axis=0) - numbers[700:].sum(axis=0)  # modulo 2^64, so modulo any ring
        found = np.frombuffer(masks.total(vectors[:700], vectors[700:], length, width), dtype=f"<u{width}")
        assert np.array_equal(found, expected.astype(f"<u{width}"))
    with pytest.raises(InputError, match="64 bits"):
        masks.ring(2**63, 4)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.users} users")
def test_every_user_reads_the_same_root_and_its_own_stretch(graph):
    alive = np.random.default_rng(5).random(graph.users) < 0.9
    tree = SurvivorTree(alive)
    for place in range(graph.users):
        leaves = leaves_near(graph, place)
        shown = read_shown(tree.show_leaves(leaves), leaves, graph.users)
        assert shown.root == tree.root
        assert count_of(shown.root) == alive.sum()
        for position in [graph.position[one] for one in (place, *graph.around(place))]:
            assert shown.bits[position] == alive[position]


def changes(stretch):
    """Yield a stretch with single bits changed."""
    cut = len(stretch.leaves)
    parts = [*stretch.leaves, *stretch.nodes]
    for i, part in enumerate(parts):
        for at in range(0, len(part), 7):
            other = part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]
            changed = (*parts[:i], other, *parts[i + 1 :])
            yield Stretch(changed[:cut], changed[cut:])


def test_a_changed_list_has_another_root():
    graph = GRAPHS[2]
    alive = np.ones(graph.users, dtype=bool)
    tree, leaves = SurvivorTree(alive), leaves_near(graph, 3)
    for changed in changes(tree.show_leaves(leaves)):
        try:
            shown = read_shown(changed, leaves, graph.users)
        except DecodingError:
            continue
        assert shown.root != tree.root


def test_a_list_with_users_that_do_not_exist_is_refused():
    alive = np.ones(256, dtype=bool)
    with pytest.raises(DecodingError, match="do not exist"):
        read_shown(SurvivorTree(alive).show_leaves([0]), [0], 200)


SIZES = {"a": 2, "b": 3, "c": 4}


def test_a_vote_is_one_in_every_table_it_belongs_to():
    listed = (Question(("a", "c")), Question(("b",), (("a", 1),)), Question(("b",), (("a", 0),)))
    batch = QuestionBatch(listed, SIZES)
    vote = batch.vote({"a": 1, "b": 2, "c": 3}, 8)
    found = batch.tables(np.frombuffer(vote, dtype="<i8"))
    assert np.argwhere(found[listed[0]]).tolist() == [[1, 3]]
    assert found[listed[1]].tolist() == [0, 0, 1]
    assert found[listed[2]].tolist() == [0, 0, 0]


def test_batches_beyond_the_limit_without_questions_or_with_one_twice_are_refused():
    with pytest.raises(InputError, match="at most 65,536 counts"):
        QuestionBatch((Question(("a", "b")),), {"a": 300, "b": 300})
    for listed in ((), (Question(("a",)), Question(("a",)))):
        with pytest.raises(InputError, match="at least one question, and none twice"):
            QuestionBatch(listed, SIZES)


def test_what_is_asked_has_another_name_if_anything_differs():
    batches = [
        QuestionBatch(listed, SIZES)
        for listed in (
            (Question(("a",)),),
            (Question(("b",)),),
            (Question(("a",)), Question(("b",))),
            (Question(("b",)), Question(("a",))),
            (Question((), (("a", 0),)),),
            (Question((), (("a", 1),)),),
        )
    ]
    assert len({batch.hash for batch in batches}) == len(batches)


@pytest.mark.parametrize(
    "questions",
    [
        [Question(("b", "a"))],
        [Question(("a", "a"))],
        [Question(("a",), (("a", 1),))],
        [Question(("a",), (("b", 3),))],
        [Question(("a",)), Question(("a",))],
        [],
    ],
    ids=["unordered", "twice", "condition on itself", "unknown code", "asked twice", "nothing"],
)
def test_a_user_reads_announcements_strictly(questions):
    population = people(5, minimum=3, dropouts=0)
    terms = population.terms
    said = Announcement(bytes(8), bytes(16), 1, tuple(questions)).encode(terms)
    with pytest.raises(DecodingError):
        population.users[0].receive(said)


def test_kinds_that_do_not_exist_are_refused():
    for message in (b"", bytes(8), bytes([99]) + bytes(8), b"\0\0\0\4what"):
        with pytest.raises(DecodingError):
            kind_of(message)
    assert [kind_of(len(tag).to_bytes(4, "big") + tag) for tag in KINDS] == list(KINDS.values())


def test_witnesses_are_drawn_with_the_graph():
    one, other = harary_graph(500, 10, bytes(32)), harary_graph(500, 10, bytes([1] * 32))
    assert len(set(one.witnesses(45))) == 45
    assert one.witnesses(45) != other.witnesses(45)
    assert one.witnesses(45) != tuple(one.order[:45])  # nor are they neighbours of each other
    assert complete_graph(9).witnesses(9) == tuple(range(9))


def test_every_pair_is_joined_on_the_circle():
    graph = harary_graph(30, 4, bytes(32))
    edges = {frozenset((place, other)) for place in range(30) for other in graph.around(place)}
    assert len(edges) == 60
    assert len(list(itertools.chain(*edges))) == 120


@pytest.mark.parametrize("place", [0, 255, 256, 4990, 8191, 8192, 9983, 9999])
def test_a_stretch_of_the_list_leads_to_the_root_whatever_lies_between(place):
    """One leaf, two with a common parent or without, three across the end of the circle."""
    graph = harary_graph(10_000, 86, bytes(32))
    surviving = np.random.default_rng(5).random(10_000) < 0.95
    tree = SurvivorTree(surviving)
    leaves = leaves_near(graph, int(graph.order[place]))
    stretch = tree.show_leaves(leaves)
    shown = read_shown(stretch, leaves, 10_000)
    assert shown.root == tree.root
    near = (place + np.arange(-43, 44)) % 10_000
    assert np.array_equal(np.array(shown.bits)[near], surviving[near])
    for changed in changes(stretch):
        try:
            assert read_shown(changed, leaves, 10_000).root != tree.root
        except DecodingError:
            continue
    for wrong in (Stretch(stretch.leaves[1:], stretch.nodes), Stretch(stretch.leaves, stretch.nodes[1:])):
        with pytest.raises(DecodingError, match="leaves and"):
            read_shown(wrong, leaves, 10_000)


@pytest.mark.parametrize("make", [people, on_a_circle])
@pytest.mark.parametrize("server", ["semi-honest", "malicious"])
def test_the_most_bytes_are_those_of_a_round_where_all_are_there(make, server):
    population = make(server=server)
    batch = QuestionBatch((Question(("a", "b")),), population.terms.sizes)
    population.ask(batch)
    most = most_traffic(population.terms.parameters, batch)
    assert population.meter.received.max() == most.received
    # who is on the committee is a witness by chance, too
    endorsement = where(Endorsement) if server == "malicious" else 0
    assert most.sent - endorsement <= population.meter.sent.max() <= most.sent


def test_ten_thousand_users_stay_within_their_bytes():
    sent, received = most_traffic(Parameters.of(10_000), QuestionBatch((Question(("a",)),), {"a": 1000}))
    assert sent < 16_000
    assert received < 24_000
