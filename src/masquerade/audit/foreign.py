"""Samplers of other packages, wrapped for audits. None of them is a dependency."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from masquerade.audit.new_processes import Recipe
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean

Sampler = Callable[..., Any]
Vector = tuple[int, ...]
# bits of the audited vectors: all 2⁸ outputs are counted; of 2¹⁶ outputs, the values at each position
WHOLE, LONGER = 8, 16


@dataclass(frozen=True)
class ForeignSampler:
    """Sampler of another package, as a function of a truth and a number of reports.

    `vectors` are the inputs of a sampler of bit vectors, in groups of equal length. Such a sampler is audited
    on whole vectors: the ε allowed between two inputs is proportional to the number of differing positions.
    """

    name: str
    truths: int
    epsilon: float
    draw: Sampler = field(repr=False)
    vectors: tuple[tuple[Vector, ...], ...] = field(default=(), repr=False)

    def __call__(self, truth: Any, n: int) -> Any:
        """Draw `n` reports of a truth."""
        return self.draw(truth, n)

    @property
    def recipe(self) -> Recipe:
        """Arguments from which a new process builds the same sampler."""
        return Recipe(__name__, foreign_sampler.__name__, __file__, (self.name, self.truths, self.epsilon))


def foreign_sampler(name: str, truths: int, epsilon: float) -> Sampler:
    """Wrap a randomizer of another package as a sampler for `audit_sampler`.

    Parameters
    ----------
    name : str
        ``"package:randomizer"``: a key of `masquerade.audit.foreign.FOREIGN`.
    truths : int
        Number of truths.
    epsilon : float
        ε of the randomizer.

    Returns
    -------
    callable
        ``sampler(truth, n)`` draws `n` reports.

    Raises
    ------
    InputError
        If the name is unknown, ε is not positive, or the package is not installed.

    Examples
    --------
    >>> mq.audit.foreign_sampler("opendp:randomized_response", truths=2, epsilon=0)
    Traceback (most recent call last):
        ...
    masquerade.core.errors.InputError: A randomizer of another package needs an ε above 0. Got 0 instead.
    """
    if name not in FOREIGN:
        raise InputError(f"Unknown randomizer {name!r}.{did_you_mean(name, FOREIGN)}")
    if not epsilon > 0:
        raise InputError(f"A randomizer of another package needs an ε above 0. Got {epsilon:g} instead.")
    package, _, kind = name.partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # users cannot fix deprecations inside other packages
            draw = FOREIGN[name](kind, truths, epsilon)
    except ImportError as error:
        raise InputError(f"{name} needs {package}, which is not installed ({error}).") from None
    vectors = (bit_vectors(WHOLE, nested=True), bit_vectors(LONGER)) if name == BITS else ()
    return ForeignSampler(name, truths, epsilon, draw, vectors)


def bit_vectors(size: int, *, nested: bool = False) -> tuple[Vector, ...]:
    """Return inputs that include a pair differing in one position, for every position.

    The inputs have no bit set, one bit set, or all bits set. With `nested`, also all but one, and the first
    2, 3, … bits, so that every number of differing positions occurs.

    >>> from masquerade.audit.foreign import bit_vectors
    >>> bit_vectors(2)
    ((0, 0), (0, 1), (1, 0), (1, 1))
    """
    rows = [np.zeros(size, dtype=int), np.ones(size, dtype=int), *np.eye(size, dtype=int)]
    if nested:
        rows += [*(1 - np.eye(size, dtype=int)), *np.tri(size, dtype=int)]
    return tuple(sorted({tuple(row.tolist()) for row in rows}))


def allowed_by_distance(vectors: tuple[Vector, ...], epsilon: float) -> Floats:
    """Return the ε allowed between every two inputs: `epsilon` times the number of differing positions."""
    rows = np.array(vectors)
    return np.asarray(epsilon * (rows[:, None] != rows[None]).sum(axis=2), dtype=float)


def _opendp(kind: str, truths: int, epsilon: float) -> Sampler:
    opendp: Any = import_module("opendp.prelude")
    opendp.enable_features("contrib")
    if kind == "randomized_response_bitvec":
        return _bits(opendp, truths, epsilon)
    keep = np.exp(epsilon) / (np.exp(epsilon) + truths - 1)
    measurement = opendp.m.make_randomized_response(categories=list(range(truths)), prob=float(keep))
    return lambda truth, n: np.array([measurement(truth) for _ in range(n)])


def _bits(opendp: Any, truths: int, epsilon: float) -> Sampler:
    """Return a sampler of whole bit vectors, one per call, because a fault may depend on the position."""
    if truths != 2:
        raise InputError(
            f"opendp:randomized_response_bitvec draws bits and needs two truths. Got {truths} instead."
        )
    flip = 2 / (1 + np.exp(epsilon))

    def draw(truth: Vector, n: int) -> Any:
        domain = opendp.bitvector_domain(max_weight=len(truth))
        measure = opendp.m.make_randomized_response_bitvec(domain, opendp.discrete_distance(), f=float(flip))
        packed = np.packbits(np.array(truth, dtype=np.uint8), bitorder="little").tobytes()
        reports = np.frombuffer(b"".join(measure(packed) for _ in range(n)), dtype=np.uint8)
        return np.unpackbits(reports.reshape(n, -1), axis=1, bitorder="little")[:, : len(truth)]

    return draw


def _multi_freq_ldpy(kind: str, truths: int, epsilon: float) -> Sampler:
    oracles = "multi_freq_ldpy.pure_frequency_oracles"
    if kind == "GRR":
        draw = import_module(f"{oracles}.GRR").GRR_Client
        return lambda truth, n: np.array([draw(truth, truths, epsilon) for _ in range(n)])
    if kind == "SS":
        select = import_module(f"{oracles}.SS").SS_Client
        return lambda truth, n: _members([select(truth, truths, epsilon) for _ in range(n)], truths)
    unary = import_module(f"{oracles}.UE").UE_Client
    optimal = kind == "OUE"
    return lambda truth, n: np.stack([unary(truth, truths, epsilon, optimal) for _ in range(n)]).astype(
        np.int8
    )


def _members(subsets: list[Any], truths: int) -> Any:
    """Return subsets as rows of bits, one bit per truth, so that every position can be audited."""
    rows = np.zeros((len(subsets), truths), dtype=np.int8)
    for row, subset in zip(rows, subsets, strict=True):
        row[np.asarray(subset, dtype=np.int64)] = 1
    return rows


def _pure_ldp(kind: str, truths: int, epsilon: float) -> Sampler:
    oracles: Any = import_module("pure_ldp.frequency_oracles")
    if kind == "DE":
        direct = oracles.DEClient(epsilon, truths)
        # its truths are numbered from 1
        return lambda truth, n: np.array([direct.privatise(truth + 1) for _ in range(n)])
    unary = oracles.UEClient(epsilon, truths, use_oue=kind == "OUE")
    return lambda truth, n: np.stack([unary.privatise(truth + 1) for _ in range(n)]).astype(np.int8)


BITS = "opendp:randomized_response_bitvec"
FOREIGN: Mapping[str, Callable[[str, int, float], Sampler]] = {
    **{f"opendp:{kind}": _opendp for kind in ("randomized_response", "randomized_response_bitvec")},
    **{f"multi-freq-ldpy:{kind}": _multi_freq_ldpy for kind in ("GRR", "SS", "SUE", "OUE")},
    **{f"pure-ldp:{kind}": _pure_ldp for kind in ("DE", "SUE", "OUE")},
}
