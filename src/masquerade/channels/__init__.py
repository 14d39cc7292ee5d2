"""Channels and policies: how values are disguised, and what that guarantees."""

from masquerade.channels.basic import binary, flip, grouped, identity, matrix, symmetric, ternary
from masquerade.channels.channel import Channel
from masquerade.channels.designs import (
    additive,
    crosswise,
    for_epsilon,
    for_gamma,
    forced_response,
    invariant,
    kuk,
    unrelated_question,
    warner,
)

__all__ = [
    "Channel",
    "additive",
    "binary",
    "crosswise",
    "flip",
    "for_epsilon",
    "for_gamma",
    "forced_response",
    "grouped",
    "identity",
    "invariant",
    "kuk",
    "matrix",
    "symmetric",
    "ternary",
    "unrelated_question",
    "warner",
]
