"""What leaves: disguised records, a folder for an archive, a page for respondents; and what adds up."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from masquerade.channels import policy_text
from masquerade.channels.policy import Policy
from masquerade.core.atomic import write_whole
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.words import category_text
from masquerade.services.common.release_ledger import FILE, Release, ReleaseLedger
from masquerade.sources.tally import tally
from masquerade.studio import steps
from masquerade.studio.answer import Answer
from masquerade.studio.policy_edits import record_gamma
from masquerade.studio.project import Project

if TYPE_CHECKING:
    from masquerade.studio.engine import Job
    from masquerade.studio.server import Studio

FOLDER = "releases"
LEDGER = f"{FOLDER}/{FILE}"
MEMO = "people.memo"
PAGE = "survey"
ANYBODY = "anybody"


def make(studio: Studio, asked: steps.Asked) -> Answer:
    """Make what a form of the Release page asks for."""
    do = steps.one(asked, "do") or "disguise"
    if do not in MAKERS:
        raise InputError(f"There is no release {do!r}.")
    return studio.answer(MAKERS[do](studio.project, asked))


def _disguise(project: Project, asked: steps.Asked) -> list[str]:
    """Return the command that disguises the data into a new folder, the policy as it is now beside them."""
    settings = project.settings
    if not settings["data"] or project.policy is None:
        raise InputError("Choose a file and a policy first.")
    ending = steps.one(asked, "ending") or "csv"
    if ending not in {"csv", "parquet"}:
        raise InputError("Disguised records are written as csv or parquet.")
    with project.lock:
        folder = project.folder / FOLDER
        folder.mkdir(exist_ok=True)
        number = 1 + max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=0)
        (folder / str(number)).mkdir()
        write_whole(folder / str(number) / "policy.yaml", policy_text.write(project.policy_values, "yaml"))
    where = f"{FOLDER}/{number}"
    options = ["--shuffle"] if steps.one(asked, "shuffle") else []
    if steps.one(asked, "person"):
        options += ["--memo", MEMO, "--id", str(steps.one(asked, "person"))]
    policy = ["--policy", f"{where}/policy.yaml"]
    return ["disguise", settings["data"], *policy, *options, "--out", f"{where}/disguised.{ending}", "--json"]


def released(project: Project, job: Job) -> None:
    """Write a release down in the ledger, and count it from now on."""
    out, policy = (job.argv[job.argv.index(option) + 1] for option in ("--out", "--policy"))
    printed = json.loads(job.outcome.printed) if job.outcome is not None else {}
    for entry in entries(project.folder, out, policy, printed["rows"], memo="--memo" in job.argv):
        with ReleaseLedger.open(project.folder / LEDGER) as ledger:
            ledger.append(entry)
    with project.changed(f"released {Path(job.argv[1]).name}") as (settings, _):
        settings["records"] = {"data": out, "policy": policy}


def recovered(project: Project) -> None:
    """Write down what was released and is not in the ledger: the page was ended between the two.

    Whether a memo drew it nobody knows any more, so it counts as a draw of its own.
    """
    there = [
        place.relative_to(project.folder).as_posix()
        for place in sorted((project.folder / FOLDER).glob("*/disguised.*"))
        if place.suffix in {".csv", ".parquet"}
    ]
    if not there:
        return
    with ReleaseLedger.open(project.folder / LEDGER) as ledger:
        known = {entry.release.session for entry in ledger.entries()}
        for out in [place for place in there if place not in known]:
            policy = (Path(out).parent / "policy.yaml").as_posix()
            [table] = tally(project.folder / out, Policy.load(project.folder / policy)).answer([Query()])
            for entry in entries(project.folder, out, policy, table.n, memo=False):
                ledger.append(entry)


def entries(folder: Path, out: str, policy_file: str, rows: int, *, memo: bool) -> list[Release]:
    """Return the lines of the ledger for a release: what is disguised, and what is in clear, without a bound.

    Reports that a memo repeats are one draw under one policy, and count once however often they are released.
    """
    policy = Policy.load(folder / policy_file)
    with (folder / out).open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    gamma = record_gamma(policy)
    bounded = Fraction(gamma) if gamma != math.inf else None
    clear = tuple(v.name for v in policy.schema.variables if v.name not in policy.disguised)
    draw = f"{MEMO} {policy.id}" if memo else None
    found = []
    if policy.disguised:
        what = ("disguised records", tuple(policy.disguised), rows, policy.id, bounded, digest, draw)
        found.append(Release(out, "disguise", ANYBODY, *what))
    if clear:
        found.append(
            Release(out, "disguise", ANYBODY, "records in clear", clear, rows, policy.id, None, digest)
        )
    return found


def _package(project: Project, asked: steps.Asked) -> list[str]:
    """Return the command that makes the folder for an archive: records, policy, codebook, descriptions."""
    records = project.settings["records"]
    if not records or records.get("engine") or not records.get("policy"):
        raise InputError("Release disguised records first: a folder for an archive is made of those.")
    out = Path(records["data"]).parent / "package"
    if (project.folder / out).exists():
        raise InputError(f"{out.as_posix()} is there already; a package is made once.")
    described = steps.given(asked, "title", "description", "creator", "licence")
    policy = ["--policy", records["policy"]]
    return ["release", "make", records["data"], *policy, "--out", out.as_posix(), *described, "--json"]


def _page(project: Project, asked: steps.Asked) -> list[str]:
    """Return the command that builds the page on which people answer for themselves, by the policy."""
    policy = project.policy
    if policy is None:
        raise InputError("There is no policy yet: draft one on the page Data.")
    texts = dict(zip(steps.several(asked, "variable"), asked.get("question", ()), strict=False))
    survey = {
        "masquerade_survey": 1,
        "title": {"en": steps.need(asked, "title", "a title")},
        "languages": ["en"],
        "policy": "policy.yaml",
        "collector": steps.need(asked, "collector", "where reports are sent, such as http://127.0.0.1:8765"),
        "contact": {"en": steps.need(asked, "contact", "who asks, and how they can be reached")},
        "consent": {"en": steps.need(asked, "consent", "what people agree to")},
        "questions": [
            {
                "variable": variable.name,
                "text": {"en": texts.get(variable.name, "").strip() or f"{variable.name}?"},
                "answers": {
                    category_text(label): {"en": category_text(label)} for label in variable.categories
                },
            }
            for variable in policy.schema.variables
        ],
    }
    folder = project.folder / PAGE
    folder.mkdir(exist_ok=True)
    write_whole(folder / "policy.yaml", policy_text.write(project.policy_values, "yaml"))
    write_whole(folder / "survey.yaml", yaml.safe_dump(survey, sort_keys=False, allow_unicode=True))
    return ["survey", "build", f"{PAGE}/survey.yaml", "--out", f"{PAGE}/page", "--overwrite", "--json"]


MAKERS = {"disguise": _disguise, "package": _package, "page": _page}
