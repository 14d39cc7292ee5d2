"""A population whose records go through a mix: all records are seen, and nobody's is known to be theirs."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.crypto.keys import SigningKey
from masquerade.crypto.keystream import Keystream
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.disguising.report_draws import disguise_codes, fresh_draws
from masquerade.protocols.mix import Leader, Miner, MixTerms, Respondent, collect, packed, record_width
from masquerade.protocols.mix.messages import SUBMISSION, Signed
from masquerade.simulation.costs import Meter
from masquerade.simulation.misbehaviour import Culprit, Trouble, name_of
from masquerade.simulation.model_comparison import Lesson, RecordedTally
from masquerade.simulation.people import People
from masquerade.simulation.results import LearntModel
from masquerade.sources.mixed import MixedRecords

MINIMUM = 10
POINT = 33


class Crowd:
    """Respondents with their records, those who leave out left out."""

    def __init__(self, people: People, trouble: Trouble, leaders: int, meter: Meter) -> None:
        self.leaving, self.cheating = trouble.among(len(people))
        self.places = {name_of(place): place for place in range(len(people))}
        self.identities = {name: SigningKey() for name in self.places}
        self.miner_key, self.leader_keys = (
            SigningKey(),
            {f"leader {i + 1}": SigningKey() for i in range(leaders)},
        )
        self.terms = MixTerms(
            "simulation",
            self.miner_key.public,
            {name: key.public for name, key in self.leader_keys.items()},
            {name: key.public for name, key in self.identities.items()},
            width=record_width(people.policy),
            minimum=MINIMUM,
        )
        reports = disguise_codes(people.codes, people.policy, fresh_draws(Keystream()))
        columns = {name: column.tolist() for name, column in reports.items()}
        self.records = [
            packed({name: column[place] for name, column in columns.items()}, people.policy)
            for place in range(len(people))
        ]
        self._meter = meter

    def submissions(self, keys: bytes) -> list[bytes]:
        """Return what people send when they have seen the board of keys."""
        sent = []
        for name, place in self.places.items():
            if place in self.leaving:
                continue
            with self._meter.user(place):
                person = Respondent(name, self.identities[name], self.terms)
                submission = person.submit(keys, self.records[place])
            if place in self.cheating:
                submission = self.spoilt(name, submission)
            self._meter.received[place] += len(keys)
            self._meter.sent[place] += len(submission)
            sent.append(submission)
        return sent

    def spoilt(self, name: str, submission: bytes) -> bytes:
        """Return a submission whose ciphertext is not the one it is proved for, signed all the same."""
        payload = Signed.decode(submission).payload
        other = secp256k1.decode(payload[:POINT]) + secp256k1.generator
        return Signed.make(
            self.terms,
            self.identities[name],
            kind=SUBMISSION,
            sender=name,
            payload=other.encode() + payload[POINT:],
        ).encode()


def count(
    people: People, lesson: Lesson, names: Sequence[str], trouble: Trouble, *, leaders: int = 2
) -> LearntModel:
    """Learn from the records that come out of a mix; whoever leaves does not send anything."""
    meter = Meter(len(people))
    crowd = Crowd(people, trouble, leaders, meter)
    miner = Miner(crowd.miner_key, crowd.terms)
    leading = [meter.watched(Leader(name, key, crowd.terms), name) for name, key in crowd.leader_keys.items()]
    collected = collect(meter.watched(miner, "miner"), leading, crowd.submissions)
    mixed = MixedRecords(collected, people.policy, crowd.terms)
    asked = RecordedTally(mixed, names)
    model = lesson.learn(asked)
    refused = {crowd.places[name] for name in miner.refused}
    counted = tuple(place for place in range(len(people)) if place not in crowd.leaving | refused)
    culprits = tuple(
        Culprit(name_of(p), "its ciphertext is not proved to be its own") for p in sorted(refused)
    )
    notes = () if not mixed.unreadable else (f"{mixed.unreadable:,} submissions were no records.",)
    cost = meter.cost(counted, counted, 1)
    return LearntModel(model, asked, counted, len(crowd.leaving), culprits, cost, notes)
