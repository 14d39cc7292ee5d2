"""QR codes of short texts: for an address in the terminal and in the letter.

Byte mode, error correction M, versions 1 to 10 (up to 213 bytes), after ISO/IEC 18004.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from masquerade.core.errors import InputError

# by version: codewords in all, correction codewords of a block, blocks (level M)
_SIZES: Final = (
    (26, 10, 1), (44, 16, 1), (70, 26, 1), (100, 18, 2), (134, 24, 2),
    (172, 16, 4), (196, 18, 4), (242, 22, 4), (292, 22, 5), (346, 26, 5),
)  # fmt: skip
_ALIGNED: Final = (
    (),
    (6, 18),
    (6, 22),
    (6, 26),
    (6, 30),
    (6, 34),
    (6, 22, 38),
    (6, 24, 42),
    (6, 26, 46),
    (6, 28, 50),
)
_MASKS: Final = (
    lambda r, c: (r + c) % 2, lambda r, c: (r + 0 * c) % 2, lambda r, c: (c + 0 * r) % 3,
    lambda r, c: (r + c) % 3,
    lambda r, c: (r // 2 + c // 3) % 2, lambda r, c: r * c % 2 + r * c % 3,
    lambda r, c: (r * c % 2 + r * c % 3) % 2, lambda r, c: ((r + c) % 2 + r * c % 3) % 2,
)  # fmt: skip
_FINDER: Final = [1, 0, 1, 1, 1, 0, 1]

Grid = list[list[int]]
_EXP: list[int] = [1]
for _ in range(254):
    _EXP.append(_EXP[-1] << 1 ^ (0x11D if _EXP[-1] & 128 else 0))
_LOG: Final = {value: power for power, value in enumerate(_EXP)}


def _times(a: int, b: int) -> int:
    return 0 if not a or not b else _EXP[(_LOG[a] + _LOG[b]) % 255]


def _correction(data: list[int], size: int) -> list[int]:
    """Return the Reed–Solomon codewords of a block."""
    generator = [1]
    for power in range(size):
        shifted = [*generator, 0]
        for i, value in enumerate(generator):
            shifted[i + 1] ^= _times(value, _EXP[power])
        generator = shifted
    rest = [*data, *[0] * size]
    for i in range(len(data)):
        factor = rest[i]
        for j, value in enumerate(generator):
            rest[i + j] ^= _times(value, factor)
    return rest[len(data) :]


def _codewords(content: bytes, version: int) -> list[int]:
    total, size, blocks = _SIZES[version - 1]
    room = total - size * blocks
    length = 8 if version < 10 else 16
    bits = f"{4:04b}{len(content):0{length}b}" + "".join(f"{byte:08b}" for byte in content)
    bits = (bits + "0000")[: 8 * room]
    bits += "0" * (-len(bits) % 8)
    data = [int(bits[i : i + 8], 2) for i in range(0, len(bits), 8)]
    data += [(236, 17)[i % 2] for i in range(room - len(data))]
    short = room // blocks
    parts, at = [], 0
    for i in range(blocks):
        own = short + (i >= blocks - room % blocks)
        parts.append(data[at : at + own])
        at += own
    corrections = [_correction(part, size) for part in parts]
    mixed = [part[i] for i in range(short + 1) for part in parts if i < len(part)]
    return mixed + [part[i] for i in range(size) for part in corrections]


def _bch(value: int, polynomial: int, size: int) -> int:
    rest = value << size
    while rest.bit_length() > size:
        rest ^= polynomial << (rest.bit_length() - polynomial.bit_length())
    return value << size | rest


def qr_code(text: str) -> Grid:
    """Return the modules of a QR code, 1 for dark, row by row, without the quiet zone of 4.

    >>> len(qr_code("https://example.org/"))
    25
    """
    content = text.encode()
    for version, (total, size, blocks) in enumerate(_SIZES, start=1):
        if len(content) <= total - size * blocks - (2 if version < 10 else 3):
            break
    else:
        raise InputError("This text is too long for a QR code: at most 213 bytes.")
    grid, free = _patterns(version)
    _fill(grid, free, _codewords(content, version))
    return min((_masked(grid, free, version, mask) for mask in range(8)), key=_penalty)


def _patterns(version: int) -> tuple[Grid, list[list[bool]]]:
    """Return what every code of a version has, and which modules are left for data."""
    n = 17 + 4 * version
    grid, free = [[0] * n for _ in range(n)], [[True] * n for _ in range(n)]

    def put(r: int, c: int, dark: int) -> None:
        if 0 <= r < n and 0 <= c < n:
            grid[r][c], free[r][c] = dark, False

    for i in range(n):
        put(6, i, 1 - i % 2)
        put(i, 6, 1 - i % 2)
    corners = ((0, 0), (0, n - 7), (n - 7, 0))
    for (r, c), dr, dc in product(corners, range(-1, 8), range(-1, 8)):
        put(r + dr, c + dc, int(max(abs(dr - 3), abs(dc - 3)) in {0, 1, 3}))
    centres = set(product(_ALIGNED[version - 1], repeat=2)) - {(6, 6), (6, n - 7), (n - 7, 6)}
    for (r, c), dr, dc in product(sorted(centres), range(-2, 3), range(-2, 3)):
        put(r + dr, c + dc, int(max(abs(dr), abs(dc)) != 1))
    for i in range(8):  # left for the format, which tells the mask
        free[8][i] = free[i][8] = free[8][n - 1 - i] = free[n - 1 - i][8] = False
    free[8][8] = False
    put(n - 8, 8, 1)
    if version >= 7:
        bits = _bch(version, 0x1F25, 12)
        for i in range(18):
            put(n - 11 + i % 3, i // 3, bits >> i & 1)
            put(i // 3, n - 11 + i % 3, bits >> i & 1)
    return grid, free


def _fill(grid: Grid, free: list[list[bool]], codewords: list[int]) -> None:
    n, bits = len(grid), "".join(f"{word:08b}" for word in codewords)
    at = 0
    for k, right in enumerate(c for c in range(n - 1, 0, -2)):
        column = right if right > 6 else right - 1
        rows = range(n - 1, -1, -1) if k % 2 == 0 else range(n)
        for r, c in product(rows, (column, column - 1)):
            if free[r][c]:
                grid[r][c] = int(bits[at]) if at < len(bits) else 0
                at += 1


def _masked(grid: Grid, free: list[list[bool]], version: int, mask: int) -> Grid:
    n = 17 + 4 * version
    found = [[grid[r][c] ^ (free[r][c] and _MASKS[mask](r, c) == 0) for c in range(n)] for r in range(n)]
    bits = _bch(mask, 0x537, 10) ^ 0x5412  # level M is 00
    for i in range(15):
        bit = bits >> i & 1
        near = i if i < 6 else i + 1 if i < 8 else 14 - i if i > 8 else 7
        if i < 8:
            found[near][8] = found[8][n - 1 - i] = bit
        else:
            found[8][near] = found[n - 15 + i][8] = bit
    return found


def _penalty(grid: Grid) -> int:
    n, lines = len(grid), [*grid, *map(list, zip(*grid, strict=True))]
    score = 0
    for line in lines:
        run = 1
        for a, b in zip(line, [*line[1:], -1], strict=True):
            run, score = (run + 1, score) if a == b else (1, score + (run - 2 if run >= 5 else 0))
        for i in range(n - 6):
            if line[i : i + 7] == _FINDER:
                before, after = line[max(0, i - 4) : i], line[i + 7 : i + 11]
                score += 40 * (not any(before) or not any(after))
    score += 3 * sum(
        grid[r][c] == grid[r][c + 1] == grid[r + 1][c] == grid[r + 1][c + 1]
        for r, c in product(range(n - 1), repeat=2)
    )
    return score + 10 * int(abs(sum(map(sum, grid)) * 20 - n * n * 10) / (n * n))


def in_terminal(text: str) -> str:
    """Return a QR code as half blocks, dark on light whatever the terminal's colours are."""
    code = qr_code(text)
    n = len(code)
    wide = [[0] * (n + 8) for _ in range(4)]
    rows = [*wide, *([0] * 4 + row + [0] * 4 for row in code), *wide, [0] * (n + 8)]
    marks = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
    lines = ["".join(marks[a, b] for a, b in zip(*rows[i : i + 2], strict=True)) for i in range(0, n + 8, 2)]
    return "\n".join(f"\033[97;40m{line}\033[0m" for line in lines) + "\n"


def in_svg(text: str) -> str:
    """Return a QR code as an SVG picture with its quiet zone."""
    code = qr_code(text)
    n = len(code) + 8
    path = "".join(
        f"M{c + 4} {r + 4}h1v1h-1z" for r, row in enumerate(code) for c, dark in enumerate(row) if dark
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {n} {n}" role="img" aria-label="QR: {text}">'
        f'<path fill="#fff" d="M0 0h{n}v{n}H0z"/><path d="{path}"/></svg>'
    )
