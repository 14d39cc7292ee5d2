"""A small mix: two leaders, some respondents, and boards made by hand where a test wants to change them."""

from __future__ import annotations

from masquerade.crypto.keys import SigningKey
from masquerade.protocols.mixnet.messages import MixBoard, MixTerms, SignedMixMessage
from masquerade.protocols.mixnet.roles import Leader, MixMiner, Respondent


class Mix:
    def __init__(self, n=4, *, leaders=2, width=1, minimum=3, session="s", identities=None):
        self.identities = identities or {
            "miner": SigningKey(),
            **{f"leader {i}": SigningKey() for i in range(leaders)},
            **{f"r{i}": SigningKey() for i in range(n)},
        }
        public = {name: key.public for name, key in self.identities.items()}
        self.terms = MixTerms(
            session,
            public["miner"],
            {name: key for name, key in public.items() if name.startswith("leader")},
            {name: key for name, key in public.items() if name.startswith("r")},
            width=width,
            minimum=minimum,
        )
        self.miner = MixMiner(self.identities["miner"], self.terms)
        self.leaders = [Leader(name, self.identities[name], self.terms) for name in self.terms.leaders]
        self.people = [Respondent(name, self.identities[name], self.terms) for name in self.terms.respondents]
        self.shares = [holder.share() for holder in (self.miner, *self.leaders)]
        self.keys = self.miner.key_board(self.shares)
        for leader in self.leaders:
            leader.take_key(self.keys)

    def signed(self, sender, kind, payload) -> bytes:
        """Return what a party that does not follow the protocol sends: signed all the same."""
        return SignedMixMessage.make(self.terms, self.identities[sender], kind, sender, payload).encode()

    def submissions(self, records=None):
        records = records or [f"record {i}".encode() for i in range(len(self.people))]
        return [person.submit(self.keys, record) for person, record in zip(self.people, records, strict=True)]

    def shuffled(self, batch):
        shuffles = []
        for leader in self.leaders:
            shuffles.append(leader.shuffle(batch, self.miner.shuffle_board(shuffles)))
        return MixBoard(tuple(shuffles)).encode()

    def mixed(self, batch):
        """Return the board of shuffles and that of their endorsements."""
        board = self.shuffled(batch)
        return board, self.miner.endorsement_board([leader.endorse(batch, board) for leader in self.leaders])
