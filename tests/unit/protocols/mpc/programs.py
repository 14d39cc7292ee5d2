"""Parties in one process that run the same program on shares."""

import os

from masquerade.protocols.mpc.dealer import Dealer, local_keys
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Cost, run


class Watched:
    """A dealer, and everything that passed while it dealt."""

    def __init__(self, parties, records=1000):
        keys = local_keys({party: os.urandom(32) for party in parties})
        self.dealer = Dealer(parties, keys)
        self.engines = {
            party: HelpedEngine(
                party, parties, lambda purpose, number, party=party: keys(party, purpose, number), records
            )
            for party in parties
        }
        self.cost = Cost()
        self.shown = []

    def run(self, program):
        """Run a program, a function of an engine, by everybody."""
        return run(
            {name: self._seen(program(engine)) for name, engine in self.engines.items()},
            self.dealer,
            self.cost,
        )

    def _seen(self, steps):
        reply = None
        while True:
            try:
                step = next(steps) if reply is None else steps.send(reply)
            except StopIteration as end:
                return end.value
            self.shown.append(step.words)
            reply = yield step


def own(engine, owner, values):
    """Share what an owner knows."""
    return engine.share(owner, values if engine.name == owner else None, values.shape)
