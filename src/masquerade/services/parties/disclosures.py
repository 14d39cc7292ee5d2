"""What leaves a party with a reply, in words for its ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.protocols.codec import tag_of
from masquerade.protocols.consent import Proposal
from masquerade.protocols.linking.messages import Begin, Compare
from masquerade.protocols.pooling.masked_sum import Ask
from masquerade.protocols.products.messages import Multiply, Show, Sums
from masquerade.protocols.products.paillier_messages import Ciphertexts, Encrypt
from masquerade.protocols.projection.messages import Margin, Submit
from masquerade.protocols.vertical.joint_policy import restricted
from masquerade.protocols.vertical.messages import Request
from masquerade.services.parties.session import SessionSpec


@dataclass(frozen=True, slots=True)
class Outflow:
    """Something that leaves: what kind, about which variables, how far it can shift a belief (None: any)."""

    kind: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    policy: str | None = None


def leaving(role: str, message: bytes, policy: Policy) -> tuple[Outflow, ...]:
    """Return what the reply to a message gives away; nothing for messages that only prepare."""
    known = GIVEN_AWAY.get((role, tag_of(message)))
    return () if known is None else known(message, policy)


def linked(message: bytes, _policy: Policy) -> tuple[Outflow, ...]:
    """Return what a step of linking gives away."""
    if tag_of(message) == Begin.TAG:
        return (Outflow("keys under secret masks", ("(key)",), Fraction(1)),)
    return (Outflow("pseudonyms of records, which tell who is common", ("(key)",), None),)


def cells(message: bytes, policy: Policy) -> tuple[Outflow, ...]:
    """Return what the cells of some variables give away."""
    return disguised(restricted(policy, Request.decode(message).names or policy.schema.names))


def pooled(message: bytes, policy: Policy) -> tuple[Outflow, ...]:
    """Return what masked counts give away once they are summed."""
    asked = [query.names for query in Ask.decode(message).batch.queries]
    return summed("counts under masks that cancel in the sum", asked, policy)


def projected(message: bytes, policy: Policy) -> tuple[Outflow, ...]:
    """Return what a step of a projection gives away."""
    exact = tag_of(message) == Margin.TAG
    names = Margin.decode(message).names if exact else Submit.decode(message).asked
    own = tuple(name for name in names if name in policy.schema)
    kind = "exact counts" if exact else "columns turned by a rotation unknown to the receiver"
    return (Outflow(kind, own, None),)


def disguised(policy: Policy) -> tuple[Outflow, ...]:
    """Return what records under a policy give away: every group with its own bound."""
    return tuple(
        Outflow(item.kind, item.variables, item.gamma, policy.id) for item in guarantee_of(policy).disclosures
    )


def summed(kind: str, asked: Sequence[Sequence[str]], policy: Policy) -> tuple[Outflow, ...]:
    """Return what counts give away: of reports what the reports do, of clear records anything."""
    names = tuple(name for name in policy.schema if any(name in some for some in asked))
    if not names:
        return (Outflow(kind, (), None),)
    if not policy.disguised:
        return (Outflow(kind, names, None),)
    return tuple(
        Outflow(f"{kind}, of {item.kind}", item.variables, item.gamma, policy.id)
        for item in guarantee_of(policy).disclosures
        if not set(names).isdisjoint(item.variables)
    )


def products(message: bytes, _policy: Policy) -> tuple[Outflow, ...]:
    """Return what a step of scalar products gives away."""
    tag = tag_of(message)
    if tag == Sums.TAG:
        return (Outflow("exact counts", Sums.decode(message).names, None),)
    if tag == Show.TAG:
        parts = Show.decode(message).columns.parts
        names = tuple(name for part in parts for name in part.names)
        return (Outflow("columns under masks of the helper", names, Fraction(1)),)
    question = Multiply.decode(message)
    parts = (*question.lefts[0].parts, *question.right.parts) if question.lefts else question.right.parts
    names = tuple(name for part in parts for name in part.names)
    return (Outflow("a share of exact counts", names, None),)


def parameters_leaving(names: Sequence[str], *, values: bool) -> Outflow:
    """Return what a party gives away when it tells what it learnt about its own nodes."""
    kind = "parameters of own nodes" if values else "parents of own nodes"
    return Outflow(kind, tuple(names), None)


def encrypted(message: bytes, _policy: Policy) -> tuple[Outflow, ...]:
    """Return what ciphertexts of own columns give away, and what decrypting sums of them does."""
    if tag_of(message) == Encrypt.TAG:
        return (Outflow("columns under Paillier encryption", Encrypt.decode(message).names, Fraction(1)),)
    return (Outflow("exact counts, decrypted under masks of whoever asks", (), None),)


GIVEN_AWAY: dict[tuple[str, bytes], Callable[[bytes, Policy], tuple[Outflow, ...]]] = {
    ("linking", Begin.TAG): linked,
    ("linking", Compare.TAG): linked,
    ("cells", Request.TAG): cells,
    ("pooling", Ask.TAG): pooled,
    ("products", Show.TAG): products,
    ("products", Multiply.TAG): products,
    ("products", Sums.TAG): products,
    ("paillier", Encrypt.TAG): encrypted,
    ("paillier", Ciphertexts.TAG): encrypted,
    ("projection", Margin.TAG): projected,
    ("projection", Submit.TAG): projected,
}


def named_by(role: str, message: bytes, spec: SessionSpec) -> tuple[Outflow, ...]:
    """Return that pseudonyms leave with cells, where linking has not shown them before."""
    if role != "cells" or tag_of(message) != Request.TAG:
        return ()
    compared = spec.linking == "intersection" and spec.protocol != "arbitrary-with-miner"
    return () if compared else (Outflow("pseudonyms of records, which tell who is common", ("(key)",), None),)


def tables_asked(role: str, message: bytes) -> list[tuple[str, ...]]:
    """Return the variables of every table that a message asks about, others' variables included."""
    known = ASKED.get((role, tag_of(message)))
    return [] if known is None else known(message)


def product_names(message: bytes) -> list[tuple[str, ...]]:
    """Return the variables of a product."""
    question = Multiply.decode(message)
    parts = [part for columns in (*question.lefts[:1], question.right) for part in columns.parts]
    return [tuple(name for part in parts for name in part.names)]


ASKED: dict[tuple[str, bytes], Callable[[bytes], list[tuple[str, ...]]]] = {
    ("pooling", Proposal.TAG): lambda data: [q.names for q in Proposal.decode(data).batch.queries],
    ("pooling", Ask.TAG): lambda data: [q.names for q in Ask.decode(data).batch.queries],
    ("products", Proposal.TAG): lambda data: [q.names for q in Proposal.decode(data).batch.queries],
    ("products", Sums.TAG): lambda data: [Sums.decode(data).names],
    ("products", Multiply.TAG): product_names,
    ("paillier", Proposal.TAG): lambda data: [q.names for q in Proposal.decode(data).batch.queries],
    ("paillier", Encrypt.TAG): lambda data: [Encrypt.decode(data).names],
    ("projection", Margin.TAG): lambda data: [Margin.decode(data).names],
    ("projection", Submit.TAG): lambda data: [Submit.decode(data).asked],
}
