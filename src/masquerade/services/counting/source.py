"""A count as a source for analysts: every learner can query it, through the miner on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.util.formatting import printable
from masquerade.protocols.frequency_mining.guarantee import frequency_guarantee
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms
from masquerade.protocols.mixnet.messages import MixTerms
from masquerade.protocols.mixnet.roles import Collected
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.services.common.client import Operator
from masquerade.services.common.settings import check_files, load
from masquerade.services.counting.messages import CountTerms
from masquerade.services.counting.rounds import noisy_round_of, question_values
from masquerade.services.counting.settings import CountMinerSettings
from masquerade.sources.people.count_rounds import CountedRound, CountRounds, KnownCounts
from masquerade.sources.people.mixed import MixedRecords
from masquerade.sources.people.noisy_people import NoisyPeople, PeopleWithNoise
from masquerade.sources.people.noisy_votes import NoisyVotes


class CountedPeople(CountRounds):
    """Counts over people's devices as a `Tally`: one round per batch of queries; earlier counts are reused.

    Parameters
    ----------
    operator : callable
        Opens a connection to the miner.
    terms : CountTerms
        Terms of the count.
    policy : Policy
        Policy of the count.

    Raises
    ------
    InputError
        If the count is a mix, which has no rounds.

    Examples
    --------
    >>> source = mq.people.count("miner.yaml")  # doctest: +SKIP
    >>> mq.stats.shares(source, "illness", by="smoker")  # doctest: +SKIP
    """

    def __init__(self, operator: Callable[[], Operator], terms: CountTerms, policy: Policy) -> None:
        super().__init__(policy)
        self._operator = operator
        agreed = terms.protocol_terms(policy)
        self.n = len(terms.members)
        if isinstance(agreed, FrequencyTerms):
            self.guarantee = frequency_guarantee(agreed, self.n, shared_checks=False)
        elif isinstance(agreed, AggregationTerms):
            self.guarantee = aggregation_guarantee(agreed)
        else:
            raise InputError("A mix has records, not rounds.")

    @printable
    def __repr__(self) -> str:
        """Show the number of people, the variables, and the number of rounds."""
        return f"{type(self).__name__}({self.n:,} people, {self.schema!r}, {len(self.held)} rounds)"

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        """Return the reasons why the miner would refuse these questions, without running a round."""
        reply = self._ask("check", questions)
        return [Refusal(str(one["code"]), str(one["reason"])) for one in reply["refusals"]]

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Return the counts of a round in which the miner asks people."""
        reply = self._ask("ask", questions)
        tables = {
            question: np.array(counts, dtype=np.int64).reshape(question.shape(self.sizes))
            for question, counts in zip(questions, reply["tables"], strict=True)
        }
        self.n = int(reply["n"])
        return KnownCounts(self.policy, tables, self.n)

    def _ask(self, what: str, questions: Sequence[Question]) -> dict[str, Any]:
        with self._operator() as operator:
            return operator.ask(what, {"questions": [question_values(one) for one in questions]})


NoisyTerms = TypeVar("NoisyTerms", AggregationTerms, FrequencyTerms)


class _MinerRounds(Generic[NoisyTerms]):
    """Rounds with noise over people's devices, through the miner."""

    def __init__(
        self, operator: Callable[[], Operator], terms: NoisyTerms, rounds: Sequence[CountedRound], lost: int
    ) -> None:
        self.terms: NoisyTerms = terms
        self._operator, self._rounds, self._lost = operator, list(rounds), lost

    @property
    def guarantee(self) -> Guarantee:
        if isinstance(self.terms, FrequencyTerms):
            return frequency_guarantee(self.terms, len(self.terms.members), shared_checks=False)
        return aggregation_guarantee(self.terms)

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        del questions
        return []  # the miner refuses when it is asked, before anything leaves

    def earlier(self) -> list[CountedRound]:
        return list(self._rounds)

    def lost_tables(self) -> int:
        return self._lost

    def hold(self, questions: Sequence[Question]) -> CountedRound:
        listed = [question_values(one) for one in questions]
        with self._operator() as operator:
            reply = operator.ask("ask", {"questions": listed, "rounds": len(self._rounds)})
        counted_round = noisy_round_of(reply, self.terms.sizes)
        self._rounds.append(counted_round)
        return counted_round


def count(
    node: str | Path, *, wait: float = 10.0, tell: Callable[[str], object] | None = None
) -> CountedPeople | PeopleWithNoise | MixedRecords:
    """Open the people of a count as a source.

    Frequency mining and secure aggregation ask people's devices in rounds, one per batch of queries. With
    noise, tables are consistent and have standard errors. For a mix, the source has the opened records.

    Parameters
    ----------
    node : str or Path
        Settings file of the count's miner, which runs on this machine.
    wait : float
        Seconds to wait for a miner that is starting.
    tell : callable, optional
        Called with each line for the user.

    Returns
    -------
    CountedPeople, NoisyPeople, NoisyVotes or MixedRecords
        A source of counts, exact or with noise, or the records of a closed mix.

    Raises
    ------
    QueryRefused
        If nobody is enrolled, or a mix is not closed.
    PartyUnreachable
        If the miner does not answer.

    Examples
    --------
    >>> source = mq.people.count("miner.yaml")  # doctest: +SKIP
    >>> mq.learn.naive_bayes(source, "illness")  # doctest: +SKIP
    """
    settings = load(node, CountMinerSettings)
    check_files(settings, node)
    policy = settings.description().load_policy()
    operator = partial(Operator, settings, wait=wait, tell=tell or (lambda _: None))
    with operator() as connection:
        result = connection.ask("result", {})
    terms = CountTerms.decode(bytes.fromhex(result["terms"]))
    agreed = terms.protocol_terms(policy)
    if isinstance(agreed, PartitionTerms):
        raise InputError("A suppression releases one table, and counts nothing: see masquerade count table.")
    if isinstance(agreed, MixTerms):
        records = tuple(bytes.fromhex(one) for one in result["records"])
        return MixedRecords(Collected(records, int(result["unreadable"])), policy, agreed)
    if agreed.noise is not None:
        rounds = [noisy_round_of(one, agreed.sizes) for one in result["rounds"]]
        lost = int(result["lost"])
        if isinstance(agreed, FrequencyTerms):
            return NoisyVotes(_MinerRounds(operator, agreed, rounds, lost), policy)
        return NoisyPeople(_MinerRounds(operator, agreed, rounds, lost), policy)
    return CountedPeople(operator, terms, policy)
