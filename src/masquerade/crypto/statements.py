"""What can be proved: linear relations between points, some of them behind an OR, all under one challenge.

A statement is a list of parts that all hold. A `Linear` part says that its prover knows numbers w with
image − shift·G = Σ w_k·base_k in each of its equations, the same w in all. An `Either` part says that one of
its branches holds, not which. The functions below are the statements that the protocols need.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from masquerade.core.errors import InputError
from masquerade.crypto.group import Group, Point


class Equation(NamedTuple):
    """image − shift·G = Σ witness[k]·base over `terms`, the pairs (k, base)."""

    image: Point
    terms: tuple[tuple[int, Point], ...]
    shift: int = 0


class Linear(NamedTuple):
    """Equations that hold together for one list of `witnesses` numbers."""

    equations: tuple[Equation, ...]
    witnesses: int = 1


class Either(NamedTuple):
    """One of the branches holds."""

    branches: tuple[Linear, ...]


Part: TypeAlias = Linear | Either
Statement: TypeAlias = tuple[Part, ...]


def possession(key: Point) -> Statement:
    """State: I know x with key = x·G (Schnorr); without it a key could be made from other people's keys."""
    return (Linear((Equation(key, ((0, key.group.generator),)),)),)


def equal_logs(pairs: Sequence[tuple[Point, Point]]) -> Statement:
    """State: I know one x with image = x·base for every pair (image, base) (Chaum–Pedersen for two)."""
    if any(base.is_identity for _, base in pairs):
        raise InputError("A base must not be the identity: its multiples say nothing.")
    return (Linear(tuple(Equation(image, ((0, base),)) for image, base in pairs)),)


class Ballot(NamedTuple):
    """A user's keys and masked bit beside the sums of all keys, in the letters of the frequency protocol.

    X_i = x·G, Y_i = y·G, m_i = d·G + y·X, h_i = x·Y, where X and Y are the sums of all users' X_i and Y_i.
    """

    X: Point
    Y: Point
    X_i: Point
    Y_i: Point
    m_i: Point
    h_i: Point


def valid_bit(ballot: Ballot) -> Statement:
    """State: h_i is honest and m_i masks 0 or 1.

    Formula: log_G X_i = log_Y h_i, and for d = 0 or d = 1: log_G Y_i = log_X (m_i − d·G).
    """
    if ballot.X.is_identity or ballot.Y.is_identity:
        raise InputError("The users' keys cancel out and would mask nothing: the roster needs other keys.")
    g = ballot.X.group.generator
    honest = Linear((Equation(ballot.X_i, ((0, g),)), Equation(ballot.h_i, ((0, ballot.Y),))))
    own, over = Equation(ballot.Y_i, ((0, g),)), ((0, ballot.X),)
    bits = Either((Linear((own, Equation(ballot.m_i, over))), Linear((own, Equation(ballot.m_i, over, 1)))))
    return (honest, bits)


def one_hot(ballots: Sequence[Ballot]) -> Statement:
    """State: every ballot masks 0 or 1, and their bits add up to one.

    Formula: `valid_bit` for each l, and with the same y_l: Y_il = y_l·G, Σ m_il − G = Σ y_l·X_l.
    """
    if not ballots:
        raise InputError("A one-hot statement needs at least one ballot.")
    group = ballots[0].X.group
    keys = tuple(Equation(b.Y_i, ((l, group.generator),)) for l, b in enumerate(ballots))
    total = group.sum_points(b.m_i for b in ballots)
    adds_up = Equation(total, tuple((l, b.X) for l, b in enumerate(ballots)), 1)
    parts = [part for ballot in ballots for part in valid_bit(ballot)]
    return (*parts, Linear((*keys, adds_up), len(ballots)))


def branches_of(part: Part) -> tuple[Linear, ...]:
    """Return the alternatives of a part; a linear one has itself alone."""
    return part.branches if isinstance(part, Either) else (part,)


def bases_of(part: Part) -> list[Point]:
    """Return the points that are multiplied by what the prover knows."""
    return [base for linear in branches_of(part) for row in linear.equations for _, base in row.terms]


def group_of(statement: Statement) -> Group:
    """Return the group that a statement is about."""
    return branches_of(statement[0])[0].equations[0].image.group


def describe(statement: Statement) -> tuple[bytes, bytes]:
    """Return everything a statement says, for a transcript: its structure, then its points in that order."""
    structure: list[int] = [len(statement)]
    points: list[bytes] = []
    for part in statement:
        branches = branches_of(part)
        structure += (isinstance(part, Either), len(branches))
        for linear in branches:
            structure += (linear.witnesses, len(linear.equations))
            for image, terms, shift in linear.equations:
                structure += (shift, len(terms))
                points.append(image.hashed)
                for k, base in terms:
                    structure.append(k)
                    points.append(base.hashed)
    return struct.pack(f">{len(structure)}I", *structure), b"".join(points)
