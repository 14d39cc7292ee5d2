"""A disguised file, its release, and a small network: made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.interop import About, write_release

POLICY = mq.Policy.build(
    {"smoker": ["yes", "no"], "age": [1, 2, 3], "region": ["north", "south & west"]},
    {"smoker": mq.channels.binary("1/4"), "age": mq.channels.for_gamma(3, 3)},
)


@pytest.fixture(scope="session")
def people() -> pd.DataFrame:
    chance = np.random.default_rng()
    return pd.DataFrame(
        {
            "smoker": chance.choice(["yes", "no"], 600, p=[0.3, 0.7]),
            "age": chance.choice([1, 2, 3], 600),
            "region": chance.choice(["north", "south & west"], 600),
            "name": [f"person {i}" for i in range(600)],
        }
    )


@pytest.fixture(scope="session")
def disguised(tmp_path_factory, people) -> Path:
    folder = tmp_path_factory.mktemp("disguised")
    people.to_csv(folder / "people.csv", index=False)
    mq.disguise_file(folder / "people.csv", folder / "disguised.csv", POLICY, keep=["name"])
    return folder / "disguised.csv"


@pytest.fixture(scope="session")
def release(tmp_path_factory, disguised) -> Path:
    about = About(
        title="Smokers & others",
        creator="An office",
        license="https://creativecommons.org/licenses/by/4.0/",
        url="https://example.org/smokers",
    )
    folder = tmp_path_factory.mktemp("release") / "release"
    write_release(disguised, POLICY, folder, about=about, tables=[["smoker", "region"]], attacker=False)
    return folder


@pytest.fixture
def network() -> mq.learn.BayesianNetwork:
    schema = mq.Schema({"a": ["yes", "no"], "b": ["x", "z", "w"], "c": [0, 1]})
    chance = np.random.default_rng()
    return mq.learn.known_network(
        schema,
        {"a": (), "c": ("b", "a"), "b": ("a",)},
        {
            "a": chance.dirichlet([1, 1]),
            "b": chance.dirichlet([1, 1, 1], 2),
            "c": chance.dirichlet([1, 1], (3, 2)),
        },
    )
