"""Mutations of bytes, of text and of JSON values: small, many, and from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

NUMBERS = (0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)
WORDS = (
    b"[" * 300, b'{"a":' * 120, b"]", b"}", b"9" * 400, b"9" * 5000, b"1e400", b"-1e400", b"1e-400", b"NaN",
    b"Infinity", b"\\ud800", b"\xed\xa0\x80", b"\xff\xfe", b"\x00", b"&a ", b"*a",
    b"<<: *a\n", b"? [a]: b\n", b"!!int x", b"!!binary AA==", b"!!python/object:os.system", b"null", b"true",
    b"-1", b"0", b"\r", b"\n\n", b",,,", b'"', b"'", b"|", b"(", b"))", b"table", b"1/0", b"1/3",
    b": ", b"- ", b"#", b"\t",
    b"\xe2\x80\xa8",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**63, 10**299, 1.5, -0.0, 1e300, "", "a", "inf", "nan", "1/3",
    "1/0", "x" * 3000, "\ud800", "\u0000", [], {}, [[]], [None], {"a": 1}, {"kind": "flip"}, [1, 2, 3],
    ["a", "a"], "1e400", {"kind": "symmetric", "p": 0.5}, {"kind": "composition", "steps": []},
    {"kind": "kuk", "p1": 0.1, "p2": 0.2}, {"kind": "additive", "noise": "gaussian", "scale": "1e300"},
    {"kind": "for_gamma", "gamma": 3}, [[0.5, 0.5]] * 2,
)  # fmt: skip


def mutated(seeds: Sequence[bytes], chance: random.Random, *, plain: bool) -> bytes:
    """Return a mutation of one of the seeds; where they are `plain`, often of the JSON values in it."""
    data = chance.choice(seeds)
    if plain and chance.random() < 0.5:
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            pass
        else:
            for _ in range(chance.randrange(1, 3)):
                values = _changed(values, chance)
            return json.dumps(values).encode()
    result = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        chance.choice(CHANGES)(result, seeds, chance)
    return bytes(result)


def _changed(values: Any, chance: random.Random) -> Any:
    """Return values with one of them replaced, left out, doubled or wrapped."""
    if isinstance(values, dict) and values and chance.random() < 0.85:
        key = chance.choice(list(values))
        kind = chance.random()
        if kind < 0.15:
            return {name: value for name, value in values.items() if name != key}
        if kind < 0.2:
            return {**values, chance.choice(("", "x", key + "x")): values[key]}
        return {**values, key: _changed(values[key], chance)}
    if isinstance(values, list) and values and chance.random() < 0.85:
        place, kind = chance.randrange(len(values)), chance.random()
        if kind < 0.1:
            return values[:place] + values[place + 1 :]
        if kind < 0.2:
            return values[: place + 1] + values[place:]
        return [*values[:place], _changed(values[place], chance), *values[place + 1 :]]
    if chance.random() < 0.1:
        wrapped = values
        for _ in range(chance.choice((1, 2, 150))):
            wrapped = [wrapped]
        return wrapped
    if isinstance(values, str) and chance.random() < 0.3:
        return values + chance.choice(("", "x", "\n", "$", "'", '"', "\u202e"))
    return chance.choice(VALUES)


def _flip(data: bytearray, _seeds: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _byte(data: bytearray, _seeds: Sequence[bytes], chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice((0, 1, 255, 127, 128, chance.randrange(256)))


def _number(data: bytearray, _seeds: Sequence[bytes], chance: random.Random) -> None:
    size = chance.choice((2, 4, 8))
    if len(data) >= size:
        at = chance.randrange(len(data) - size + 1)
        order = chance.choice(("big", "little"))
        data[at : at + size] = (chance.choice(NUMBERS) % 256**size).to_bytes(size, order)


def _cut(data: bytearray, _seeds: Sequence[bytes], chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _without(data: bytearray, _seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.choice((1, 1, 2, 8, 64))]


def _again(data: bytearray, _seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = data[at : at + chance.choice((1, 4, 16, 64))] * chance.choice((1, 1, 2, 30))


def _word(data: bytearray, _seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at : at + chance.choice((0, 0, 1, 4))] = chance.choice(WORDS)


def _splice(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    other = chance.choice(seeds)
    begin = chance.randrange(len(other) + 1)
    at = chance.randrange(len(data) + 1)
    data[at : at + chance.choice((0, 4, 32))] = other[begin : begin + chance.choice((4, 32, 256))]


CHANGES = (_flip, _byte, _number, _cut, _without, _again, _word, _splice)
