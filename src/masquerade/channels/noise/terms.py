"""Terms of noise on counts: ε and δ of all tables, the contributors of noise, and the resulting variance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

from masquerade.channels.noise.accountant import (
    CELLS_MOVED,
    LossAtoms,
    bounded_losses,
    check_privacy,
    compose_losses,
    gaussian_variance,
    laplace_losses,
    scale_for,
    skellam_losses,
)
from masquerade.channels.noise.sampler import NoiseSampler, polya_shares, skellam_shares
from masquerade.core.errors import InputError

Law = Literal["skellam", "laplace", "redraws"]
FEW_TABLES: Final = 4  # up to here discrete Laplace noise may have the smaller variance
MOST_TABLES: Final = 100_000
MOST_CONTRIBUTORS: Final = 10_000_000
_SAMPLER_SHARE: Final = 0.001  # share of δ that is reserved for the error of the sampler
_VARIANCE_STEP: Final = 64  # variances are rounded up to multiples of 1/64
_RATIO_STEP: Final = 1 << 40
_MOST_RATE: Final = 40.0


@dataclass(frozen=True, slots=True)
class NoiseStage:
    """Noise of some tables.

    Attributes
    ----------
    tables : int
        Number of tables.
    law : {"skellam", "laplace", "redraws"}
        Distribution of the noise that the honest contributors together add to a cell. With "redraws" nothing
        is added: contributors replace some of their answers by random answers (`RedrawTerms`).
    variance : Fraction
        Variance of this noise.
    ratio : Fraction
        P(k + 1)/P(k) of discrete Laplace noise, or the chance that an answer is redrawn into a given cell; 0
        for Skellam noise.
    """

    tables: int
    law: Law
    variance: Fraction
    ratio: Fraction = Fraction(0)

    def shares(self, honest: int) -> NoiseSampler:
        """Return the sampler of one contributor's shares."""
        self._check_added()
        if self.law == "laplace":
            return polya_shares(self.ratio, honest)
        return skellam_shares(self.variance, honest)

    def losses(self, part: Fraction = Fraction(1)) -> LossAtoms:
        """Return the losses of a cell with the share `part` of the noise; for Laplace noise it must be 1."""
        self._check_added()
        if self.law == "laplace":
            if part < 1:
                raise InputError("A part of discrete Laplace noise has no bound here: use Skellam noise.")
            return laplace_losses(-math.log(self.ratio))
        return skellam_losses(float(self.variance * part))

    def _check_added(self) -> None:
        if self.law == "redraws":
            raise InputError("Votes are redrawn, not added to: there are no shares of noise.")


@dataclass(frozen=True)
class NoiseTerms:
    """Privacy guarantee of noise on counts for each record, over all tables together.

    Data sets are neighbours if they differ in one record; their size is public. The guarantee holds against
    anyone who sees all tables and knows the noise of up to `colluders` contributors.

    Parameters
    ----------
    epsilon : float
        ε of all tables together, for each record.
    tables : int or sequence of (int, float)
        Number of tables; or a sequence of stages, each with its number of tables and share of the budget.
    delta : float, default 1e-6
        δ; at least 1e-10, or 0 for pure differential privacy, which needs much more noise unless tables are
        few.
    contributors : int, default 1
        Number of contributors that add noise and stay to the end: organisations, people, or one curator.
    colluders : int, default 0
        Number of contributors that may reveal their noise to the party that adds up the counts. The others
        are `honest`.

    Examples
    --------
    >>> terms = mq.NoiseTerms(epsilon=1, tables=45)
    >>> round(terms.deviation, 1)
    40.1
    >>> three = mq.NoiseTerms(epsilon=1, tables=45, contributors=3, colluders=1)
    >>> round(three.deviation, 1), three.honest
    (49.1, 2)
    """

    epsilon: float
    tables: int | Sequence[tuple[int, float]]
    delta: float = 1e-6
    contributors: int = 1
    colluders: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(f"{name!r} of noise must be a number. Got {value!r} instead.")
            object.__setattr__(self, name, float(value))
        check_privacy(self.epsilon, self.delta)
        if not isinstance(self.tables, int):
            object.__setattr__(self, "tables", _check_stages(self.tables))
        if isinstance(self.tables, bool) or not 1 <= self.number <= MOST_TABLES:
            raise InputError(
                f"'tables' of noise must be a number from 1 to {MOST_TABLES:,}, or stages [(tables, share), "
                f"…]. Got {self.tables!r} instead."
            )
        for name, least in (("contributors", 1), ("colluders", 0)):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int)
                or not least <= value <= MOST_CONTRIBUTORS
            ):
                raise InputError(
                    f"{name!r} of noise must be an integer of at least {least}. Got {value!r} instead."
                )
        if self.honest < 1:
            raise InputError(
                f"Of {self.contributors} contributors at most {self.contributors - 1} may collude, so that "
                f"one adds noise that nobody else knows. Got {self.colluders} colluders instead."
            )

    @property
    def number(self) -> int:
        """Return the number of tables of all stages."""
        return self.tables if isinstance(self.tables, int) else sum(tables for tables, _ in self.tables)

    @property
    def honest(self) -> int:
        """Return the number of contributors whose noise stays secret."""
        return self.contributors - self.colluders

    @property
    def stages(self) -> tuple[NoiseStage, ...]:
        """Return the noise of each stage, computed by the accountant."""
        stages = ((self.tables, 1.0),) if isinstance(self.tables, int) else tuple(self.tables)
        return _schedule(self.epsilon, self.delta, stages, self.honest)

    @property
    def variance(self) -> float:
        """Return the variance of all noise in a cell of the first stage, including the colluders' noise."""
        return float(self.total_variance(self.stages[0]))

    @property
    def deviation(self) -> float:
        """Return the standard deviation of all noise in a cell of the first stage."""
        return math.sqrt(self.variance)

    def total_variance(self, stage: NoiseStage, present: int | None = None) -> Fraction:
        """Return the variance of all noise in a cell.

        Parameters
        ----------
        stage : NoiseStage
            Stage of the table.
        present : int, optional
            Number of contributors that added noise. By default all.

        Returns
        -------
        Fraction
            The variance.
        """
        return stage.variance * (self.contributors if present is None else present) / self.honest

    def shares(self, stage: NoiseStage) -> NoiseSampler:
        """Return the sampler of one contributor's shares in a stage."""
        return stage.shares(self.honest)

    @property
    def sampler_delta(self) -> float:
        """Return the δ that the error of the sampler adds; `delta` includes it unless `delta` is 0.

        Formula: (1 + e^ε)·2Q·h·error, with Q tables, h honest contributors and the error of one share. Only
        the 2 cells of a table in which two neighbours differ count.
        """
        errors = sum(stage.tables * self.shares(stage).error for stage in self.stages)
        return (1 + math.exp(self.epsilon)) * CELLS_MOVED * self.honest * float(errors)

    def epsilon_with(self, honest: int, gamma: float = 1.0) -> float:
        """Return ε at the same δ if only `honest` contributors keep their noise secret.

        Parameters
        ----------
        honest : int
            Number of contributors whose noise is secret: fewer than agreed if more contributors collude or
            leave, and all of them against an attacker without colluders.
        gamma : float, default 1
            γ of a release of disguised records of the same people, if any; its loss is added.

        Returns
        -------
        float
            ε, rounded up; ∞ if no contributor's noise is secret.

        Examples
        --------
        >>> terms = mq.NoiseTerms(epsilon=1, tables=10, contributors=3, colluders=1)
        >>> round(terms.epsilon_with(3), 2), round(terms.epsilon_with(1), 2)
        (0.8, 1.45)
        """
        if honest < 1:
            return math.inf
        part = Fraction(honest, self.honest)
        is_laplace = all(stage.law == "laplace" for stage in self.stages)
        if is_laplace and part < 1:
            return math.inf
        parts = [
            (stage.losses(Fraction(1) if is_laplace else part), CELLS_MOVED * stage.tables)
            for stage in self.stages
        ]
        if gamma > 1:
            parts.append((bounded_losses(gamma), 1))
        if self.delta == 0:
            return math.fsum(float(atoms.losses.max()) * number for atoms, number in parts)
        return compose_losses(parts).epsilon(self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = asdict(self)
        if not isinstance(self.tables, int):
            plain["tables"] = [list(stage) for stage in self.tables]
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NoiseTerms:
        """Return the terms that `to_dict` wrote as plain values.

        Parameters
        ----------
        values : mapping
            Plain values.

        Returns
        -------
        NoiseTerms
            The terms.

        Raises
        ------
        InputError
            If a value is missing, unknown or not valid.
        """
        names = {field.name for field in fields(cls)}
        if not {"epsilon", "tables"} <= values.keys() <= names:
            raise InputError(f"Terms of noise have the keys {', '.join(sorted(names))}.")
        return cls(**values)


def _check_stages(stages: Any) -> tuple[tuple[int, float], ...]:
    try:
        checked = tuple((int(tables), float(share)) for tables, share in stages)
        exact = all(tables == number for (tables, _), (number, _) in zip(checked, stages, strict=True))
    except (TypeError, ValueError):
        checked, exact = (), False
    if not exact or not checked or any(tables < 1 or not share > 0 for tables, share in checked):
        raise InputError(
            "Stages of noise are pairs of a number of tables and a share of the budget, such as "
            f"[(45, 0.6), (10, 0.4)]. Got {stages!r} instead."
        )
    total = math.fsum(share for _, share in checked)
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise InputError(f"The shares of the stages must add up to 1. Got {total:g} instead.")
    return checked


@lru_cache(maxsize=256)
def _schedule(
    epsilon: float, delta: float, stages: tuple[tuple[int, float], ...], honest: int
) -> tuple[NoiseStage, ...]:
    """Return the noise of each stage: the smallest variance that the accountant proves.

    The variances of stages are proportional to tables/share, which splits a budget of zero-concentrated
    differential privacy by the shares.
    """
    number = sum(tables for tables, _ in stages)
    reserved = delta * (1 - _SAMPLER_SHARE)
    laplace = (
        _laplace_stage(epsilon, reserved, number)
        if len(stages) == 1 and (delta == 0 or number <= FEW_TABLES)
        else None
    )
    if delta == 0:
        if laplace is None:
            raise InputError("Noise in stages needs δ above 0, such as delta=1e-6.")
        return (laplace,)
    scaled = [(tables, tables / share) for tables, share in stages]
    start = CELLS_MOVED * gaussian_variance(epsilon, reserved)
    scale = scale_for(
        epsilon,
        reserved,
        lambda s: [(skellam_losses(s * weight), CELLS_MOVED * tables) for tables, weight in scaled],
        start,
    )
    result = tuple(
        NoiseStage(tables, "skellam", Fraction(math.ceil(scale * weight * _VARIANCE_STEP), _VARIANCE_STEP))
        for tables, weight in scaled
    )
    if laplace is not None and laplace.variance < result[0].variance:
        result = (laplace,)
    errors = sum(stage.tables * stage.shares(honest).error for stage in result)
    if (1 + math.exp(epsilon)) * CELLS_MOVED * honest * float(errors) > _SAMPLER_SHARE * delta:
        raise InputError(
            f"δ = {delta:g} is below the precision of the sampler for {honest:,} honest contributors. Choose "
            "a larger delta or a smaller epsilon."
        )
    return result


def _laplace_stage(epsilon: float, delta: float, tables: int) -> NoiseStage:
    """Return discrete Laplace noise for a few tables: from ε alone if δ = 0, else by the accountant."""
    moved = CELLS_MOVED * tables
    rate = epsilon / moved
    if delta > 0:
        scale = scale_for(
            epsilon, delta, lambda s: [(laplace_losses(min(1 / s, _MOST_RATE)), moved)], 1 / rate
        )
        rate = max(rate, 1 / scale)
    ratio = Fraction(math.ceil(math.exp(-rate) * _RATIO_STEP) + 1, _RATIO_STEP)
    return NoiseStage(tables, "laplace", 2 * ratio / (1 - ratio) ** 2, ratio)
