"""The linear classifier as a frozen model: numbers for categories, discriminants, reading and writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema, Variable
from masquerade.learn import model_file
from masquerade.learn.density import category_numbers
from masquerade.learn.losses import expit
from masquerade.learn.prediction_rows import labels_of, row_codes

Loss = Literal["pocket", "squares", "logistic"]
Counts = Literal["auto", "mle", "simplex", "clip", "unbiased"]
Scores = Mapping[str, Sequence[float] | Literal["indicator"]]

KIND = "linear_classifier"
TIES = 1e-9
MUCH = 0.01  # share of the records below zero beyond which the summary warns


@dataclass(frozen=True, slots=True, eq=False)
class LinearClassifier:
    """A linear discriminant of two classes, or one for each of several against the rest.

    Row d of `coefficients` has an intercept first, then one number per column of `names`. With two classes
    the one discriminant speaks for the second; with more, the largest wins. `codings` are the numbers that
    stand for the categories of each feature (categories × columns). `stderr` is None where it is not known:
    for pocket, whose loss has no slope, and for tables too large. `accuracy` is the share of the records, by
    the counts it was learnt from, that it classifies rightly; `negative` is how much of the unbiased counts
    was below zero before it was projected away, as a share of the records.
    """

    target: Variable
    features: tuple[Variable, ...]
    codings: tuple[Floats, ...]
    names: tuple[str, ...]
    loss: Loss
    coefficients: Floats
    stderr: Floats | None
    accuracy: float
    accuracy_stderr: float
    counts: str
    negative: float
    ridge: float
    n: int

    @property
    def schema(self) -> Schema:
        """Return the target and the features."""
        return Schema((self.target, *self.features))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return for which class each discriminant speaks."""
        labels = self.target.categories
        return tuple(map(str, labels[1:] if len(labels) == 2 else labels))

    def decision_function(self, frame: Any) -> Floats:
        """Return the discriminants of clear rows: one number each for two classes, else rows × classes."""
        scores = self.scores(row_codes(frame, self.schema, [feature.name for feature in self.features]))
        return scores[:, 0] if len(self.target) == 2 else scores

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the class of every clear row: see `row_codes` for what `frame` may be."""
        codes = row_codes(frame, self.schema, [feature.name for feature in self.features])
        return labels_of(self.target, self.predict_codes(codes))

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | row) by logistic loss, rows × classes (one against the rest, made to sum to 1)."""
        if self.loss != "logistic":
            raise InputError(f"Only loss='logistic' gives probabilities; this model has {self.loss!r}.")
        codes = row_codes(frame, self.schema, [feature.name for feature in self.features])
        chance = expit(self.scores(codes))
        if len(self.target) == 2:
            return np.hstack([1 - chance, chance])
        sums = chance.sum(axis=1, keepdims=True)
        return np.where(sums > 0, chance / np.where(sums > 0, sums, 1.0), 1 / len(self.target))

    def scores(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> Floats:
        """Return the discriminants, rows × discriminants, from codes of the features."""
        parts = [
            coding[codes[feature.name]] for feature, coding in zip(self.features, self.codings, strict=True)
        ]
        return np.asarray(np.hstack(parts) @ self.coefficients[:, 1:].T + self.coefficients[:, 0])

    def predict_codes(self, codes: Mapping[str, NDArray[np.integer[Any]]]) -> NDArray[np.intp]:
        """Return the codes of the classes from codes of the features; ties go to the first."""
        return winners(np.moveaxis(self.scores(codes), -1, 0))

    def summary(self) -> str:
        """Return the coefficients as text, with standard errors where they are known."""
        lines = [
            f"Linear classifier of {self.target.name}: {self.loss}, ridge = {self.ridge:g}, n = {self.n:,}",
            f"Counts: {self.counts}; below zero before projecting: {self.negative:.1%} of the records",
            f"Training accuracy: {self.accuracy:.4f} ± {self.accuracy_stderr:.4f}",
        ]
        columns = ["(intercept)", *self.names]
        left = max(map(len, columns))
        width = max(22, *(len(label) + 2 for label in self.outputs))
        lines.append(" " * left + "".join(label.rjust(width) for label in self.outputs))
        for i, name in enumerate(columns):
            cells = [f"{row[i]:.4g}" for row in self.coefficients]
            if self.stderr is not None:
                cells = [f"{cell} ± {row[i]:.2g}" for cell, row in zip(cells, self.stderr, strict=True)]
            lines.append(name.ljust(left) + "".join(cell.rjust(width) for cell in cells))
        if self.stderr is None:
            why = "its loss has no slope" if self.loss == "pocket" else "the table is too large"
            lines.append(f"Standard errors of coefficients are left out: {why}.")
        elif self.counts != "unbiased" and self.negative > MUCH:
            lines.append("Projecting away so much biases the coefficients; the errors do not show it.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values that `from_dict` reads back to the same model."""
        return {
            **model_file.header(KIND),
            "n": self.n,
            "loss": self.loss,
            "ridge": self.ridge,
            "counts": self.counts,
            "negative": self.negative,
            "accuracy": self.accuracy,
            "accuracy_stderr": self.accuracy_stderr,
            "target": model_file.variable_values(self.target),
            "features": [
                {**model_file.variable_values(feature), "numbers": model_file.number_values(coding)}
                for feature, coding in zip(self.features, self.codings, strict=True)
            ],
            "columns": list(self.names),
            "coefficients": model_file.number_values(self.coefficients),
            "stderr": None if self.stderr is None else model_file.number_values(self.stderr),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinearClassifier:
        """Return the model that plain values describe; what is none is an `InputError`."""
        model_file.check_header(values, KIND)
        target = model_file.variable_of(model_file.entry(values, "target", dict))
        listed = model_file.entry(values, "features", list)
        features = tuple(model_file.variable_of(item) for item in listed)
        Schema((target, *features))
        codings = tuple(coding_of(item, feature) for item, feature in zip(listed, features, strict=True))
        names = tuple(map(str, model_file.entry(values, "columns", list)))
        if len(names) != sum(coding.shape[1] for coding in codings) or len(target) < 2:
            raise InputError("'columns' must name every number of the features; 'target' needs two classes.")
        shape = (1 if len(target) == 2 else len(target), 1 + len(names))
        errors = model_file.entry(values, "stderr", list, type(None))
        numbers = {
            key: float(model_file.entry(values, key, float, int))
            for key in ("accuracy", "accuracy_stderr", "negative", "ridge")
        }
        return cls(
            target=target,
            features=features,
            codings=codings,
            names=names,
            loss=one_of("loss", model_file.entry(values, "loss", str), get_args(Loss)),
            coefficients=model_file.array_of(
                model_file.entry(values, "coefficients", list), shape, "coefficients"
            ),
            stderr=None if errors is None else model_file.array_of(errors, shape, "stderr"),
            counts=one_of("counts", model_file.entry(values, "counts", str), get_args(Counts)[1:]),
            n=model_file.entry(values, "n", int),
            **numbers,
        )

    def save(self, path: str | Path) -> None:
        """Write the model as a JSON file."""
        model_file.save(self, path)


def winners(scores: Floats) -> NDArray[np.intp]:
    """Return the class codes from discriminants along the first axis; ties go to the first class."""
    if len(scores) == 1:
        return np.asarray(scores[0] > TIES, dtype=np.intp)
    best = scores.max(axis=0)
    return np.asarray((scores >= best - TIES * (1 + np.abs(best))).argmax(axis=0), dtype=np.intp)


def grid(codings: Sequence[Floats], coefficients: Floats) -> Floats:
    """Return intercept + Σ numbers·coefficients for every configuration, as an array over the features."""
    total = np.full((1,) * len(codings), coefficients[0])
    at = 1
    for axis, matrix in enumerate(codings):
        part = matrix @ coefficients[at : at + matrix.shape[1]]
        total = total + part.reshape([-1 if i == axis else 1 for i in range(len(codings))])
        at += matrix.shape[1]
    return total


def coding(variable: Variable, given: Sequence[float] | str | None) -> tuple[list[str], Floats]:
    """Return the names of a feature's columns and the numbers of its categories in them."""
    numbers = category_numbers(variable) if given is None else None
    if given is not None and not isinstance(given, str):
        numbers = np.asarray(given, dtype=float)
        if numbers.shape != (len(variable),) or not np.all(np.isfinite(numbers)):
            raise InputError(f"The scores of {variable.name!r} must be {len(variable)} finite numbers.")
    elif given is not None and given != "indicator":
        raise InputError(f"The scores of {variable.name!r} must be numbers or 'indicator'. Got {given!r}.")
    if numbers is not None:
        return [variable.name], numbers[:, None]
    return [f"{variable.name}={label}" for label in variable.categories[1:]], np.eye(len(variable))[:, 1:]


def coding_of(values: Mapping[str, Any], feature: Variable) -> Floats:
    """Return the numbers of a feature's categories from a file."""
    listed = model_file.entry(values, "numbers", list)
    columns = len(listed[0]) if listed and isinstance(listed[0], list) else 0
    return model_file.array_of(listed, (len(feature), columns), f"{feature.name}.numbers")


def one_of(name: str, given: str, known: Sequence[str]) -> Any:
    """Return what was given if it is known."""
    if given not in known:
        raise InputError(f"The {name!r} must be one of {', '.join(map(repr, known))}. Got {given!r} instead.")
    return given
