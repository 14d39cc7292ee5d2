"""An example count on one machine: certificates, identities, settings, a policy and synthetic people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.services.common.example_deployment import ExampleDeployment
from masquerade.services.counting.messages import SUPPRESSION

MINER, OFFICE, RANDOMNESS = "miner", "office", "randomness"
VARIABLES: Final[Mapping[str, Sequence[str]]] = {
    "smoker": ["yes", "no"],
    "region": ["north", "south"],
    "illness": ["none", "asthma"],
}


def example_records(people: int) -> list[dict[str, str]]:
    """Return records of synthetic people, always the same; smokers are ill more often."""
    records = []
    for i in range(people):
        smoker, region = i % 3 == 0, i % 2 == 0
        ill = i % 4 == 0 if smoker else i % 7 == 0
        records.append(
            {
                "smoker": "yes" if smoker else "no",
                "region": "north" if region else "south",
                "illness": "asthma" if ill else "none",
            }
        )
    return records


def write_count(
    folder: Path,
    *,
    protocol: str,
    records: Sequence[Mapping[str, Any]],
    policy: Mapping[str, Any] | None = None,
    leaders: int = 2,
    name: str = "example",
    ports: Mapping[str, int] | None = None,
    **more: Any,
) -> dict[str, Path]:
    """Write the files of all roles, in one subfolder per server; return the settings file of each role.

    The result also has the paths "count", "names" and "records". `more` has further fields of the count's
    description (`minimum`, `colluders`, …), and `patience` for the miner's file.
    """
    if not records:
        raise InputError("A count needs people.")
    suppressing = protocol == SUPPRESSION
    leading = [f"leader{i + 1}" for i in range(leaders)] if protocol == "mix" or suppressing else []
    helping = [RANDOMNESS] if suppressing else []
    deployment = ExampleDeployment(folder, (MINER, *leading, *helping), (OFFICE,), ports)
    nodes = deployment.known
    variables = {one: {"categories": list(labels)} for one, labels in VARIABLES.items()}
    write_whole(
        folder / "policy.yaml",
        yaml.safe_dump(dict(policy or {"masquerade": 1, "variables": variables}), sort_keys=False),
    )
    patience = {"patience": more.pop("patience")} if "patience" in more else {}
    described = {"masquerade": 1, "name": name, "protocol": protocol, "policy": "policy.yaml", **more}
    described |= {"miner": nodes[MINER]["identity"]}
    if leading:
        described["leaders"] = {one: nodes[one]["identity"] for one in leading}
    if suppressing:
        described |= {"randomness": nodes[RANDOMNESS]["identity"]}
    files = {"count": deployment.write("count.yaml", described)}
    shared = {"count": "../count.yaml", "office": OFFICE}
    called = {one: nodes[one] for one in (OFFICE, *leading, *helping)}
    more_of_miner = patience | ({"randomness": RANDOMNESS} if suppressing else {})
    files[MINER] = deployment.write(
        f"{MINER}/{MINER}.yaml", deployment.settings(MINER) | shared | {"peers": called} | more_of_miner
    )
    for one in helping:
        peers = {OFFICE: nodes[OFFICE], MINER: nodes[MINER]}
        files[one] = deployment.write(
            f"{one}/{one}.yaml", deployment.settings(one) | shared | {"evaluates_for": MINER, "peers": peers}
        )
    for one in leading:
        peers = {OFFICE: nodes[OFFICE], MINER: nodes[MINER]}
        files[one] = deployment.write(
            f"{one}/{one}.yaml", deployment.settings(one) | shared | {"miner": MINER, "peers": peers}
        )
    reached = {
        one: {key: nodes[one][key] for key in ("url", "fingerprints")} for one in (MINER, *leading, *helping)
    }
    office = {"masquerade": 1, "name": OFFICE, "count": "../count.yaml", "tls": deployment.tls(OFFICE)}
    office |= {"miner": reached[MINER], "leaders": {one: reached[one] for one in leading}}
    office |= {one: reached[one] for one in helping}
    files[OFFICE] = deployment.write(f"{OFFICE}/{OFFICE}.yaml", office)
    files["records"] = folder / "records"
    files["records"].mkdir(mode=0o700)
    names = [f"P{i + 1:05d}" for i in range(len(records))]
    for one, record in zip(names, records, strict=True):
        write_whole(files["records"] / f"{one}.json", json.dumps(dict(record)) + "\n", private=True)
    files["names"] = folder / "people.txt"
    write_whole(files["names"], "".join(f"{one}\n" for one in names), private=True)
    return files


def commands(folder: Path, files: Mapping[str, Path]) -> list[str]:
    """Return the commands that run an example count, in order."""
    begin, people = "masquerade count", folder / "people"
    servers = [one for one in files if one.startswith("leader") or one in (MINER, RANDOMNESS)]
    serving = [f"{begin} serve {files[one]} &" for one in servers]
    suppressing = RANDOMNESS in files
    part = f"{begin} take-part {people}/$p.person --record {files['records']}/$p.json"
    part += " --accept-clear" * suppressing
    learning = f"mq.learn.naive_bayes(mq.people.count('{files[MINER]}'), 'illness').summary()"
    return [
        *serving,
        f"{begin} enrol --from {files['names']} --office {files[OFFICE]} --out {people}",
        f"for p in $(cat {files['names']}); do {part} & done",
        *([] if suppressing else [f'python -c "import masquerade as mq; print({learning})"']),
        f"{begin} close --node {files[MINER]}",
        *([f"{begin} table --node {files[MINER]}"] if suppressing else []),
    ]
