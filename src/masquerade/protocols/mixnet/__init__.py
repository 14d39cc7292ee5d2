"""Mixnet: a miner collects the records of many people, and cannot tell whose each one is.

Mix servers (leaders) shuffle verifiably:

1. the leaders and the miner publish shares of an ElGamal key, with proofs that they are known;
2. every `Respondent` sends an encrypted record, with a proof that it is theirs;
3. one `Leader` after the other re-encrypts and permutes all records, and proves that it did nothing else;
4. every leader checks all shuffles and signs them; when all have signed the same, they decrypt their parts;
5. the `Miner` removes its own part: what remains is the multiset of records.

Who learns what. The miner learns the records, clear or disguised as the respondents made them, and who took
part. Leaders learn who took part. Whose record is whose is hidden among all honest senders while one leader
is honest. A leader or respondent who cheats is named; a leader who stays away stops the collection.

The text of the paper (Yang, Zhong, Wright: Anonymity-preserving data collection, KDD 2005) was not at hand:
this is a reconstruction with the proofs that it needs.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
