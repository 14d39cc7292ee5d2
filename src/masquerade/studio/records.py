"""Where records come from: a clear file, disguised ones, a database, a survey that still collects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.frames.file_reader import open_batches
from masquerade.sources.tally import carried_policy
from masquerade.studio import policy_edits, steps
from masquerade.studio.allow_list import LOCAL, read_step
from masquerade.studio.answer import Answer
from masquerade.studio.project import Project
from masquerade.studio.project_files import MOST_PEOPLE

if TYPE_CHECKING:
    from masquerade.studio.engine import Job
    from masquerade.studio.server import Studio

COLLECTED, MODELS = "collected", "models"
MOST_BYTES = 64 << 20


def choose(studio: Studio, asked: steps.Asked) -> Answer | None:
    """Choose the data as a form says; the answer of the command that this takes, None where it takes none."""
    do = steps.need(asked, "do", "what is to be done")
    if do == "people":
        _set_people(studio.project, steps.need(asked, "people", "how many people there are"))
        return None
    data = steps.need(asked, "data", "a file or a table")
    if do == "draft":
        argv = ["policy", "init", studio.choose_file(data)]
        studio.engine.forget(studio.project.result_id(argv))
        return studio.answer(argv)
    if do == "collector":
        return studio.answer(_export(studio, studio.choose_file(data)))
    if do != "records":
        raise InputError(f"There is nothing called {do!r} to do with data.")
    with studio.project.changed(f"records of {Path(data).name}") as (settings, _):
        settings["records"] = _disguised(studio, asked, data)
    return None


def _set_people(project: Project, text: str) -> None:
    if not text.isdecimal() or not 0 < int(text) <= MOST_PEOPLE:
        raise InputError("How many people there are is a whole number above 0.")
    with project.changed(f"{text} people") as (settings, _):
        settings["people"] = int(text)


def _disguised(studio: Studio, asked: steps.Asked, data: str) -> dict[str, Any]:
    policy, engine = steps.one(asked, "policy"), steps.one(asked, "engine")
    records: dict[str, Any] = {"data": data, "policy": studio.choose_file(policy) if policy else None}
    if engine is None:
        return records | {"data": studio.choose_file(data)}
    url = steps.one(asked, "url")
    if url is not None and ":" in url.partition("://")[2].partition("@")[0] and "@" in url:
        raise InputError("Leave the password out of the address: PGPASSWORD or ~/.pgpass gives it.")
    records |= {"engine": engine, "url": url}
    read_step(["estimate", *steps.of_records(records)])  # refused before it is kept
    studio.reach.name(url or LOCAL)
    return records


def _export(studio: Studio, collector: str) -> list[str]:
    """Return the command that takes what a survey's collector has by now, into a new file."""
    with studio.project.lock:
        folder = studio.project.folder / COLLECTED
        folder.mkdir(exist_ok=True)
        number = 1 + max((int(p.stem) for p in folder.glob("*.parquet") if p.stem.isdecimal()), default=0)
    return ["survey", "export", collector, "--out", f"{COLLECTED}/{number}.parquet", "--json"]


def exported(project: Project, job: Job) -> None:
    """Count the reports that were taken from a collector; which one it was stays known, to ask it again."""
    out = job.argv[job.argv.index("--out") + 1]
    with project.changed(f"reports of {Path(job.argv[2]).name}") as (settings, _):
        settings["records"] = {"data": out, "policy": None, "collector": job.argv[2]}


def open_model(studio: Studio, asked: steps.Asked) -> str:
    """Copy a model, such as a session gave, into the project, so that the project shows it anywhere."""
    path = studio.project.folder / studio.choose_file(steps.need(asked, "model", "a file with a model"))
    if path.suffix != ".json" or path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path.name}: a model is a .json file of at most {MOST_BYTES >> 20} MiB.")
    (studio.project.folder / MODELS).mkdir(exist_ok=True)
    inside = f"{MODELS}/{path.name}"
    if not (studio.project.folder / inside).exists() or not path.samefile(studio.project.folder / inside):
        write_whole(studio.project.folder / inside, path.read_text(encoding="utf-8"))
    return inside


def counted(project: Project, job: Job) -> None:
    """Keep how many records a file has, when a policy was tried on it."""
    if len(job.argv) > 4 and job.outcome is not None:
        project.keep_count(job.argv[3], json.loads(job.outcome.printed)["rows"])


@lru_cache(maxsize=8)
def _carried(path: Path, _state: int) -> Policy:
    with open_batches([str(path)], []) as batches:
        policy = carried_policy(batches.metadata)
    if policy is None:
        raise InputError(f"{path.name}: carries no policy along; name its policy file on the page Data.")
    return policy


def policy_of(studio: Studio, records: Mapping[str, Any]) -> Policy:
    """Return the policy by which records are counted: the one named with them, or the one they carry."""
    project = studio.project
    studio.reach.check(read_step(["estimate", *steps.of_records(records)]))
    if records.get("policy"):
        return Policy.load(project.folder / records["policy"])
    if records.get("engine"):
        raise InputError(
            "A table of a database carries no policy along; name its policy file on the page Data."
        )
    path = project.folder / records["data"]
    if not path.is_file():
        raise InputError(
            f"{records['data']}: the file is not there any more; choose another on the page Data."
        )
    return _carried(path, path.stat().st_mtime_ns)


def drafted(project: Project, job: Job) -> None:
    """Make a draft the policy: what has to be decided is first decided alike for all."""
    data = job.argv[2]
    values = policy_text.parse(job.outcome.printed if job.outcome is not None else "", "yaml")
    for entry in values["variables"].values():
        if entry.get("channel") == {"kind": "decide"}:
            entry["channel"] = {"kind": "for_gamma", "gamma": policy_edits.FIRST}
    with project.changed(f"drafted from {Path(data).name}") as (settings, policy):
        settings["data"] = data
        policy.clear()
        policy.update(values)
