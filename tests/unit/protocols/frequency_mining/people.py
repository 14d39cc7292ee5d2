"""Small populations, and rounds driven by hand so that any message can be changed on the way."""

from __future__ import annotations

import numpy as np
import pandas as pd

import masquerade as mq
from masquerade.channels.privacy_level import DEFAULT_LIMIT
from masquerade.crypto.keys import SigningKey
from masquerade.learn.classifiers.prediction_rows import row_codes
from masquerade.protocols.frequency_mining.messages import (
    FrequencyTerms,
    MiningStep,
    Objection,
    SignedMiningMessage,
)
from masquerade.protocols.frequency_mining.roles import MiningRound, MiningUser
from masquerade.protocols.people.checks import Checks
from masquerade.protocols.people.questions import Question

CLEAR = {
    "smoker": {"categories": ["yes", "no"]},
    "region": {"categories": ["n", "s", "e"]},
    "ill": {"categories": [True, False]},
}
CHANNELS = {
    "smoker": {"kind": "binary", "p": 0.2},
    "region": {"kind": "symmetric", "p": 0.3},
    "ill": {"kind": "binary", "p1": 0.1, "p2": 0.2},
}
SMOKES = Question((), (("smoker", 0),))
BY_REGION = Question(("region",))


def policy(*disguised: str, **more) -> mq.Policy:
    variables = {
        name: {**spec, **({"channel": CHANNELS[name]} if name in disguised else {})}
        for name, spec in CLEAR.items()
    }
    return mq.Policy.from_dict({"masquerade": 1, "variables": variables, **more})


def frame(n: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < 0.4
    return pd.DataFrame(
        {
            "smoker": np.where(rng.random(n) < 0.3 + 0.4 * ill, "yes", "no"),
            "region": rng.choice(["n", "s", "e"], n, p=[0.5, 0.3, 0.2]),
            "ill": ill,
        }
    )


def records_of(data: pd.DataFrame, used: mq.Policy) -> list[dict[str, int]]:
    columns = row_codes(data, used.schema, used.schema)
    return [{name: int(column[row]) for name, column in columns.items()} for row in range(len(data))]


class Village:
    """Users who check keys together, unless told otherwise, and whose identities the test knows."""

    def __init__(
        self,
        n=6,
        used=None,
        *,
        minimum=3,
        alone=False,
        epoch="spring",
        ledgers=None,
        identities=None,
        agreed=(),
        limit=DEFAULT_LIMIT,
        noise=None,
    ):
        self.policy = policy() if used is None else used
        self.data = frame(n)
        self.names = [f"u{i}" for i in range(n)]
        self.identities = identities or {name: SigningKey() for name in self.names}
        self.terms = FrequencyTerms(
            epoch,
            self.policy,
            {name: key.public for name, key in self.identities.items()},
            minimum,
            limit,
            noise,
        )
        checks = None if alone else Checks()
        self.users = {
            name: MiningUser(
                name,
                self.identities[name],
                record,
                self.terms,
                ledger=None if ledgers is None else ledgers[name],
                checks=checks,
                agreed=agreed,
            )
            for name, record in zip(self.names, records_of(self.data, self.policy), strict=True)
        }

    def signed(self, user, step, number, payload) -> bytes:
        """Return what a user who does not follow the protocol sends: signed all the same."""
        made = SignedMiningMessage.make(
            self.terms, self.identities[user], user=user, step=step, number=number, payload=payload
        )
        return made.encode()

    def round(self, questions=(SMOKES,), number=1, users=None) -> MiningRound:
        return MiningRound(self.terms, number, users or self.names, questions, workers=1)

    def step(self, current: MiningRound, change=None) -> dict[str, bytes]:
        """Hand everybody the message of a round, and the answers back, changed by `change(user, reply)`."""
        replies = {}
        for name in current.invitation.users:
            reply = self.users[name].receive(current.message)
            if change is not None:
                reply = change(name, reply)
            replies[name] = reply
            if reply is not None:
                current.receive(reply)
        current.advance()
        return replies

    def until(self, current: MiningRound, phase: str) -> MiningRound:
        while current.phase != phase:
            self.step(current)
        return current


def refusal(reply: bytes) -> Objection | None:
    """Return what a user objects to, None if the answer is none of that kind."""
    signed = SignedMiningMessage.decode(reply)
    return Objection.decode(signed.payload) if signed.step is MiningStep.REFUSAL else None


def payload(reply: bytes) -> bytes:
    return SignedMiningMessage.decode(reply).payload
