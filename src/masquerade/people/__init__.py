"""People who keep their own records: counted by protocols, or reporting from their devices.

No single party has all the data. The sources (`FrequencyTally`, `AggregationTally`, `MixedRecords`) give a
miner, the party that analyses the data, counts of these people; every learner runs on them. A ledger durably
records what a person's device has sent. A `Client` sends its row to a `Collector`, sealed so that it opens
only if at least k people send equal rows; a `RandomnessServer` helps the client to seal it. Names are loaded
on first use, so that a device loads nothing that it does not need.
"""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.core.errors import RoundAborted as RoundAborted
    from masquerade.protocols.frequency_mining.vote_noise import VoteNoise as VoteNoise
    from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import (
        EvaluationLedger as EvaluationLedger,
    )
    from masquerade.protocols.k_anonymity.threshold.generalisation import GeneralisedForm as GeneralisedForm
    from masquerade.protocols.k_anonymity.threshold.messages import Notice as Notice
    from masquerade.protocols.k_anonymity.threshold.roles import Client as Client
    from masquerade.protocols.k_anonymity.threshold.roles import Collector as Collector
    from masquerade.protocols.k_anonymity.threshold.roles import RandomnessServer as RandomnessServer
    from masquerade.protocols.k_anonymity.threshold.row_schema import Form as Form
    from masquerade.protocols.k_anonymity.threshold.row_schema import faithful_guarantee as faithful_guarantee
    from masquerade.protocols.k_anonymity.threshold.row_schema import (
        production_guarantee as production_guarantee,
    )
    from masquerade.protocols.people.ledger import FileLedger as FileLedger
    from masquerade.protocols.people.ledger import MemoryLedger as MemoryLedger
    from masquerade.protocols.secure_aggregation.agreement import Parameters as Parameters
    from masquerade.protocols.secure_aggregation.agreement import SumNoise as SumNoise
    from masquerade.protocols.secure_aggregation.messages import Delivery as Delivery
    from masquerade.services.counting.device import TakenPart as TakenPart
    from masquerade.services.counting.device import take_part as take_part
    from masquerade.services.counting.source import CountedPeople as CountedPeople
    from masquerade.services.counting.source import count as count
    from masquerade.sources.people.aggregation import AggregationTally as AggregationTally
    from masquerade.sources.people.frequency import FrequencyTally as FrequencyTally
    from masquerade.sources.people.mixed import MixedRecords as MixedRecords
    from masquerade.sources.people.noisy_people import NoisyPeople as NoisyPeople
    from masquerade.sources.people.noisy_votes import NoisyVotes as NoisyVotes
    from masquerade.sources.people.opened import OpenedRows as OpenedRows
    from masquerade.survey.device.participation import Participation as Participation
    from masquerade.survey.device.participation import report as report
    from masquerade.survey.device.terms import DeviceTerms as DeviceTerms

__getattr__, __dir__, __all__ = lazy_exports(__name__)
