"""The owners' side of a projection: products of own columns, turned by randomness that all owners share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from masquerade.core.axes import Floats
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.crypto.symmetric import KeyedStream, code
from masquerade.estimate.rotation import Normals, Reduction, rotated
from masquerade.estimate.walsh import product_columns

SECRET_BYTES = 32


def question_id(names: Sequence[str]) -> str:
    """Return the id of a question about some variables, whatever is asked about them."""
    return Query(by=sorted(names)).id


def shared_normals(secret: bytes, question: str) -> Normals:
    """Return standard normal numbers that everybody who knows the secret can repeat for this question.

    The bytes are AES-256 in counter mode under a key of its own for every question; 53 bits make a number.
    """
    stream = KeyedStream(code(secret, f"masquerade projection {question}".encode()))

    def normals(n: int) -> Floats:
        words = np.frombuffer(stream.read(8 * n), dtype="<u8")
        return np.asarray(ndtri(((words >> np.uint64(11)) + 0.5) * 2.0**-53), dtype=np.float64)

    return normals


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """Somebody who holds some columns of all records, and shares a secret with the other owners."""

    name: str
    schema: Schema
    codes: Mapping[str, NDArray[Any]]
    secret: bytes = field(repr=False)

    def table(self, names: Sequence[str]) -> Floats:
        """Return the exact counts of own variables."""
        shape = self.schema.shape(names)
        records = len(next(iter(self.codes.values())))
        cells = np.zeros(records, dtype=np.int64)
        for name, size in zip(names, shape, strict=True):
            cells = cells * size + self.codes[name]
        return np.bincount(cells, minlength=int(np.prod(shape))).astype(np.float64).reshape(shape)

    def submit(self, names: Sequence[str], asked: Sequence[str], reduction: Reduction | None) -> Floats:
        """Return the projected products of own variables, one a row, the empty product left out.

        `asked` are all variables of the question, the same for all owners: the projection is drawn for them
        alone, so two questions share none, and one that is asked again gets the columns it got before.
        """
        columns = product_columns([self.codes[name] for name in names], self.schema.shape(names))[1:]
        normals = shared_normals(self.secret, question_id(asked))
        return rotated(columns, normals) if reduction is None else reduction.project(columns, normals)
