"""Guarantee of a count before anybody is enrolled: who would learn what."""

from __future__ import annotations

from masquerade.core.guarantee import Guarantee
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.frequency_mining.guarantee import frequency_guarantee
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms
from masquerade.protocols.mixnet.opened_records import mix_guarantee
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.services.counting.settings import CountDescription
from masquerade.services.counting.suppression_batch import suppression_guarantee


def plan_guarantee(description: CountDescription, people: int) -> Guarantee:
    """Return the guarantee that a count with this number of people would have.

    People and keys are invented; the guarantee depends on neither.
    """
    policy = description.load_policy()
    members = {f"person {number}": SigningKey().public for number in range(1, people + 1)}
    terms = description.terms(members, (AgreementKey().public, AgreementKey().public))
    agreed = terms.protocol_terms(policy)
    if isinstance(agreed, FrequencyTerms):
        return frequency_guarantee(agreed, people, shared_checks=False)
    if isinstance(agreed, AggregationTerms):
        return aggregation_guarantee(agreed)
    if isinstance(agreed, PartitionTerms):
        return suppression_guarantee(agreed)
    return mix_guarantee(agreed, policy, people)
