"""Arbitrary partitions, and everything that a miner or a learning site must refuse."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.protocols.vertical.sites import (
    NETWORK,
    POLICIES,
    SESSION,
    SHARED,
    SITES,
    batches,
    block,
    carried,
    learner,
    opened,
    pseudonyms,
    seeded_sites,
)

import masquerade as mq
from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyError, PolicyMismatch, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes_policy
from masquerade.protocols.vertical.disguised_cells import (
    BlockShape,
    CellDescription,
    CellRequest,
    DescriptionRequest,
    DisguisedCells,
    Site,
    assemble_parts,
    combine_policies,
    cross_parents,
    restrict_to_variables,
)
from masquerade.protocols.wire.arrow_stream import pack
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.joined import JoiningMiner

AGREED = {party: policy.id for party, policy in POLICIES.items()}
N = 60
PEOPLE = NETWORK.sample(N, seed=12)
TAGS = pseudonyms(N)


def scattered():
    """Return blocks of cells: any cell at any party, every cell once."""
    first, last = PEOPLE.iloc[:20], PEOPLE.iloc[20:]
    return {
        "u": [block(first[list("ASTLB")], TAGS[:20]), block(last[list("EXD")], TAGS[20:])],
        "v": [block(last[list("ASTLB")].iloc[::-1], TAGS[20:][::-1])],
        "w": [block(first[list("EXD")], TAGS[:20]), block(PEOPLE[list("CFG")], TAGS)],
    }


def mined(blocks, policy=SHARED):
    sites = {party: Site(party, policy, held, SESSION) for party, held in blocks.items()}
    return JoiningMiner(dict.fromkeys(sites, policy.id), SESSION).records(carried(sites))


def test_any_cell_may_be_at_any_party():
    source = mined(scattered())
    assert source.n == N
    assert source.policy.id == SHARED.id
    query = mq.Query(by=("S", "T", "G"))  # not disguised: their table shows whether rows were merged rightly
    expected = mq.tally(PEOPLE, schema=NETWORK.schema).answer([query])[0].values
    assert np.array_equal(source.answer([query])[0].values, expected)


def test_double_and_missing_cells_are_refused():
    double = scattered()
    double["v"].append(block(PEOPLE[["G"]].iloc[:1], TAGS[:1]))
    with pytest.raises(InputError, match="61 cells of 'G', and 60 of"):
        mined(double)
    double["w"][1] = block(PEOPLE[list("CFG")].iloc[1:], TAGS[1:])
    double["v"][1:] = [
        block(PEOPLE[list("CF")].iloc[:1], TAGS[:1]),
        block(PEOPLE[["G"]].iloc[1:2], TAGS[1:2]),
    ]
    with pytest.raises(InputError, match="'G' came twice"):
        mined(double)
    missing = scattered()
    missing["u"] = missing["u"][:1]
    with pytest.raises(InputError, match="every record needs every cell"):
        mined(missing)
    missing["w"] = missing["w"][1:]
    with pytest.raises(InputError, match="No party sent 'E'"):
        mined(missing)
    stranger = scattered()
    stranger["w"][1] = block(PEOPLE[list("CFG")], [*TAGS[:-1], bytes(16)])
    with pytest.raises(InputError, match="every record needs every cell"):
        mined(stranger)


def test_cells_of_variables_disguised_together_stay_together():
    policy = Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": {"categories": [0, 1]},
                "b": {"categories": [0, 1]},
                "c": {"categories": [0, 1]},
            },
            "joint": [{"variables": ["a", "b"], "channel": {"kind": "symmetric", "p": "0.3"}}],
        }
    )
    frame = pd.DataFrame({"a": [0, 1], "b": [1, 1], "c": [0, 0]})
    with pytest.raises(InputError, match="a, b are disguised together"):
        Site("u", policy, [block(frame[["a"]], TAGS[:2], policy)], SESSION)
    whole = Site("u", policy, [block(frame, TAGS[:2], policy)], SESSION)
    (batch,) = batches(whole, ("a",))
    assert batch.schema.names == ["pseudonym", "a", "b"]
    described = CellDescription.decode(whole.receive(DescriptionRequest(SESSION, "v", ("a",)).encode()))
    assert described.policy.group("a").channel.gamma == policy.group("a").channel.gamma


def test_another_policy_is_refused_by_its_id():
    sites, _ = seeded_sites(30, seed=1)
    wrong = {**AGREED, "y": POLICIES["x"].id}
    with pytest.raises(PolicyMismatch, match="Party 'y' disguised under policy"):
        JoiningMiner(wrong, SESSION).records(carried(sites))
    weaker = restrict_to_variables(eleven_nodes_policy().without_channels(), SITES["y"])
    deceived = learner(sites, "z")
    deceived.policies["y"] = weaker
    with pytest.raises(PolicyMismatch, match="Party 'y'"):
        deceived.source(carried(sites), ELEVEN_NODES)


def test_a_variable_at_two_parties_needs_one_channel():
    clear = restrict_to_variables(eleven_nodes_policy().without_channels(), ("A",))
    with pytest.raises(PolicyError, match="two parties have 'A'"):
        combine_policies([POLICIES["x"], clear])
    other = Policy.clear(mq.Schema({"A": ["no", "yes"]}))
    with pytest.raises(PolicyError, match="two parties have 'A'"):
        combine_policies([clear, other])
    with pytest.raises(InputError, match="held by two parties"):
        cross_parents(ELEVEN_NODES, {**SITES, "u": ("A",)})
    with pytest.raises(InputError, match="No party holds 'B'"):
        cross_parents({"D": ("B",)}, {"u": ("D",)})


def strata():
    return Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "s": {"categories": ["a", "b"]},
                "v": {"categories": [0, 1], "channel": {"kind": "binary", "p": "0.2"}},
            },
            "strata": {"by": "s", "channels": {"a": {"v": {"kind": "binary", "p": "0.1"}}}},
        }
    )


def test_strata_are_refused():
    with pytest.raises(PolicyError, match="strata"):
        combine_policies([strata()])
    with pytest.raises(InputError, match="strata"):
        Site("u", strata(), [], SESSION)


class Changing(LocalTransport):
    """A party, or whoever carries its messages, that changes those of one kind."""

    def __init__(self, sites, kind, change):
        super().__init__({party: place.receive for party, place in sites.items()})
        self.kind, self.change, self.described = kind, change, sites["y"].describe()

    def exchange(self, party, message):
        reply = super().exchange(party, message)
        if party != "y" or tag_of(reply) != self.kind.TAG:
            return reply
        message = self.kind.decode(reply)
        return self.change(message, self.described) if self.kind is DisguisedCells else self.change(message)


def rebuilt(message, **changes):
    return replace(message, **changes).encode()


def repacked(change):
    """Return a change of the one batch in a message."""

    def changed(cells, described):
        (batch,) = opened(cells, described)
        return rebuilt(cells, blocks=(pack(change(batch)),))

    return changed


def with_column(batch, name, values):
    place = batch.schema.names.index(name)
    return batch.set_column(
        place, batch.schema.field(place), pa.array(values, batch.schema.field(place).type)
    )


def first_twice(batch):
    return batch.take(pa.array([0, 0, *range(2, len(batch))]))


CHANGES = {
    "another session": (
        DisguisedCells,
        lambda c, _: rebuilt(c, session=bytes(16)),
        InputError,
        "another session",
    ),
    "another party": (
        DisguisedCells,
        lambda c, _: rebuilt(c, party="x"),
        InputError,
        "another session, party",
    ),
    "another part": (DisguisedCells, lambda c, _: rebuilt(c, part=1), InputError, "party or part"),
    "other parts": (DisguisedCells, lambda c, _: rebuilt(c, parts=2), InputError, "party or part"),
    "another policy": (
        DisguisedCells,
        lambda c, _: rebuilt(c, policy_id="0" * 64),
        PolicyMismatch,
        "'y' disguised",
    ),
    "a block twice": (
        DisguisedCells,
        lambda c, _: rebuilt(c, blocks=c.blocks * 2),
        InputError,
        "blocks that differ",
    ),
    "a column less": (
        DisguisedCells,
        repacked(lambda batch: batch.select(batch.schema.names[:-1])),
        RoundAborted,
        "unexpected columns|unexpected number of columns",
    ),
    "columns in another order": (
        DisguisedCells,
        repacked(lambda batch: batch.select([*batch.schema.names[:-2], *batch.schema.names[:-3:-1]])),
        RoundAborted,
        "lacks column",
    ),
    "a code that is no report": (
        DisguisedCells,
        repacked(lambda batch: with_column(batch, "S", [9] * len(batch))),
        InputError,
        "not a report",
    ),
    "a record less": (
        DisguisedCells,
        repacked(lambda batch: batch.slice(1)),
        InputError,
        "every record needs",
    ),
    "a record twice": (DisguisedCells, repacked(first_twice), InputError, "not sorted, or repeated"),
    "records out of order": (
        DisguisedCells,
        repacked(lambda batch: batch.take(pa.array(range(len(batch))[::-1]))),
        InputError,
        "not sorted",
    ),
    "more records than announced": (
        DisguisedCells,
        repacked(lambda batch: pa.concat_batches([batch, batch])),
        RoundAborted,
        "at most 30 rows",
    ),
    "a truncated block": (
        DisguisedCells,
        lambda c, _: rebuilt(c, blocks=(c.blocks[0][:-1],)),
        RoundAborted,
        "'y' sent a block that cannot be read",
    ),
    "a truncated message": (DisguisedCells, lambda c, _: c.encode()[:-1], RoundAborted, "cannot be read"),
    "a longer message": (DisguisedCells, lambda c, _: c.encode() + b"\0", RoundAborted, "cannot be read"),
    "no policy": (
        CellDescription,
        lambda d: d.encode().replace(b'"masquerade":1', b'"masquerade":2'),
        RoundAborted,
        "cannot be read",
    ),
    "described for another session": (
        CellDescription,
        lambda d: rebuilt(d, session=bytes(16)),
        InputError,
        "another session",
    ),
    "described by another party": (CellDescription, lambda d: rebuilt(d, party="x"), InputError, "or party"),
    "fewer rows described": (
        CellDescription,
        lambda d: rebuilt(d, shapes=(BlockShape(d.shapes[0].names, 29),)),
        InputError,
        "29 cells of",
    ),
    "a variable twice": (
        CellDescription,
        lambda d: rebuilt(d, shapes=(BlockShape((*d.shapes[0].names, "S"), 30),)),
        InputError,
        "with one twice",
    ),
    "an unknown variable": (
        CellDescription,
        lambda d: rebuilt(d, shapes=(BlockShape(("?",), 30),)),
        InputError,
        r"no variable '\?'",
    ),
    "a missing variable": (
        CellDescription,
        lambda d: rebuilt(d, shapes=(BlockShape(d.shapes[0].names[1:], 30),)),
        InputError,
        "No party sent 'S'",
    ),
    "nothing": (CellDescription, lambda d: rebuilt(d, shapes=()), InputError, "No party sent 'S'"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changed_cells_are_refused_and_the_session_can_go_on(what):
    kind, change, error, words = CHANGES[what]
    sites, _ = seeded_sites(30, seed=1)
    miner = JoiningMiner(AGREED, SESSION)
    with pytest.raises(error, match=words):
        miner.records(Changing(sites, kind, change))
    assert miner.records(carried(sites)).n == 30  # nothing was changed, and nothing is drawn anew


def test_a_miner_joins_once_and_forgets():
    sites, _ = seeded_sites(30, seed=1)
    miner = JoiningMiner(AGREED, SESSION)
    source = miner.records(carried(sites))
    tags = {bytes(tag) for tag in sites["x"].cells[0].tags}
    kept = [value for value in vars(miner).values() if isinstance(value, (bytes, np.ndarray, list))]
    assert kept == [SESSION]
    assert not any(bytes(value)[:16] in tags for value in vars(source).values() if isinstance(value, bytes))
    with pytest.raises(InputError, match="pseudonyms deleted"):
        miner.records(carried(sites))


def test_joined_rows_keep_no_order():
    """Ninety records joined twice: in the same order with probability 1/90!, up to equal rows."""
    sites, _ = seeded_sites(90, seed=3)
    first, second = (JoiningMiner(AGREED, SESSION).records(carried(sites)).codes for _ in range(2))
    rows = [np.stack([codes[name] for name in ELEVEN_NODES]) for codes in (first, second)]
    assert not np.array_equal(*rows)
    assert np.array_equal(*(found[:, np.lexsort(found)] for found in rows))


def test_sites_refuse_nonsense():
    sites, _ = seeded_sites(10, seed=1)
    place = sites["x"]
    with pytest.raises(InputError, match="another session"):
        place.receive(CellRequest(bytes(16), "miner", (), 0, 1).encode())
    with pytest.raises(InputError, match="another session"):
        place.receive(DescriptionRequest(bytes(16), "miner", ()).encode())
    for part, parts in ((1, 1), (0, 0), (5, 3)):
        with pytest.raises(InputError, match=f"There are {parts} parts"):
            place.receive(CellRequest(SESSION, "miner", (), part, parts).encode())
    with pytest.raises(InputError, match="no variable 'B'"):
        place.receive(CellRequest(SESSION, "miner", ("B",), 0, 1).encode())
    with pytest.raises(InputError, match="no variable 'B'"):
        place.receive(DescriptionRequest(SESSION, "miner", ("B",)).encode())
    for data in (b"", b"\1" * 50):
        with pytest.raises(DecodingError):
            place.receive(data)
    assert place.released == {}
    with pytest.raises(InputError, match="as many pseudonyms"):
        Site("u", SHARED, [block(PEOPLE, TAGS[:-1])], SESSION)
    with pytest.raises(InputError, match="has 16 bytes"):
        Site("u", SHARED, [block(PEOPLE, [b"short"] * N)], SESSION)
    twice = Site("u", SHARED, [block(PEOPLE, [*TAGS[:-1], TAGS[0]])], SESSION)
    with pytest.raises(InputError, match="occurs in two rows"):
        twice.receive(CellRequest(SESSION, "miner", (), 0, 1).encode())
    with pytest.raises(InputError, match="at least one party"):
        JoiningMiner({}, SESSION)


def test_everybody_speaks_for_its_own_nodes():
    with pytest.raises(InputError, match="returned nothing"):
        assemble_parts({}, SITES)
