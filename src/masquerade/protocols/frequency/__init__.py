"""Frequency mining (Yang, Zhong and Wright): counts over people who each hold one record, by cryptography.

This is the protocol as published, with what it needs against people who cheat. A round asks a batch of
questions:

1. every `User` posts fresh keys for every frequency, with proofs that they are known;
2. every user checks the keys of all others, and signs the roster of all keys;
3. when all have signed the same roster, every user sends masked bits with a proof that they are valid;
4. the miner (`Round`, `FrequencyTally`) adds them up: the masks cancel, and the counts remain.

Who learns what. The miner learns every count asked for, exactly, and nothing else while at least two users
are honest. Users learn who takes part and what is asked. Nobody can change a count by more than their own
record, and whoever tries is named. One user who stays away stops the round: for dropouts there is secure
aggregation.

The text of the paper was not at hand: this follows Wright's talk of 2005, and the repairs are ours.
"""

from masquerade.protocols.frequency.miner import Round
from masquerade.protocols.frequency.population import Population
from masquerade.protocols.frequency.roster import RosterChecks
from masquerade.protocols.frequency.tally import FrequencyTally
from masquerade.protocols.frequency.terms import MOST_PROOFS, Question, Terms
from masquerade.protocols.frequency.user import User
from masquerade.protocols.ledger import FileLedger, Ledger, MemoryLedger

__all__ = [
    "MOST_PROOFS",
    "FileLedger",
    "FrequencyTally",
    "Ledger",
    "MemoryLedger",
    "Population",
    "Question",
    "RosterChecks",
    "Round",
    "Terms",
    "User",
]
