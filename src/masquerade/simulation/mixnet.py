"""A mixnet of a population: all records are published, and none can be linked to its sender."""

from __future__ import annotations

from masquerade.crypto.keys import SigningKey
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.report_draws import disguise_codes, fresh_draws
from masquerade.protocols.mixnet.messages import (
    SUBMISSION,
    MixTerms,
    SignedMixMessage,
    pack_record,
    record_width,
)
from masquerade.protocols.mixnet.roles import Leader, MixMiner, Respondent, collect
from masquerade.simulation.costs import Counted, Culprit, Learn, Meter
from masquerade.simulation.people import People, Trouble, name_of
from masquerade.sources.people.mixed import MixedRecords

POINT = secp256k1.point_size


def count(people: People, learn: Learn, trouble: Trouble, *, leaders: int = 2) -> Counted:
    """Learn from the records that a mixnet outputs. People who leave send nothing."""
    meter, everybody = Meter(len(people), rounds=1), range(len(people))
    leaving, cheating = trouble.among(len(people))
    miner_key = SigningKey()
    leader_keys = {f"leader {i + 1}": SigningKey() for i in range(leaders)}
    identities = {name_of(place): SigningKey() for place in everybody}
    terms = MixTerms(
        "simulation",
        miner_key.public,
        {name: key.public for name, key in leader_keys.items()},
        {name: key.public for name, key in identities.items()},
        width=record_width(people.policy),
    )
    reports = disguise_codes(people.codes, people.policy, fresh_draws(Keystream()))
    columns = {name: column.tolist() for name, column in reports.items()}

    def submissions(keys: bytes) -> list[bytes]:
        sent = []
        for place in (place for place in everybody if place not in leaving):
            identity = identities[name_of(place)]
            record = pack_record({name: column[place] for name, column in columns.items()}, people.policy)
            with meter.charge(place):
                submission = Respondent(name_of(place), identity, terms).submit(keys, record)
            meter.received[place], meter.sent[place] = len(keys), len(submission)
            sent.append(spoil_submission(submission, identity, terms) if place in cheating else submission)
        return sent

    miner = MixMiner(miner_key, terms)
    leading = [meter.watch(Leader(name, key, terms), name) for name, key in leader_keys.items()]
    collected = collect(meter.watch(miner, "miner"), leading, submissions)
    mixed = MixedRecords(collected, people.policy, terms)
    model = learn(mixed)
    counted = tuple(p for p in everybody if p not in leaving and name_of(p) not in miner.refused)
    culprits = tuple(
        Culprit(name_of(p), "its ciphertext has no valid proof")
        for p in everybody
        if name_of(p) in miner.refused
    )
    notes = () if not mixed.unreadable else (f"{mixed.unreadable:,} submissions were not valid records.",)
    return Counted(model, counted, culprits, meter.cost(counted, counted), notes)


def spoil_submission(submission: bytes, identity: SigningKey, terms: MixTerms) -> bytes:
    """Return a submission whose first ciphertext does not match its proof, with a valid signature."""
    signed = SignedMixMessage.decode(submission)
    other = secp256k1.decode(signed.payload[:POINT]) + secp256k1.generator
    payload = other.encode() + signed.payload[POINT:]
    return SignedMixMessage.make(terms, identity, SUBMISSION, signed.sender, payload).encode()
