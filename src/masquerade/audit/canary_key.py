"""Canaries, synthetic records for a pipeline, and the key that identifies them in its output."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy, policy_of
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import parse_json
from masquerade.core.util.private_file import read_private

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
COLUMN = "canary"
FEWEST = 200
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Canaries:
    """Key of synthetic records: their names and true values. Every record has a twin with the same values.

    Keep the key away from the pipeline: anyone who has it can distinguish canaries from people.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> records, key = mq.audit.make_canaries(policy, n=200)
    >>> key.save("key.json")
    >>> mq.audit.Canaries.load("key.json").policy_id == policy.id
    True
    """

    policy_id: str
    column: str
    names: tuple[str, ...]
    codes: Mapping[str, Codes]

    def save(self, path: str | Path) -> None:
        """Write the key to a file that only its owner can read."""
        values = {
            "masquerade_canaries": FORMAT,
            "policy": self.policy_id,
            "column": self.column,
            "names": list(self.names),
            "codes": {name: codes.tolist() for name, codes in self.codes.items()},
        }
        write_whole(Path(path), json.dumps(values), private=True)

    @classmethod
    def load(cls, path: str | Path) -> Canaries:
        """Load a key from a file.

        Raises
        ------
        FileError
            If the file does not exist or is not a key of canaries.
        """
        try:
            values = parse_json(read_private(Path(path), "a key of canaries"))
            if values["masquerade_canaries"] != FORMAT:
                raise FileError(f"{path}: this is not a key of canaries.")
            codes = {str(name): np.array(column, dtype=np.int64) for name, column in values["codes"].items()}
            key = cls(str(values["policy"]), str(values["column"]), tuple(map(str, values["names"])), codes)
        except FileNotFoundError:
            raise FileError(f"{path}: file not found.") from None
        except (InputError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise FileError(f"{path}: this is not a key of canaries.") from None
        if {column.shape for column in codes.values()} != {(len(key.names),)}:
            raise FileError(f"{path}: this is not a key of canaries.")
        return key


def make_canaries(
    policy: Policy | str | Path, n: int = 10_000, *, column: str = COLUMN
) -> tuple[pd.DataFrame, Canaries]:
    """Make synthetic records for a pipeline, and the key by which `read_canaries` finds them.

    Values are drawn uniformly over all categories with the operating system's randomness. Every record has a
    twin with the same values.

    Parameters
    ----------
    policy : Policy or path
        Policy that the pipeline should follow.
    n : int, optional
        Number of canaries, rounded down to an even number.
    column : str, optional
        Column that names the canaries, for pipelines that keep a column or store reports by person.

    Returns
    -------
    records : pandas.DataFrame
        Canaries to feed to the pipeline.
    key : Canaries
        Key for `read_canaries`.

    Raises
    ------
    InputError
        If `n` is below 200, `column` is a column of the policy, or a variable is a number cut into bins.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> records, key = mq.audit.make_canaries(policy, n=200)
    >>> records.shape, list(records.columns)
    ((200, 5), ['canary', 'exams', 'year', 'pills', 'sleep'])
    """
    import pandas as pd  # noqa: PLC0415  (loaded when a frame is made)

    loaded = policy_of(policy)
    if n < FEWEST:
        raise InputError(f"{n:,} canaries are too few to show anything: make {FEWEST:,} or more.")
    if column in loaded.schema or column in loaded.observed:
        raise InputError(
            f"{column!r} is a column of the policy: choose a different name for the canaries' column."
        )
    for field in loaded.fields:
        if field.edges is not None:
            raise InputError(
                f"{field.variable.name!r} is a number cut into bins: canaries can have categories only."
            )
    half = n // 2
    generator = np.random.default_rng(secrets.randbits(256))
    once = {name: generator.integers(0, len(loaded.schema[name]), half) for name in loaded.schema}
    order = generator.permutation(2 * half)
    codes = {name: np.concatenate([half_codes, half_codes])[order] for name, half_codes in once.items()}
    names = tuple(f"c{secrets.token_hex(6)}" for _ in range(2 * half))
    frame = pd.DataFrame(
        {column: list(names)}
        | {
            name: np.array(loaded.schema[name].categories, dtype=object)[codes[name]].tolist()
            for name in loaded.schema
        }
    )
    return frame, Canaries(loaded.id, column, names, codes)
