"""What an analyst has of a count: a source on which every learner runs, over the miner on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, Refusal
from masquerade.core.util.formatting import printable
from masquerade.protocols.frequency_mining.guarantee import frequency_guarantee
from masquerade.protocols.frequency_mining.messages import Terms as FrequencyTerms
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.mixnet.roles import Collected
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import Terms as AggregationTerms
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.services.common.client import Operator
from masquerade.services.common.settings import check_files, load
from masquerade.services.counting.messages import CountTerms
from masquerade.services.counting.rounds import question_values
from masquerade.services.counting.settings import CountMinerSettings
from masquerade.sources.people.count_rounds import CountRounds, KnownCounts
from masquerade.sources.people.mixed import MixedRecords


class CountedPeople(CountRounds):
    """Counts over people's devices, a `Tally`: a batch is a round, and nothing counted is asked again.

    Example: `docs/howto/count-people.md`.
    """

    def __init__(self, operator: Callable[[], Operator], terms: CountTerms, policy: Policy) -> None:
        super().__init__(policy)
        self._operator = operator
        agreed = terms.agreed(policy)
        self.n = len(terms.members)
        if isinstance(agreed, FrequencyTerms):
            self.guarantee = frequency_guarantee(agreed, self.n, shared_checks=False)
        elif isinstance(agreed, AggregationTerms):
            self.guarantee = aggregation_guarantee(agreed)
        else:
            raise InputError("The records of a mix are no rounds.")

    @printable
    def __repr__(self) -> str:
        """Show how many people answer about which variables."""
        return f"{type(self).__name__}({self.n:,} people, {self.schema!r}, {len(self.held)} rounds)"

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        """Return why the miner would not ask people; nobody is asked."""
        said = self._asked("check", questions)
        return [Refusal(str(one["code"]), str(one["reason"])) for one in said["refusals"]]

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Have people asked, and wait for what they say."""
        said = self._asked("ask", questions)
        tables = {
            question: np.array(counts, dtype=np.int64).reshape(question.shape(self.sizes))
            for question, counts in zip(questions, said["tables"], strict=True)
        }
        self.n = int(said["n"])
        return KnownCounts(self.policy, tables, self.n)

    def _asked(self, what: str, questions: Sequence[Question]) -> dict[str, Any]:
        with self._operator() as operator:
            return operator.ask(what, {"questions": [question_values(one) for one in questions]})


def count(
    node: str | Path, *, wait: float = 10.0, tell: Callable[[str], object] | None = None
) -> CountedPeople | MixedRecords:
    """Return the people of a count as a source, by the settings file of its miner on this machine.

    Frequency mining and secure aggregation ask people's devices in rounds, one for each batch of questions;
    a mix that was closed gives its records. Example: `docs/howto/count-people.md`.
    """
    settings = load(node, CountMinerSettings)
    check_files(settings, node)
    policy = settings.description().loaded_policy()
    operator = partial(Operator, settings, wait=wait, tell=tell or (lambda _: None))
    with operator() as asked:
        said = asked.ask("result", {})
    terms = CountTerms.decode(bytes.fromhex(said["terms"]))
    agreed = terms.agreed(policy)
    if isinstance(agreed, MixTerms):
        records = tuple(bytes.fromhex(one) for one in said["records"])
        return MixedRecords(Collected(records, int(said["unreadable"])), policy, agreed)
    return CountedPeople(operator, terms, policy)
