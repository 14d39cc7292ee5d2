"""Messages of frequency mining."""

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.frequency_mining.messages import (
    Enrolment,
    FrequencyTerms,
    Gathered,
    Invitation,
    MiningStep,
    Objection,
    ShownVotes,
    SignedMiningMessage,
)
from masquerade.protocols.people.questions import Question
from tests.vectors.message_vectors import Example

NAMES = ("ann", "bob", "zoë")
KEYS = {name: SigningKey.from_seed(bytes([place] * 32)) for place, name in enumerate(NAMES, 1)}
POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {"smoker": {"categories": ["yes", "no"]}, "region": {"categories": ["n", "s", "e"]}},
    }
)
TERMS = FrequencyTerms("spring", POLICY, {name: key.public for name, key in KEYS.items()}, 3)
QUESTIONS = (
    Question((), (("smoker", 0),)),
    Question(("region",), (("smoker", 1),)),
    Question(("smoker", "region")),
)
ASKED = Invitation(TERMS.id, 7, ("ann", "zoë"), QUESTIONS)


def signed(step, payload):
    """Return what Ann says: her signature is the same whenever she says it."""
    return SignedMiningMessage.make(TERMS, KEYS["ann"], user="ann", step=step, number=7, payload=payload)


def invited(place, old, new):
    """Return the invitation with other bytes at a place."""
    data = ASKED.encode(TERMS)
    assert data[place : place + len(old)] == old
    return data[:place] + new + data[place + len(old) :]


START = 4 + len(Invitation.TAG)
EXAMPLES = [
    *[Example(signed(step, step.name.encode())) for step in MiningStep],
    Example(
        ASKED,
        TERMS,
        bad={
            "other terms": invited(START, TERMS.id, bytes(32)),
            "users out of order": invited(START + 40, b"\0\0\0\0\0\0\0\2", b"\0\0\0\2\0\0\0\0"),
            "a user twice": invited(START + 40, b"\0\0\0\0\0\0\0\2", b"\0\0\0\2\0\0\0\2"),
        },
    ),
    Example(Gathered(MiningStep.KEYS, 7, (signed(MiningStep.KEYS, b"keys").encode(), b""))),
    Example(Gathered(MiningStep.ENDORSEMENT, 2**32 - 1, ())),
    Example(ShownVotes(7, (signed(MiningStep.VOTE, b"no vote").encode(), b""))),
    Example(Objection(bytes(range(32)), "already_spent", "a vote has left", ("ann", "zoë"))),
    Example(Enrolment("spring", POLICY.id, 3, dict(TERMS.members))),
]
