"""Mixnet: a miner collects the records of many people without learning whose record is whose.

Mix servers (leaders) shuffle verifiably:

1. the leaders and the miner publish shares of an ElGamal key, and prove that they know the secrets;
2. every `Respondent` sends an encrypted record, with a proof that they made it;
3. each `Leader` in turn re-encrypts and permutes all records, and proves that it did nothing else;
4. every leader checks all shuffles and signs them; when all have signed the same shuffles, they decrypt their
   parts;
5. the `MixMiner` removes its own part: what remains is the multiset of records.

Disclosures. The miner learns the records (clear or disguised, as sent) and who participated. Leaders learn
who participated. Records are unlinkable to their senders, among all honest senders, if at least one leader is
honest. A leader or respondent who cheats is named; a leader who does not answer stops the collection.

The text of the paper (Yang, Zhong, Wright: Anonymity-preserving data collection, KDD 2005) was not at hand:
this is a reconstruction with the proofs that it needs.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
