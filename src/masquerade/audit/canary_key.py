"""Canaries, made-up records for a pipeline, and the key by which they are found again."""

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
    """Made-up people and their true values, in pairs of twins: the key by which they are read again.

    Keep it apart from the pipeline: whoever has it can tell canaries from people.

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
        """Write the key, readable by its owner only."""
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
        """Return the key in a file."""
        try:
            values = parse_json(read_private(Path(path), "a key of canaries"))
            if values["masquerade_canaries"] != FORMAT:
                raise FileError(f"{path}: this is no key of canaries.")
            codes = {str(name): np.array(own, dtype=np.int64) for name, own in values["codes"].items()}
            found = cls(str(values["policy"]), str(values["column"]), tuple(map(str, values["names"])), codes)
        except FileNotFoundError:
            raise FileError(f"{path}: there is no such file.") from None
        except (InputError, KeyError, TypeError, ValueError, AttributeError):
            raise FileError(f"{path}: this is no key of canaries.") from None
        if {len(own) for own in codes.values()} != {len(found.names)}:
            raise FileError(f"{path}: this is no key of canaries.")
        return found


def make_canaries(
    policy: Policy | str | Path, n: int = 10_000, *, column: str = COLUMN
) -> tuple[pd.DataFrame, Canaries]:
    """Return made-up records for a pipeline, and the key by which `read_canaries` reads what comes out.

    Values are drawn evenly over all categories, by the operating system's randomness; every record has a twin
    with the same values. `column` names them, for pipelines that keep a column or remember persons by one.

    >>> policy = mq.data.students_policy()
    >>> records, key = mq.audit.make_canaries(policy, n=200)
    >>> records.shape, list(records.columns)
    ((200, 5), ['canary', 'exams', 'year', 'pills', 'sleep'])
    """
    import pandas as pd  # noqa: PLC0415  (loaded when a frame is made)

    loaded = policy_of(policy)
    if n < FEWEST:
        raise InputError(f"{n:,} canaries show nothing: make {FEWEST:,} or more.")
    if column in loaded.schema or column in loaded.observed:
        raise InputError(f"{column!r} is a column of the policy: name the canaries' column otherwise.")
    for field in loaded.fields:
        if field.edges is not None:
            raise InputError(
                f"{field.variable.name!r} is read from numbers in bins: canaries have categories only."
            )
    half = n // 2
    generator = np.random.default_rng(secrets.randbits(256))
    once = {name: generator.integers(0, len(loaded.schema[name]), half) for name in loaded.schema}
    order = generator.permutation(2 * half)
    codes = {name: np.concatenate([own, own])[order] for name, own in once.items()}
    names = tuple(f"c{secrets.token_hex(6)}" for _ in range(2 * half))
    frame = pd.DataFrame(
        {column: list(names)}
        | {
            name: np.array(loaded.schema[name].categories, dtype=object)[codes[name]].tolist()
            for name in loaded.schema
        }
    )
    return frame, Canaries(loaded.id, column, names, codes)
