"""The eleven-node network over three sites, in one process, every message as bytes."""

import os
import warnings

import numpy as np

import masquerade as mq
from masquerade.core.errors import MasqueradeWarning
from masquerade.crypto.symmetric import Keystream
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.disguising.report_draws import fresh_draws
from masquerade.disguising.seeded import seeded_bytes
from masquerade.frames.label_codes import encode
from masquerade.frames.native import columns_of
from masquerade.protocols.vertical.disguised_cells import (
    CellRequest,
    ClearCells,
    DisguisedCells,
    Site,
    assemble_parts,
    own_families,
    restrict_to_variables,
    schema_of,
)
from masquerade.protocols.wire.arrow_stream import unpack
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.joined import JoiningMiner, LearningSite
from masquerade_experiments.ma_sivakumar_2005.parameters import SITES as SPLIT

NETWORK = eleven_nodes()
SITES = dict(zip(("x", "y", "z"), SPLIT, strict=True))
POLICIES = {party: restrict_to_variables(eleven_nodes_policy(), names) for party, names in SITES.items()}
SESSION = bytes(range(16))
SHARED = eleven_nodes_policy()


def pseudonyms(n):
    """Return what linking would give."""
    return [os.urandom(16) for _ in range(n)]


def tags_of(listed):
    """Return pseudonyms as an array, a row for each."""
    return np.frombuffer(b"".join(listed), dtype=np.uint8).reshape(len(listed), -1)


def block(frame, listed, policy=SHARED, draws=None):
    """Return the clear cells of a frame."""
    columns = columns_of(frame)
    fields = [field for field in policy.fields if field.variable.name in columns]
    codes = {field.variable.name: encode(columns[field.variable.name], field) for field in fields}
    return ClearCells(codes, tags_of(listed), draws or fresh_draws(Keystream()))


def seeded_sites(n, seed):
    """Return sites whose draws repeat, the second with its rows in another order."""
    codes = NETWORK.sample_codes(n, seed)
    tags = tags_of(pseudonyms(n))
    generator = np.random.default_rng(seed)
    found = {}
    for party, names in SITES.items():
        order = generator.permutation(n)
        own = {name: np.asarray(codes[name], dtype=np.uint8)[order] for name in names}
        held = ClearCells(own, tags[order], fresh_draws(seeded_bytes(generator)))
        found[party] = Site(party, POLICIES[party], [held], SESSION)
    return found, codes


def carried(sites):
    """Return a transport to the sites."""
    return LocalTransport({party: site.receive for party, site in sites.items()})


def batches(place, names=(), *, recipient="miner", part=0, parts=1):
    """Return the blocks that a site sends, as Arrow batches."""
    described = place.describe(names)
    message = place.receive(CellRequest(place.session, recipient, tuple(names), part, parts).encode())
    return opened(DisguisedCells.decode(message), described)


def opened(cells, described):
    """Return the Arrow batches of a message."""
    return [
        unpack(
            block, most_bytes=1 << 20, most_rows=shape.rows, schema=schema_of(shape.names, described.policy)
        )
        for block, shape in zip(cells.blocks, described.shapes, strict=True)
    ]


def learnt(source, structure):
    """Return parameters; rows without records warn, and experiments with little data have some."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)
        return mq.learn.bayesian_network(source, structure)


def model_two(sites):
    """Return what a miner learns."""
    agreed = {party: policy.id for party, policy in POLICIES.items()}
    return learnt(JoiningMiner(agreed, SESSION).records(carried(sites)), ELEVEN_NODES)


def learner(sites, party):
    """Return a site that learns its own nodes."""
    return LearningSite(sites[party], {other: p for other, p in POLICIES.items() if other != party})


def model_one(sites):
    """Return what the parties learn, each its own nodes."""
    found = {}
    for party, own in SITES.items():
        network = learnt(
            learner(sites, party).source(carried(sites), ELEVEN_NODES), own_families(ELEVEN_NODES, own)
        )
        found[party] = {node: network[node] for node in own}
    return assemble_parts(found, SITES)


def mean_error(tables):
    """Return the mean absolute error of all parameters."""
    errors = [np.abs(tables[n].probabilities - NETWORK[n].probabilities).ravel() for n in ELEVEN_NODES]
    return float(np.concatenate(errors).mean())
