"""Frequency mining (Yang, Zhong and Wright): counts over people who each hold one record, by cryptography.

This is the protocol of the paper, as described in Wright's talk of 2005, with additional proofs against
cheating users. A round asks a batch of questions:

1. every `MiningUser` posts fresh keys for every frequency, with a proof that the user knows them;
2. every user checks the keys of all others, and signs the roster of all keys;
3. when all have signed the same roster, every user sends masked bits with a proof that they are valid;
4. the miner (`MiningRound`, `sources.people.frequency`) adds up the masked bits: the masks cancel, and the
   counts remain.

Disclosures. The miner learns every requested count exactly, and nothing else as long as two users of every
roster are honest. The miner chooses who is counted, so at most two users fewer than the smallest roster may
collude with it. Users learn who participates, and the questions. No user can change a count by more than its
own record, and a user who tries is named. A single missing user stops the round; secure aggregation tolerates
dropouts.

The text of the paper was not at hand. The proofs and the checks against cheating are additions.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
