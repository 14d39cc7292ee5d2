"""A whole collection on one machine: certificates, identities, settings, a form and made-up people."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from masquerade.core.atomic import write_whole
from masquerade.services.common import certificates, identity_keys
from masquerade.services.parties.example import free_ports

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


def made_up(people: int, *, seed: int = 1) -> list[dict[str, str]]:
    """Return rows of made-up people, each with the name that the office knows them by."""
    generator = np.random.default_rng(seed)
    labels = {**FORM["quasi"], **FORM["sensitive"]}
    drawn = {
        name: generator.choice(len(labels[name]), people, p=weights) for name, weights in WEIGHTS.items()
    }
    return [
        {"person": f"P{i + 1:05d}", **{name: labels[name][codes[i]] for name, codes in drawn.items()}}
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
    """Write everything into a folder for each role; return the file of each role, rows and names."""
    tls = folder / "tls"
    tls.mkdir(parents=True)
    certificates.init(tls)
    at = dict(ports or free_ports((RANDOMNESS, COLLECTOR)))
    public: dict[str, dict[str, Any]] = {}
    for name in (RANDOMNESS, COLLECTOR, OFFICE):
        certificates.issue(tls, name)
        (folder / name).mkdir()
        public[name] = {"fingerprints": [certificates.fingerprint(tls / f"{name}.pem")]}
        if name != OFFICE:
            key = identity_keys.create(folder / name / "identity.key")
            public[name] |= {
                "url": f"https://127.0.0.1:{at[name]}",
                "identity": identity_keys.public_text(key),
            }
    _write(folder / "form.yaml", {"masquerade": 1, **(form or FORM)})
    shared = {"masquerade": 1, "form": "../form.yaml", "epoch": {"name": epoch, "k": k}}
    files = {name: folder / name / f"{name}.yaml" for name in (RANDOMNESS, COLLECTOR, OFFICE)}
    _write(
        files[RANDOMNESS],
        shared
        | _server(RANDOMNESS, at)
        | {"office": OFFICE, "collector": COLLECTOR}
        | {"peers": {OFFICE: public[OFFICE], COLLECTOR: public[COLLECTOR]}},
    )
    _write(
        files[COLLECTOR],
        shared
        | _server(COLLECTOR, at)
        | {"randomness": RANDOMNESS, "peers": {RANDOMNESS: public[RANDOMNESS]}},
    )
    known = {name: public[RANDOMNESS][name] for name in ("url", "fingerprints")}
    _write(files[OFFICE], {"masquerade": 1, "name": OFFICE, "tls": _tls(OFFICE), "randomness": known})
    files["collection"] = folder / "collection.yaml"
    _write(
        files["collection"],
        shared
        | {"form": "form.yaml", "authority": "tls/ca.pem"}
        | {RANDOMNESS: public[RANDOMNESS], COLLECTOR: public[COLLECTOR]},
    )
    files["rows"] = folder / "people.csv"
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_whole(files["rows"], text.getvalue(), private=True)
    files["names"] = folder / "people.txt"
    write_whole(files["names"], "".join(f"{row['person']}\n" for row in rows), private=True)
    return files


def commands(folder: Path, files: Mapping[str, Path]) -> list[str]:
    """Return the commands that run a collection that was written, in their order."""
    credentials, begin = folder / "credentials", "masquerade collect"
    sent = f"{begin} submit {files['rows']} --collection {files['collection']} --credential {credentials}"
    return [
        f"{begin} randomness serve {files[RANDOMNESS]} &",
        f"{begin} collector serve {files[COLLECTOR]} &",
        f"{begin} status --node {files[RANDOMNESS]}",
        f"{begin} enrol --from {files['names']} --office {files[OFFICE]} --out {credentials}",
        f"{sent} || true  # everybody has asked; reports wait for the closing",
        f"{begin} close --node {files[RANDOMNESS]}",
        sent,
        f"{begin} open --node {files[COLLECTOR]} --out {folder / 'rows.csv'}",
    ]


def _server(name: str, ports: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": name,
        "listen": {"port": ports[name]},
        "tls": _tls(name),
        "identity": "identity.key",
        "state": "state",
    }


def _tls(name: str) -> dict[str, str]:
    files = {"certificate": f"../tls/{name}.pem", "key": f"../tls/{name}.key"}
    return files | {"authority": "../tls/ca.pem"}


def _write(path: Path, values: Mapping[str, Any]) -> None:
    write_whole(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))
