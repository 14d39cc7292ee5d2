"""Randomizers of other packages, as samplers that an audit can draw from. None of them is a dependency."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from masquerade.core.errors import InputError, did_you_mean

Sampler = Callable[[int, int], Any]


def foreign_sampler(name: str, truths: int, epsilon: float) -> Sampler:
    """Return a randomizer of another package for so many truths at an ε: see `FOREIGN` for the names.

    >>> mq.audit.foreign_sampler("opendp:randomized_response", truths=2, epsilon=0)
    Traceback (most recent call last):
        ...
    masquerade.core.errors.InputError: A randomizer of another package needs an ε above 0. Got 0 instead.
    """
    if name not in FOREIGN:
        raise InputError(f"There is no randomizer {name!r} here.{did_you_mean(name, FOREIGN)}")
    if not epsilon > 0:
        raise InputError(f"A randomizer of another package needs an ε above 0. Got {epsilon:g} instead.")
    package, _, kind = name.partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what others deprecate is not our user's to mend
            return FOREIGN[name](kind, truths, epsilon)
    except ImportError as error:
        raise InputError(f"{name} needs {package}, which is not installed here ({error}).") from None


def _opendp(kind: str, truths: int, epsilon: float) -> Sampler:
    opendp: Any = import_module("opendp.prelude")
    opendp.enable_features("contrib")
    if kind == "randomized_response_bitvec":
        return _bits(opendp, truths, epsilon)
    keep = np.exp(epsilon) / (np.exp(epsilon) + truths - 1)
    measurement = opendp.m.make_randomized_response(categories=list(range(truths)), prob=float(keep))
    return lambda truth, n: np.array([measurement(truth) for _ in range(n)])


def _bits(opendp: Any, truths: int, epsilon: float) -> Sampler:
    """Return draws of single bits, each of its own, many in one call: much quicker than one by one."""
    if truths != 2:
        raise InputError(f"opendp:randomized_response_bitvec is of bits: two truths. Got {truths} instead.")
    flip = 2 / (1 + np.exp(epsilon))
    domain = opendp.bitvector_domain(max_weight=1 << 20)
    measurement = opendp.m.make_randomized_response_bitvec(domain, opendp.discrete_distance(), f=float(flip))

    def drawn(truth: int, n: int) -> Any:
        whole = -(-n // 8)
        sealed = measurement(bytes([255 * truth]) * whole)
        return np.unpackbits(np.frombuffer(sealed, dtype=np.uint8))[:n]

    return drawn


def _multi_freq_ldpy(kind: str, truths: int, epsilon: float) -> Sampler:
    oracles = "multi_freq_ldpy.pure_frequency_oracles"
    if kind == "GRR":
        draw = import_module(f"{oracles}.GRR").GRR_Client
        return lambda truth, n: np.array([draw(truth, truths, epsilon) for _ in range(n)])
    if kind == "SS":
        select = import_module(f"{oracles}.SS").SS_Client
        return lambda truth, n: [frozenset(map(int, select(truth, truths, epsilon))) for _ in range(n)]
    unary = import_module(f"{oracles}.UE").UE_Client
    optimal = kind == "OUE"
    return lambda truth, n: np.stack([unary(truth, truths, epsilon, optimal) for _ in range(n)]).astype(
        np.int8
    )


def _pure_ldp(kind: str, truths: int, epsilon: float) -> Sampler:
    oracles: Any = import_module("pure_ldp.frequency_oracles")
    if kind == "DE":
        direct = oracles.DEClient(epsilon, truths)
        return lambda truth, n: np.array([direct.privatise(truth + 1) for _ in range(n)])  # it counts from 1
    unary = oracles.UEClient(epsilon, truths, use_oue=kind == "OUE")
    return lambda truth, n: np.stack([unary.privatise(truth + 1) for _ in range(n)]).astype(np.int8)


FOREIGN: Mapping[str, Callable[[str, int, float], Sampler]] = {
    **{f"opendp:{kind}": _opendp for kind in ("randomized_response", "randomized_response_bitvec")},
    **{f"multi-freq-ldpy:{kind}": _multi_freq_ldpy for kind in ("GRR", "SS", "SUE", "OUE")},
    **{f"pure-ldp:{kind}": _pure_ldp for kind in ("DE", "SUE", "OUE")},
}
