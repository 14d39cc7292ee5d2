"""An example collection on one machine: certificates, identities, settings, a form and synthetic people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from masquerade.core.util.atomic import write_whole
from masquerade.services.common.example_deployment import ExampleDeployment

RANDOMNESS, COLLECTOR, OFFICE = "randomness", "collector", "office"
FORM: Final[dict[str, dict[str, list[str]]]] = {
    "quasi": {
        "age": ["under 30", "30 to 59", "60 and over"],
        "sex": ["female", "male"],
        "region": ["north", "south", "islands"],
    },
    "sensitive": {"illness": ["none", "asthma", "diabetes", "depression"]},
}
# the islands are rare, so that some classes stay below k
WEIGHTS: Final[Mapping[str, tuple[float, ...]]] = {
    "age": (0.3, 0.45, 0.25),
    "sex": (0.5, 0.5),
    "region": (0.6, 0.35, 0.05),
    "illness": (0.7, 0.12, 0.1, 0.08),
}


def draw_example_rows(people: int, *, seed: int = 1) -> list[dict[str, str]]:
    """Draw rows of synthetic people, each with the name under which the office enrols them."""
    generator = np.random.default_rng(seed)
    labels = {**FORM["quasi"], **FORM["sensitive"]}
    codes = {
        name: generator.choice(len(labels[name]), people, p=weights) for name, weights in WEIGHTS.items()
    }
    return [
        {"person": f"P{i + 1:05d}", **{name: labels[name][column[i]] for name, column in codes.items()}}
        for i in range(people)
    ]


def write_collection(
    folder: Path,
    *,
    k: int,
    rows: Sequence[Mapping[str, str]],
    form: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
    epoch: str = "example",
    ports: Mapping[str, int] | None = None,
) -> dict[str, Path]:
    """Write the files of all roles, in one subfolder per server; return the settings file of each role.

    Parameters
    ----------
    folder : Path
        New folder.
    k : int
        Smallest number of rows in a class that opens.
    rows : sequence of mapping
        Rows with the key "person".
    form : mapping, optional
        Variables with their categories; by default an example.
    epoch : str
        Name of the epoch.
    ports : mapping of str to int, optional
        Port of each server; by default free ports.

    Returns
    -------
    dict of str to Path
        Files by role; also "collection", "rows" and "names".
    """
    made = ExampleDeployment(folder, (RANDOMNESS, COLLECTOR), (OFFICE,), ports)
    known = made.known
    made.write("form.yaml", {"masquerade": 1, **(form or FORM)})
    shared = {"masquerade": 1, "form": "../form.yaml", "epoch": {"name": epoch, "k": k}}
    files = {
        RANDOMNESS: made.write(
            f"{RANDOMNESS}/{RANDOMNESS}.yaml",
            shared
            | made.settings(RANDOMNESS)
            | {"office": OFFICE, "collector": COLLECTOR}
            | {"peers": {OFFICE: known[OFFICE], COLLECTOR: known[COLLECTOR]}},
        ),
        COLLECTOR: made.write(
            f"{COLLECTOR}/{COLLECTOR}.yaml",
            shared
            | made.settings(COLLECTOR)
            | {"randomness": RANDOMNESS, "peers": {RANDOMNESS: known[RANDOMNESS]}},
        ),
        OFFICE: made.write(
            f"{OFFICE}/{OFFICE}.yaml",
            {"masquerade": 1, "name": OFFICE, "tls": made.tls(OFFICE)}
            | {"randomness": {name: known[RANDOMNESS][name] for name in ("url", "fingerprints")}},
        ),
        "collection": made.write(
            "collection.yaml",
            shared
            | {"form": "form.yaml", "authority": "tls/ca.pem"}
            | {RANDOMNESS: known[RANDOMNESS], COLLECTOR: known[COLLECTOR]},
        ),
    }
    files |= {"rows": folder / "people.csv", "names": folder / "people.txt"}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_whole(files["rows"], text.getvalue(), private=True)
    write_whole(files["names"], "".join(f"{row['person']}\n" for row in rows), private=True)
    return files


def commands(folder: Path, files: Mapping[str, Path]) -> list[str]:
    """Return the commands that run an example collection, in order."""
    credentials, begin = folder / "credentials", "masquerade collect"
    sent = f"{begin} submit {files['rows']} --collection {files['collection']} --credential {credentials}"
    return [
        f"{begin} randomness serve {files[RANDOMNESS]} &",
        f"{begin} collector serve {files[COLLECTOR]} &",
        f"{begin} status --node {files[RANDOMNESS]}",
        f"{begin} enrol --from {files['names']} --office {files[OFFICE]} --out {credentials}",
        f"{sent} || true  # all requests are sent; reports wait for the closing",
        f"{begin} close --node {files[RANDOMNESS]}",
        sent,
        f"{begin} open --node {files[COLLECTOR]} --out {folder / 'rows.csv'}",
    ]
