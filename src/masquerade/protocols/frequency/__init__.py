"""Frequency mining (Yang, Zhong and Wright): counts over people who each hold one record, by cryptography.

This is the protocol as published, with what it needs against people who cheat. A round asks a batch of
questions:

1. every `User` posts fresh keys for every frequency, with proofs that they are known;
2. every user checks the keys of all others, and signs the roster of all keys;
3. when all have signed the same roster, every user sends masked bits with a proof that they are valid;
4. the miner (`Round`, `FrequencyTally`) adds them up: the masks cancel, and the counts remain.

Who learns what. The miner learns every count asked for, exactly, and nothing else while two users of every
roster are honest: it chooses who is counted, so at most two fewer than the smallest roster may collude with
it. Users learn who takes part and what is asked. Nobody can change a count by more than their own record, and
whoever tries is named. One user who stays away stops the round: for dropouts there is secure aggregation.

The text of the paper was not at hand: this follows Wright's talk of 2005, and the repairs are ours.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from masquerade.protocols.frequency.agreement import MOST_PROOFS, Terms
    from masquerade.protocols.frequency.key_checks import RosterChecks
    from masquerade.protocols.frequency.miner import Round
    from masquerade.protocols.frequency.user import User
    from masquerade.protocols.people.ledger import FileLedger, Ledger, MemoryLedger
    from masquerade.protocols.people.questions import Question

# loaded when first used: a process that checks proofs needs none of it
_HOME = {
    "MOST_PROOFS": "frequency.agreement",
    "FileLedger": "people.ledger",
    "Ledger": "people.ledger",
    "MemoryLedger": "people.ledger",
    "Question": "people.questions",
    "RosterChecks": "frequency.key_checks",
    "Round": "frequency.miner",
    "Terms": "frequency.agreement",
    "User": "frequency.user",
}

__all__ = [
    "MOST_PROOFS",
    "FileLedger",
    "Ledger",
    "MemoryLedger",
    "Question",
    "RosterChecks",
    "Round",
    "Terms",
    "User",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"masquerade.protocols.{_HOME[name]}"), name)
