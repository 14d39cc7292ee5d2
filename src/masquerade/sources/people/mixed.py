"""Records that came through a mix as a source of counts."""

from __future__ import annotations

from masquerade.channels.policy import Policy
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.mixnet.opened_records import mix_guarantee, unpacked
from masquerade.protocols.mixnet.roles import Collected
from masquerade.sources.records import Records


class MixedRecords(Records):
    """A `Tally` over records that came through a mix: nobody knows whose they are.

    `unreadable` is how many submissions were no records of the policy: their senders wasted them.

    >>> from masquerade.simulation import Lesson, made_up_people, users
    >>> found = users(made_up_people(12), Lesson("tree", "income"), "mix")  # learnt from mixed records
    >>> found.counted, found.compared.equal
    (12, True)
    """

    def __init__(self, collected: Collected, policy: Policy, terms: MixTerms) -> None:
        codes, unreadable = unpacked(collected.records, policy)
        super().__init__(codes, policy)
        self.unreadable = collected.unreadable + unreadable
        self.guarantee = mix_guarantee(terms, policy, self.n + self.unreadable)
