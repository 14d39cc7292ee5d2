"""Records from a mixnet as a source of counts."""

from __future__ import annotations

from masquerade.channels.policy import Policy
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.mixnet.opened_records import mix_guarantee, unpack_records
from masquerade.protocols.mixnet.roles import Collected
from masquerade.sources.records import Records


class MixedRecords(Records):
    """A `Tally` over the output of a mixnet: nobody knows who sent which record.

    `unreadable` is the number of submissions that were not valid records of the policy.

    Examples
    --------
    >>> from masquerade.simulation import Lesson, synthetic_people, users
    >>> found = users(synthetic_people(12), Lesson("tree", "income"), "mix")  # learnt from mixed records
    >>> found.counted, found.compared.equal
    (12, True)
    """

    def __init__(self, collected: Collected, policy: Policy, terms: MixTerms) -> None:
        codes, unreadable = unpack_records(collected.records, policy)
        super().__init__(codes, policy)
        self.unreadable = collected.unreadable + unreadable
        self.guarantee = mix_guarantee(terms, policy, self.n + self.unreadable)
