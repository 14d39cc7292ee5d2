"""Three vertical parties and a helper in one process, every message as bytes."""

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.data.example_networks import eleven_nodes
from masquerade.protocols.vertical.scalar_products import HelpedProducts, ProductHelper, ProductParty
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.products import RevealedVerticalCounts

SCHEMA = eleven_nodes().schema
FRAME = eleven_nodes().sample(1500, seed=21)
CLEAR = mq.tally(FRAME, schema=SCHEMA)
N = len(FRAME)
OWNERS = {"x": ["A", "T", "E"], "y": ["S", "L", "B", "D"], "z": ["X", "C", "F", "G"]}


class Carrier(LocalTransport):
    """A transport that keeps what it carries."""

    def __init__(self, parties):
        super().__init__(parties)
        self.seen = []

    def exchange(self, party, message):
        reply = super().exchange(party, message)
        self.seen.append((party, message, reply))
        return reply


def roles(owners=OWNERS, codes=CLEAR.codes, schema=SCHEMA, identities=None, **options):
    """Return parties and helper, each knowing the others' identities; `options` by party."""
    identities = identities or {name: SigningKey() for name in (*owners, "helper")}
    public = {name: identity.public for name, identity in identities.items()}
    shared = {"schema": schema, "owners": owners}
    found = {
        name: ProductParty(
            name,
            {variable: codes[variable] for variable in names},
            identities[name],
            public,
            **{"helper": "helper", **shared, **options.get(name, {})},
        )
        for name, names in owners.items()
    }
    n = len(next(iter(codes.values())))
    return {**found, "helper": ProductHelper("helper", identities["helper"], public, n=n, **shared)}


def session(parties, owners=OWNERS, schema=SCHEMA, n=N, **options):
    """Return products over a transport that keeps everything."""
    carrier = Carrier({name: role.receive for name, role in parties.items()})
    return HelpedProducts(owners, "helper", carrier, schema, n, **options), carrier


def counts(**options):
    """Return exact counts over the parties."""
    return RevealedVerticalCounts(session(roles(**options))[0])
