# ruff: noqa: E501, I001, PLC0415, S603  (modules of the first version, loaded where they are needed)
"""Make the files under ``v0_1/`` with the first version, as its users did: run once, kept to show how.

The first version is commit a2c7d1b (0.1.0). From the root of this repository, in an environment of that
version (`make test` there makes one)::

    git worktree add /tmp/first a2c7d1b
    PYTHONPATH=/tmp/first/src python tests/compatibility/make_files.py tests/compatibility/v0_1

Names of modules here are those of the first version. Whatever that version says about the files (ids, counts,
predictions, models of sessions) goes into ``expected.json``: the tests compare with it. Sessions are real:
services on loopback behind TLS, three parties and a miner.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from first_version import never_moved

import masquerade as mq

VERSION = "0.1.0"
HUNDRED_YEARS = 36_500  # days; a service's own certificate holds for a year, but these must outlast the tests

POLICY = """\
masquerade: 1
title: Every kind of channel but those of strata and groups
variables:
  region: {categories: [north, south]}
  identity: {categories: [a, b], channel: {kind: identity}}
  binary: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  sensitive: {categories: ["yes", "no"], channel: {kind: binary, p1: 0.1, p2: 0.25}}
  visits: {categories: [0, 1, 2, not stated], missing: not stated, channel: {kind: symmetric, p: 0.3}}
  ternary: {categories: [1, 2, 3], channel: {kind: ternary, p: 0.15}}
  ring: {categories: [1, 2, 3], channel: {kind: ternary, p1: 0.1, p2: 0.2}}
  grouped: {categories: [a, b, c, d], channel: {kind: grouped, groups: [[a, b], [c, d]], p: 0.2}}
  mixed:
    categories: [a, b, c, d]
    channel: {kind: grouped, groups: [[a, d], [b, c]], channels: [{kind: binary, p: 0.2}, {kind: warner, p: 0.8}]}
  matrix:
    categories: ["yes", "no"]
    channel: {kind: matrix, rows: [[0.7, 0.2, 0.1], ["1/4", "1/4", "1/2"]], reports: [high, middle, low]}
  warner: {categories: ["yes", "no"], channel: {kind: warner, p: 0.7}}
  unrelated: {categories: ["yes", "no"], channel: {kind: unrelated_question, p: 0.7, prevalence: 0.25}}
  forced: {categories: ["yes", "no"], channel: {kind: forced_response, p_yes: "1/6", p_no: "1/6"}}
  crosswise: {categories: ["yes", "no"], channel: {kind: crosswise, p: 0.25}}
  kuk: {categories: ["yes", "no"], channel: {kind: kuk, p1: 0.8, p2: 0.2, cards: 2}}
  gamma: {bins: [0, 20, 40, 120], missing: not stated, channel: {kind: for_gamma, gamma: 9}, note: by decade}
  epsilon: {categories: [a, b, c], channel: {kind: for_epsilon, epsilon: 1.5}}
  invariant:
    categories: ["yes", "no"]
    channel: {kind: invariant, prior: [0.2, 0.8], base: {kind: binary, p: 0.25}, strength: 0.5}
  income: {bins: [0, 10, 20, 30, 40], channel: {kind: additive, noise: uniform, scale: 10, margin: 1}}
  height: {bins: [150, 160, 170, 180], channel: {kind: additive, noise: gaussian, scale: 5}}
  twice: {categories: ["yes", "no"], channel: {kind: composition, steps: [{kind: binary, p: 0.1}, {kind: warner, p: 0.8}]}}
"""
GROUPS = """\
masquerade: 1
title: Groups and strata
variables:
  region: {categories: [north, south]}
  smoker: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  cough: {categories: [true, false]}
  asthma: {categories: [true, false]}
  item1: {categories: ["yes", "no"]}
  item2: {categories: [low, middle, high]}
joint:
  - variables: [cough, asthma]
    channel: {kind: symmetric, p: 0.3}
  - variables: [item1, item2]
    channel: {kind: flip, theta: 0.7, groups: [[item1, item2]], opposites: {item2: [high, middle, low]}}
strata:
  by: region
  channels:
    south: {smoker: {kind: binary, p: 0.1}}
"""
SURVEY = """\
masquerade: 1
title: A survey
variables:
  region: {categories: [north, south]}
  smoker: {categories: ["yes", "no"], channel: {kind: binary, p: 0.1}}
  cough: {categories: ["yes", "no"], channel: {kind: binary, p: 0.1}}
  age: {bins: [0, 30, 60, 120], channel: {kind: for_gamma, gamma: 9}}
"""
HIERARCHIES = {
    "hierarchies": 1,
    "columns": {"age": {"ranges": [10, 20], "start": 0}, "region": {"tree": {"land": ["north", "south"]}}},
}


def survey_people(n: int) -> pd.DataFrame:
    """Return made-up people whose cough follows their smoking."""
    random = np.random.default_rng(1)
    smoker = random.random(n) < 0.4
    cough = random.random(n) < np.where(smoker, 0.7, 0.2)
    return pd.DataFrame(
        {
            "person": [f"P{i:03d}" for i in range(n)],
            "region": random.choice(["north", "south"], n),
            "smoker": np.where(smoker, "yes", "no"),
            "cough": np.where(cough, "yes", "no"),
            "age": random.integers(0, 100, n),
        }
    )


def policies(to: Path, said: dict) -> None:
    """Write policies by hand and by the library, in both file formats."""
    to.mkdir()
    for name, text in {"kinds": POLICY, "groups": GROUPS, "survey": SURVEY}.items():
        (to / f"{name}.yaml").write_text(text, encoding="utf-8")
        mq.Policy.load(to / f"{name}.yaml").save(to / f"{name}.json")
        mq.Policy.load(to / f"{name}.yaml").save(to / f"{name}-saved.yaml")
    items = ["bread", "butter", "jam"]
    alike = mq.channels.binary("0.1")
    mq.basket_policy(items, alike).save(to / "baskets.yaml")
    together = mq.basket_policy(
        items, alike, [["bread", "butter"]], lambda size: mq.channels.symmetric(size, "0.2")
    )
    together.save(to / "baskets-joint.json")
    for file in sorted(to.iterdir()):
        policy = mq.Policy.load(file)
        figures = mq.privacy(policy)
        said[file.name] = {
            "id": policy.id,
            "record_gamma": str(figures.record_gamma),
            "disclosed": [[list(one.variables), str(one.gamma)] for one in figures.guarantee.disclosures],
        }


def records(to: Path, said: dict) -> None:
    """Write clear people, and what became of them: disguised, memoised, simulated, anonymised."""
    to.mkdir()
    policy = mq.Policy.load(to.parent / "policies" / "survey.yaml")
    people = survey_people(200)
    people.to_csv(to / "people.csv", index=False)
    command("policy", "init", "people.csv", "--out", "draft.yaml", folder=to)
    for ending in ("parquet", "arrow", "csv"):
        mq.disguise_file(to / "people.csv", to / f"disguised.{ending}", policy)
    mq.disguise_file(
        to / "people.csv", to / "memoised.csv", policy, memo=to / "memo.json", id="person", keep=("person",)
    )
    mq.simulate(people, policy, seed=1).to_parquet(to / "pandas-simulated.parquet")
    for file in ("disguised.parquet", "disguised.arrow", "disguised.csv", "memoised.csv"):
        [table] = mq.tally(to / file, policy).answer([mq.Query(by=("smoker", "cough"))])
        said[file] = {"values": table.values.tolist(), "stderr": table.stderr().tolist()}
    (to / "baskets.dat").write_text(
        "bread butter\nbread jam\nbutter\nbread butter jam\n" * 20, encoding="utf-8"
    )
    (to / "hierarchies.yaml").write_text(yaml.safe_dump(HIERARCHIES, sort_keys=False), encoding="utf-8")
    said["anonymised"] = json.loads(
        command("anonymize", "people.csv", "-k", "5", "--quasi", "region,age", "--hierarchies", "hierarchies.yaml",
                "--out", "anonymous.csv", "--json", folder=to)
    )  # fmt: skip


def models(to: Path, said: dict) -> None:
    """Save a model of every kind, and note what it says of some people."""
    to.mkdir()
    policy = mq.Policy.load(to.parent / "policies" / "survey.yaml")
    people = survey_people(200)
    source = mq.tally(mq.simulate(people, policy, seed=2), policy)
    structure = mq.learn.structure(source, order=["region", "smoker", "cough", "age"], max_parents=2)
    network = mq.learn.bayesian_network(source, {"region": (), "smoker": ("region",), "cough": ("smoker",)})
    made = {
        "structure": structure,
        "network": network,
        "naive_bayes": mq.learn.naive_bayes(source, "cough"),
        "tree": mq.learn.decision_tree(source, "cough", significance=None, max_depth=2),
        "pruned_tree": mq.learn.decision_tree(source, "cough", criterion="gain_ratio", prune=0.25),
        "linear": mq.learn.linear_classifier(source, "cough", loss="pocket", steps=2000),
        "logistic": mq.learn.linear_classifier(source, "cough", loss="logistic", ridge=1.0),
        "least_squares": mq.learn.linear_classifier(source, "cough", loss="squares"),
        "itemsets": mq.learn.frequent_itemsets(source, min_support=0.3),
        "rules": mq.learn.association_rules(source, min_support=0.2, min_confidence=0.6, max_len=2),
    }
    asked = people.drop(columns=["person", "cough"]).iloc[:20]
    codes = [[0, 30, 60, 120]]
    asked = asked.assign(
        age=pd.cut(asked["age"], codes[0], right=False, labels=policy.schema["age"].categories).astype(str)
    )
    asked.to_csv(to / "asked.csv", index=False)
    for name, model in made.items():
        mq.learn.save(model, to / f"{name}.json")
        said[name] = {"summary": model.summary()}
        if hasattr(model, "predict"):
            said[name]["predicted"] = [str(one) for one in model.predict(asked)]
        if hasattr(model, "predict_proba") and name != "linear" and name != "least_squares":
            said[name]["probabilities"] = np.asarray(model.predict_proba(asked)).tolist()
    known = mq.learn.known_network(
        network.schema,
        network.structure,
        {node: network.project()[node].probabilities for node in network.structure},
    )
    mq.learn.write_bif(known, to / "network.bif", name="survey")
    said["network"]["query"] = network.project().query("smoker", {"cough": "yes"}).probabilities.tolist()
    said["bif"] = {node: known[node].probabilities.tolist() for node in known.structure}


def sessions(to: Path, said: dict) -> None:
    """Hold sessions: one finished and one interrupted over the same people, and a finished pool of others."""
    from masquerade_experiments.two_hospitals import two_hospitals_and_a_registry
    from masquerade.parties.example import write_deployment

    to.mkdir()
    vertical = to / "vertical"
    files = write_deployment(vertical, two_hospitals_and_a_registry("vertical-with-miner", 60))
    consented(files, "second")
    second = again(vertical / "session.yaml", "second")
    with nodes(files, halting=("south", "second", "cells")) as running:
        assert run(files["university"], vertical / "session.yaml")["state"] == "done"
        said["vertical"] = {"example": read_json(vertical / "university/state/models/example.json")}
        assert run(files["university"], second)["state"] == "interrupted"
        said["vertical"]["status"] = status(files["university"])
    del running
    said["vertical"]["ledgers"] = {name: ledger(vertical / name) for name in ("north", "south", "registry")}
    with tempfile.TemporaryDirectory() as folder:  # what this version makes of the interrupted session
        trial = Path(folder) / "vertical"
        shutil.copytree(vertical, trial, symlinks=True)
        for name in files:
            never_moved(trial / name / "state")
        moved = {name: trial / file.relative_to(vertical) for name, file in files.items()}
        with nodes(moved):
            assert run(moved["university"], trial / "second.yaml")["state"] == "done"
        said["vertical"]["second"] = read_json(trial / "university/state/models/second.json")

    pool = to / "pool"
    files = write_deployment(pool, two_hospitals_and_a_registry("pooled-counts", 90))
    consented(files, "again", "later")
    for name in ("again", "later"):
        again(pool / "session.yaml", name)
    with nodes(files):
        assert run(files["university"], pool / "session.yaml")["state"] == "done"
        said["pool"] = {
            "example": read_json(pool / "university/state/models/example.json"),
            "status": status(files["university"]),
        }
    said["pool"]["ledgers"] = {name: ledger(pool / name) for name in ("north", "south", "registry")}

    tokens = to / "tokens"
    tokens.mkdir()
    command("tls", "token", "operator.token", folder=tokens)
    digest = command("tls", "token", "peer.token", folder=tokens).strip().splitlines()[-1]
    command("tls", "identity", "identity.key", folder=tokens)
    (tokens / "miner.yaml").write_text(
        yaml.safe_dump(
            {
                "masquerade": 1,
                "name": "office",
                "listen": {"host": "127.0.0.1", "port": 0},
                "operator_token": "operator.token",
                "identity": "identity.key",
                "state": "state",
                "limits": {"body_bytes": "2 MiB", "seconds": 10},
                "peers": {
                    "north": {
                        "url": "http://127.0.0.1:9000",
                        "token_file": "peer.token",
                        "token_digest": digest,
                    }
                },
            },
            sort_keys=False,
        )
    )


def consented(files: dict[str, Path], *names: str) -> None:
    """Let every party consent to further sessions, otherwise like the first."""
    for file in files.values():
        values = yaml.safe_load(file.read_text())
        for consent in values.get("consents", [])[:1]:
            values["consents"] += [copy.deepcopy({**consent, "session": name}) for name in names]
        file.write_text(yaml.safe_dump(values | {"retries": 1}, sort_keys=False))


def again(file: Path, name: str) -> Path:
    """Write a session's file once more, under another name."""
    values = yaml.safe_load(file.read_text())
    target = file.with_name(f"{name}.yaml")
    target.write_text(yaml.safe_dump(values | {"session": name}, sort_keys=False))
    return target


@contextlib.contextmanager
def nodes(files: dict[str, Path], halting: tuple[str, str, str] | None = None):
    """Run nodes in this process; `halting`: a node, and the session and role for which it is too busy."""
    from masquerade.core.whole import write_whole
    from masquerade.parties.node import Node
    from masquerade.parties.services import ADDRESS, app_of, files_of
    from masquerade.parties.settings import MinerSettings, PartySettings
    from masquerade.serving.problems import Busy
    from masquerade.serving.running import background
    from masquerade.serving.settings import load

    def stubborn(answer, session, role):
        def answered(call):
            if call.place == f"sessions/{session}/{role}":
                raise Busy("This node is being stopped.")
            return answer(call)

        return answered

    with ExitStack() as stack:
        for name, file in files.items():
            settings = load(
                file, MinerSettings if file.name == "miner.yaml" else PartySettings, environment={}
            )
            node = Node(settings)
            stack.callback(node.close)
            if halting is not None and halting[0] == name:
                node.handle = stubborn(node.handle, *halting[1:])
            url = stack.enter_context(
                background(app_of(node), port=settings.listen.port, **files_of(settings))
            )
            write_whole(settings.state / ADDRESS, url + "\n", private=True)
            stack.callback((settings.state / ADDRESS).unlink)
        yield stack


def operator(file: Path):
    """Return how the operator speaks to the miner."""
    from masquerade.parties.services import Operator
    from masquerade.parties.settings import MinerSettings
    from masquerade.serving.settings import load

    return Operator(load(file, MinerSettings, environment={}))


def run(file: Path, session: Path) -> dict:
    """Create and run a session, and return how it ended."""
    from masquerade.parties.spec import SessionSpec
    from masquerade.serving.settings import load

    spec = load(session, SessionSpec, environment={})
    with operator(file) as asked:
        asked.ask("create", {"spec": spec.model_dump(mode="json")})
        asked.ask("run", {"session": spec.session})
        while (found := asked.ask("status", {"session": spec.session}))["state"] == "running":
            time.sleep(0.05)
    return found


def status(file: Path) -> dict:
    """Return what a node says about its sessions."""
    with operator(file) as asked:
        return asked.ask("status", {})


def ledger(folder: Path) -> dict:
    """Return what left a party."""
    return json.loads(command("party", "ledger", "state", "--json", folder=folder))


def collection(to: Path, said: dict) -> None:
    """Collect sealed rows: the epoch is closed, most reports are delivered; another epoch lost its key."""
    from masquerade.collect.example import made_up, write_collection

    files = write_collection(to, k=3, rows=made_up(14))
    people = pd.read_csv(files["rows"], dtype=str)
    people.iloc[:10].to_csv(to / "first.csv", index=False)
    values = yaml.safe_load(files["randomness"].read_text())
    values["epoch"]["name"] = "summer"
    (to / "randomness" / "summer.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    sent = ("--collection", "collection.yaml", "--credential", "credentials", "--records", "records")
    with serving(to, ("collect", "randomness", "serve", "randomness/randomness.yaml"),
                 ("collect", "collector", "serve", "collector/collector.yaml")):  # fmt: skip
        command("collect", "enrol", "--from", "people.txt", "--office", "office/office.yaml", "--out", "credentials",
                folder=to)  # fmt: skip
        command("collect", "submit", "people.csv", *sent, folder=to, fails=True)
        command("collect", "close", "--node", "randomness/randomness.yaml", folder=to)
        command("collect", "submit", "first.csv", *sent, folder=to)
        for name in ("randomness", "collector"):
            answer = command("collect", "status", "--node", f"{name}/{name}.yaml", "--json", folder=to)
            said[name] = json.loads(answer)
    with serving(to, ("collect", "randomness", "serve", "randomness/summer.yaml")):
        said["summer"] = json.loads(
            command("collect", "status", "--node", "randomness/summer.yaml", "--json", folder=to)
        )
    with tempfile.TemporaryDirectory() as folder:  # what this version opens once the rest is delivered
        trial = Path(folder) / "collection"
        shutil.copytree(to, trial, symlinks=True)
        for name in ("randomness", "collector"):
            never_moved(trial / name / "state")
        with serving(trial, ("collect", "randomness", "serve", "randomness/randomness.yaml"),
                     ("collect", "collector", "serve", "collector/collector.yaml")):  # fmt: skip
            command("collect", "submit", "people.csv", *sent, folder=trial)
            command(
                "collect", "open", "--node", "collector/collector.yaml", "--out", "rows.csv", folder=trial
            )
        shutil.copy(trial / "rows.csv", to / "opened.csv")
        shutil.copy(trial / "rows.csv.masquerade.json", to / "opened.csv.masquerade.json")


@contextlib.contextmanager
def serving(folder: Path, *commands: tuple[str, ...]):
    """Run services by their commands, each until this block ends."""
    started = []
    try:
        for place, arguments in enumerate(commands):
            log = folder / f"{place}.log"
            with log.open("w") as stream:
                started.append((program(*arguments, folder=folder, stderr=stream), log))
            while "listens" not in log.read_text() and started[-1][0].poll() is None:
                time.sleep(0.05)
        yield
    finally:
        for process, log in started:
            process.terminate()
            process.wait()
            log.unlink()


def ledgers(to: Path, said: dict) -> None:
    """Let people be counted who keep their ledgers in files, by votes and by secure aggregation."""
    from masquerade.crypto.keys import SigningKey
    from masquerade.protocols.secure_aggregation.parameters import Parameters
    from masquerade.protocols.secure_aggregation.population import Population
    from masquerade.protocols.secure_aggregation.tally import AggregationTally
    from masquerade.protocols.frequency_mining.tally import FrequencyTally
    from masquerade.protocols.frequency_mining.terms import Terms
    from masquerade.protocols.frequency_mining.user import User
    from masquerade.protocols.ledger import FileLedger, MemoryLedger

    to.mkdir()
    schema = mq.Schema({"ill": ["yes", "no"], "smokes": ["yes", "no"]})
    clear = mq.Policy.clear(schema)
    noised = mq.Policy.build(schema, {name: mq.channels.binary("1/4") for name in schema})
    clear.save(to / "clear.yaml")
    noised.save(to / "noised.yaml")
    keys = {f"user {i:02d}": SigningKey() for i in range(12)}
    rows = {name: {"ill": i % 2, "smokes": i % 3 and 1} for i, name in enumerate(keys)}
    files = {
        name: FileLedger(to / name) for name in ("votes.sqlite", "noised-votes.sqlite", "aggregation.sqlite")
    }
    tables = {}
    for policy, file in ((clear, "votes.sqlite"), (noised, "noised-votes.sqlite")):
        terms = Terms("spring", policy, {name: key.public for name, key in keys.items()}, 5)
        users = {
            name: User(
                name, key, rows[name], terms, ledger=files[file] if name == "user 00" else MemoryLedger()
            )
            for name, key in keys.items()
        }
        counts = FrequencyTally(terms, lambda user, message, users=users: users[user].receive(message))
        [table] = counts.answer([mq.Query(by="ill")])
        tables[file] = table.values.tolist()
        said[file] = {"reports": users["user 00"]._reports, "terms": terms.id.hex()}
    codes = {name: np.array([row[name] for row in rows.values()] * 2) for name in schema}
    people = Population(
        codes,
        noised,
        Parameters.of(24),
        ledgers=[files["aggregation.sqlite"], *[MemoryLedger() for _ in range(23)]],
    )
    [table] = AggregationTally(people, noised).answer([mq.Query(by="ill")])
    said["aggregation.sqlite"] = {"codes": list(people.users[0]._record.codes)}
    said["keys"] = {name: key.reveal().hex() for name, key in keys.items()}
    said["rows"] = rows
    for file in files.values():
        file.close()


def command(*arguments: str, folder: Path, fails: bool = False) -> str:
    """Run the command of the first version in a folder and return what it prints."""
    process = program(*arguments, folder=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    printed, errors = process.communicate()
    if bool(process.returncode) != fails:
        raise RuntimeError(f"masquerade {' '.join(arguments)}: {errors}")
    return printed


def program(*arguments: str, folder: Path, **options) -> subprocess.Popen:
    """Start a command of the first version."""
    return subprocess.Popen([sys.executable, "-m", "masquerade", *arguments], cwd=folder, **options)


def read_json(path: Path) -> dict:
    """Return what a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def pack(folder: Path) -> None:
    """Put a folder into an archive, with modes and links, without locks and the authority's key."""
    for name in ("lock", "ca.key"):
        for path in folder.rglob(name):
            path.unlink()
    with tarfile.open(folder.with_name(f"{folder.name}.tar.gz"), "w:gz") as archive:
        archive.add(folder, folder.name, filter=anonymous)
    shutil.rmtree(folder)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out whose machine a file comes from."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Write everything into a folder that does not exist yet."""
    from masquerade.serving import certificates

    logging.disable(logging.INFO)
    certificates._AUTHORITY_DAYS = certificates.DAYS = HUNDRED_YEARS
    certificates._EARLIER = timedelta(days=HUNDRED_YEARS // 4)  # whatever a machine's clock says
    certificates.issue.__defaults__ = (certificates.HOSTS, HUNDRED_YEARS)
    to = Path(sys.argv[1])
    to.mkdir()
    said: dict[str, dict] = {}
    for part in (policies, records, models, sessions, collection, ledgers):
        part(to / part.__name__, said.setdefault(part.__name__, {}))
    for folder in (
        to / "sessions" / "vertical",
        to / "sessions" / "pool",
        to / "sessions" / "tokens",
        to / "collection",
    ):
        pack(folder)
    (to / "expected.json").write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
