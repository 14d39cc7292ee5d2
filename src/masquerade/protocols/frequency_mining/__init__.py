"""Frequency mining (Yang, Zhong and Wright): counts over people who each hold one record, by cryptography.

This is the protocol as published, with the proofs that it needs against cheating users. A round asks a batch
of questions:

1. every `User` posts fresh keys for every frequency, with proofs that they are known;
2. every user checks the keys of all others, and signs the roster of all keys;
3. when all have signed the same roster, every user sends masked bits with a proof that they are valid;
4. the miner (`Round`, `sources.frequency`) adds them up: the masks cancel, and the counts remain.

Disclosures. The miner learns every requested count exactly, and nothing else as long as two users of every
roster are honest. The miner chooses who is counted, so at most two users fewer than the smallest roster may
collude with it. Users learn who participates, and the questions. No user can change a count by more than its
own record, and a user who tries is named. A single missing user stops the round; secure aggregation tolerates
dropouts.

The text of the paper was not at hand: this follows Wright's talk of 2005, and the repairs are additions.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
