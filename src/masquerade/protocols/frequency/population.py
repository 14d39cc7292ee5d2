"""A population of users in one process, made from records: for studies, demonstrations and tests."""

from __future__ import annotations

from typing import Any

from masquerade.channels.policy import Policy, check_policy
from masquerade.crypto.keys import SigningKey
from masquerade.frames.label_codes import encode
from masquerade.frames.native import columns_of
from masquerade.protocols.frequency.agreement import Terms
from masquerade.protocols.frequency.key_checks import RosterChecks
from masquerade.protocols.frequency.user import User
from masquerade.sources.frequency import FrequencyTally


class Population:
    """Users with their records, one for each row of a frame of clear records, and a transport between them.

    Every message passes as bytes. `gone` are names of users who no longer answer. Keys are checked once for
    the whole process unless `shared_checks` is False: then every user checks them, as real users do.
    """

    def __init__(
        self,
        frame: Any,
        policy: Policy,
        *,
        epoch: str = "simulation",
        minimum: int = 10,
        shared_checks: bool = True,
    ) -> None:
        check_policy(policy)
        columns = columns_of(frame)
        codes = {f.variable.name: encode(columns[f.variable.name], f).tolist() for f in policy.fields}
        width = len(str(columns.rows))
        names = [f"user {place:0{width}}" for place in range(1, columns.rows + 1)]
        identities = {name: SigningKey() for name in names}
        self.terms = Terms(epoch, policy, {name: key.public for name, key in identities.items()}, minimum)
        checks = RosterChecks() if shared_checks else None
        self.shared_checks = shared_checks
        self.users = {
            name: User(
                name,
                identities[name],
                {variable: column[row] for variable, column in codes.items()},
                self.terms,
                checks=checks,
            )
            for row, name in enumerate(names)
        }
        self.gone: set[str] = set()
        self.sent = self.received = 0

    def exchange(self, user: str, message: bytes) -> bytes | None:
        """Hand a user a message and return the answer; None from one who is gone."""
        if user in self.gone:
            return None
        reply = self.users[user].receive(message)
        self.received += len(message)
        self.sent += len(reply)
        return reply

    def tally(self) -> FrequencyTally:
        """Return the miner's view of these users: a source of counts."""
        return FrequencyTally(self.terms, self.exchange, shared_checks=self.shared_checks)
