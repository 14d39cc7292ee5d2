"""A survey as people export it: 40 columns with identifiers, free text, numbers, codes and slips."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np


def write_messy_survey(path: Path, rows: int, seed: int = 3) -> None:
    """Write a CSV file of 40 columns, of which 32 can be variables."""
    draw = np.random.default_rng(seed)
    columns: dict[str, list[str]] = {
        "Respondent ID": [f"R{100_000 + row}" for row in range(rows)],
        "e-mail": [f"p{row}@example.org" for row in range(rows)],
        "Submitted at": [f"2026-03-{1 + row % 28:02d} {row % 24:02d}:{row % 60:02d}" for row in range(rows)],
        "age (years)": [str(age) if age > 17 else "k.A." for age in draw.integers(15, 95, rows)],
        "income": [
            "" if row % 14 == 3 else f"{pay:.2f}" for row, pay in enumerate(draw.lognormal(8, 1, rows))
        ],
        "postcode": [f"{code:05d}" for code in draw.integers(1000, 99_999, rows)],
        "comments": ["" if row % 5 else f"some text, number {row}" for row in range(rows)],
        "country": draw.choice(["DE"] * 50 + [f"C{code}" for code in range(30)], rows).tolist(),
        "sex": draw.choice(["m", "f", "F ", " m", "d"], rows, p=[0.48, 0.48, 0.01, 0.01, 0.02]).tolist(),
        "wave": ["first"] * rows,
        "empty": [""] * rows,
        "smoker: yes/no?": draw.choice(["yes", "no", "Yes", ""], rows, p=[0.2, 0.75, 0.03, 0.02]).tolist(),
        "#children": np.minimum(draw.poisson(1.2, rows), 6).astype(str).tolist(),
        "satisfied": draw.integers(1, 8, rows).astype(str).tolist(),
    }
    for question in range(1, 17):
        columns[f"Q{question}"] = draw.choice(["1", "2"], rows, p=[0.2, 0.8]).tolist()
    for question in range(1, 7):
        columns[f"L{question}"] = draw.choice(["1", "2", "3", "4", "5", ""], rows).tolist()
    columns["null"] = draw.choice(["a", "b"], rows).tolist()
    columns["region, home"] = draw.choice(["north", "south", "east", "west"], rows).tolist()
    columns["region, work"] = draw.choice(["north", "south", "east", "west", "none"], rows).tolist()
    columns["height"] = [f"{tall:.1f}" for tall in draw.normal(172, 9, rows)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
