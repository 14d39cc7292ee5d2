"""Run the readers of files that others write under an audit hook, in the folder of the specimens.

Prints one line of JSON: by reader, what it did that a reader must not do, and how it ended.
"""

import io
import json
import os
import socket
import subprocess
import sys
import xml.sax
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

import masquerade as mq
from masquerade.anonymity.hierarchy import load_hierarchies
from masquerade.cli.survey import read_questionnaire
from masquerade.core.errors import MasqueradeError
from masquerade.interop.dap import read_dap
from masquerade.interop.release_folder import check_release
from masquerade.learn.networks.files.uai import read_uai
from masquerade.learn.networks.files.xmlbif import read_xmlbif
from masquerade.services.common import release_ledger
from masquerade.services.common.settings import load
from masquerade.services.parties.session import SessionSpec
from masquerade.studio.engine import run_command
from masquerade.studio.project import Project
from masquerade.survey.device.terms import DeviceTerms
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.page import build

HERE = Path.cwd()
CALLS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "os.system")
STARTS = ("os.exec", "os.posix_spawn", "os.spawn", "os.fork")
CODE = (".py", ".pyc", ".so", ".nbi", ".nbc", ".pkl", ".pickle")
SYSTEM = (
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/urandom",
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/var/lib",
    "/opt",
)
OWN = [sys.prefix, sys.base_prefix, *(path for path in sys.path if path), str(Path(mq.__file__).parents[1])]
ALLOWED = [os.path.realpath(path) for path in (*SYSTEM, *OWN)]

did: list[str] = []
watching = False


def note(event: str, args: tuple[object, ...]) -> None:
    """Note what a reader must not do."""
    if not watching:
        return
    if event in CALLS or event.startswith(STARTS):
        did.append(f"{event} {args[0]!r}"[:200])
    elif event == "open" and isinstance(args[0], (str, bytes)):
        path = Path(os.path.realpath(os.fsdecode(args[0])))
        inside = path.is_relative_to(HERE)
        if (inside and path.suffix in CODE) or not (inside or any(map(path.is_relative_to, ALLOWED))):
            did.append(f"open {path}")


def from_steps(kind: str, name: str) -> str:
    """Run `masquerade studio --check` or `--notebook` over the steps of a name; return what it said."""
    (HERE / "project/steps.json").write_bytes((HERE / f"project/{name}.steps").read_bytes())
    more = ["--check"] if kind == "check" else ["--notebook", "steps.py"]
    outcome = run_command(["studio", "project", *more], lambda _done, _total: None)
    os.chdir(HERE)
    return " ".join(outcome.said)


def from_command(*argv: str) -> str:
    """Run a command of `masquerade`; return what it said."""
    outcome = run_command(argv, lambda _done, _total: None)
    return "internal error" if outcome.code == 70 else " ".join(outcome.said)


def open_project() -> None:
    """Open a project as every page does."""
    (HERE / "project/steps.json").unlink(missing_ok=True)
    project = Project(HERE / "project")
    project.archive()
    project.go_to(0)


def parse_entities() -> None:
    """Read XML as a parser does that resolves what a file names."""
    parser = xml.sax.make_parser()  # noqa: S317  (the attack)
    parser.setFeature(xml.sax.handler.feature_external_ges, 1)
    parser.parse(io.BytesIO((HERE / "network.xml").read_bytes()))


def import_module() -> None:
    """Import a module of the folder."""
    sys.path.insert(0, "")
    try:
        import codebook  # noqa: F401, PLC0415
    finally:
        sys.path.remove("")
        sys.modules.pop("codebook", None)


READERS = {
    "attack: import": import_module,
    "attack: open": (HERE / "../mine/people.csv").read_bytes,
    "attack: connect": lambda: socket.create_connection(("127.0.0.1", 9), timeout=5),
    "attack: run": lambda: subprocess.run(["true"], check=True),  # noqa: S607
    "attack: yaml": lambda: yaml.unsafe_load("!!python/object/apply:os.system ['true']"),
    "attack: entity": parse_entities,
    "policy": lambda: mq.Policy.load("policy.yaml").id,
    "policy, plug-in": lambda: mq.Policy.load("plugin.yaml").id,
    "policy, tag": lambda: mq.Policy.load("tag.yaml").id,
    "policy, include": lambda: mq.Policy.load("include.yaml").id,
    "policy check": lambda: from_command("policy", "check", "plugin.yaml", "records.csv"),
    "policy id": lambda: from_command("policy", "id", "include.yaml"),
    "model": lambda: mq.learn.load("model.json"),
    "model, module": lambda: mq.learn.load("module.json"),
    "show": lambda: from_command("show", "model.json", "--json"),
    "records": lambda: mq.tally("records.csv").answer([mq.Query()]),
    "records, policy": lambda: mq.tally("records.csv", "policy.yaml").answer([mq.Query()]),
    "estimate": lambda: from_command("estimate", "records.csv", "--json"),
    "estimate, source": lambda: from_command("estimate", "codebook:x", "--policy", "policy.yaml"),
    "release check": lambda: check_release(HERE / "release"),
    "release check, link": lambda: " ".join(check_release(HERE / "linked")),
    "release check, command": lambda: from_command("release", "check", "release"),
    "session": lambda: load("session.yaml", SessionSpec, environment={}),
    "survey": lambda: build(Survey.load("survey.yaml")),
    "survey outside": lambda: build(Survey.load("outside.yaml")),
    "survey absolute": lambda: build(Survey.load("absolute.yaml")),
    "survey build": lambda: from_command("survey", "build", "outside.yaml", "--out", "page"),
    "surveyjs": lambda: read_questionnaire(HERE / "surveyjs.json"),
    "limesurvey": lambda: read_questionnaire(HERE / "limesurvey.lss"),
    "hierarchies": lambda: load_hierarchies(HERE / "levels.yaml"),
    "xmlbif": lambda: read_xmlbif("network.xml"),
    "bif": lambda: mq.learn.read_bif("network.bif"),
    "uai": lambda: read_uai("network.bif"),
    "dap": lambda: read_dap("dap.json", mq.Policy.load("policy.yaml")),
    "terms": lambda: DeviceTerms.load("terms.json"),
    "ledger": lambda: release_ledger.inspect(HERE / "project"),
    "studio": open_project,
    **{
        f"studio --{kind}, {name}": (lambda kind=kind, name=name: from_steps(kind, name))
        for kind in ("check", "notebook")
        for name in ("code", "file", "up", "address")
    },
}


def main() -> None:
    """Run all readers, after what they load at their first use is loaded."""
    global watching  # noqa: PLW0603
    pd.DataFrame({"a": np.arange(3)}).to_csv(io.StringIO())
    mq.simulate(pd.DataFrame({"smoker": ["yes"]}), mq.Policy.load("policy.yaml"), seed=1)
    sys.addaudithook(note)
    found = {}
    for name, read in READERS.items():
        did.clear()
        watching = True
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                end = str(read())[:500]
        except MasqueradeError as error:
            end = str(error)[:500]
        except Exception as error:  # noqa: BLE001
            end = f"internal {type(error).__name__}: {error}"[:500]
        finally:
            watching = False
        found[name] = {"did": list(did), "end": end}
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
