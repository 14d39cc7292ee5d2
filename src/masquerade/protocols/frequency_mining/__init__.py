"""Frequency mining (Yang, Zhong and Wright): counts over people who each hold one record, by cryptography.

This is the protocol as published, with what it needs against people who cheat. A round asks a batch of
questions:

1. every `User` posts fresh keys for every frequency, with proofs that they are known;
2. every user checks the keys of all others, and signs the roster of all keys;
3. when all have signed the same roster, every user sends masked bits with a proof that they are valid;
4. the miner (`Round`, `sources.frequency`) adds them up: the masks cancel, and the counts remain.

Who learns what. The miner learns every count asked for, exactly, and nothing else while two users of every
roster are honest: it chooses who is counted, so at most two fewer than the smallest roster may collude with
it. Users learn who takes part and what is asked. Nobody can change a count by more than their own record, and
whoever tries is named. One user who stays away stops the round: for dropouts there is secure aggregation.

The text of the paper was not at hand: this follows Wright's talk of 2005, and the repairs are ours.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
