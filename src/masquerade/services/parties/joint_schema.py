"""What all parties of a session know about each other's variables: policies, owners, one schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema


@dataclass(frozen=True, slots=True)
class JointSchema:
    """The policy of every party for this session, in the order of the session's parties."""

    policies: Mapping[str, Policy]

    @classmethod
    def from_dict(cls, values: Any) -> JointSchema:
        """Read policies by party."""
        if not isinstance(values, dict):
            raise InputError("An arrangement is a mapping from parties to policies.")
        return cls({str(party): Policy.from_dict(policy) for party, policy in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {party: policy.to_dict() for party, policy in self.policies.items()}

    @property
    def owners(self) -> dict[str, tuple[str, ...]]:
        """Return who holds which variables."""
        return {party: policy.schema.names for party, policy in self.policies.items()}

    @property
    def schema(self) -> Schema:
        """Return all variables, one party's after the other's; a variable at two parties is refused."""
        listed = [variable for policy in self.policies.values() for variable in policy.schema.variables]
        names = [variable.name for variable in listed]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"Variable {name!r} is at two parties; in this protocol one holds it.")
        return Schema(listed)
