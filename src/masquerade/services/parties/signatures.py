"""What parties sign for each other, so that whoever convenes can tell none of them anything else."""

from __future__ import annotations

from collections.abc import Mapping

from masquerade.channels.policy import Policy
from masquerade.core.errors import PolicyMismatch, RoundAborted
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import verify_signature
from masquerade.services.parties.joint_schema import JointSchema
from masquerade.services.parties.messages import Arrange
from masquerade.services.parties.participant import NodeIdentity
from masquerade.services.parties.session import SessionSpec

POLICY, RECORDS = "policy of a party", "records of a party"


def signed_policy(me: NodeIdentity, spec: SessionSpec, epoch: bytes, policy: Policy) -> str:
    """Return a party's word that it disguises under a policy in an epoch of a session."""
    return me.identity.sign(POLICY, *facts(spec, epoch, me.name, policy.id.encode())).hex()


def signed_records(me: NodeIdentity, spec: SessionSpec, epoch: bytes, alignment: bytes) -> str:
    """Return a party's word that the records with this alignment take part in an epoch of a session."""
    return me.identity.sign(RECORDS, *facts(spec, epoch, me.name, alignment)).hex()


def check_policies(
    me: NodeIdentity, spec: SessionSpec, epoch: bytes, arrangement: JointSchema, signatures: Mapping[str, str]
) -> None:
    """Refuse policies that their parties did not sign for this epoch, or other ones than are pinned."""
    known = me.identities_of(spec.parties)
    for party, policy in arrangement.policies.items():
        if spec.policies.get(party, policy.id) != policy.id:
            raise PolicyMismatch(f"The session pins another policy of party {party!r}.")
        told = facts(spec, epoch, party, policy.id.encode())
        if party != me.name and not is_signed(known[party], signatures.get(party, ""), POLICY, told):
            raise RoundAborted(
                f"The policy shown for party {party!r} is not signed by it.",
                spent=False,
                culprits=(spec.convener,),
            )


def check_records(
    me: NodeIdentity, spec: SessionSpec, epoch: bytes, message: Arrange, own: bytes | None
) -> None:
    """Refuse unless every party signed that these very records take part, those that all have.

    `own` is the alignment of the records linked here; a helper, who has none, takes the parties' word.
    """
    alignment, known = bytes.fromhex(message.alignment), me.identities_of(spec.parties)
    if me.name in spec.parties and own != alignment:
        raise RoundAborted(
            "The arrangement is about other records than were linked here.",
            spent=False,
            culprits=(spec.convener,),
        )
    for party in spec.parties:
        told = facts(spec, epoch, party, alignment)
        if party != me.name and not is_signed(known[party], message.aligned.get(party, ""), RECORDS, told):
            raise RoundAborted(
                f"Party {party!r} did not sign that the same records take part.",
                spent=False,
                culprits=(spec.convener,),
            )


def same_records(spec: SessionSpec) -> bool:
    """Tell whether the records that take part are the same at every party."""
    return spec.linking is not None and spec.protocol != "arbitrary-with-miner"


def facts(spec: SessionSpec, epoch: bytes, party: str, what: bytes) -> tuple[bytes, ...]:
    """Return what a signature of a party is about."""
    return bytes.fromhex(spec.digest), epoch, party.encode(), what


def is_signed(identity: bytes, signature: str, label: str, told: tuple[bytes, ...]) -> bool:
    """Tell whether somebody signed something."""
    try:
        verify_signature(identity, bytes.fromhex(signature), label, *told)
    except (ValueError, SealBroken):
        return False
    return True
