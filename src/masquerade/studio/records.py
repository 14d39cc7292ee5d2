"""Sources of records: a clear file, disguised files, a database, or a survey that is still collecting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.frames.file_reader import open_batches
from masquerade.sources.tally import carried_policy
from masquerade.studio import steps
from masquerade.studio.allow_list import LOCAL, read_step
from masquerade.studio.answer import Answer
from masquerade.studio.project import Project
from masquerade.studio.project_files import MOST_PEOPLE

if TYPE_CHECKING:
    from masquerade.studio.engine import StudioJob
    from masquerade.studio.server import Studio

COLLECTED, MODELS = "collected", "models"
LIMITS = ("limit", "gamma", "epsilon")  # options of a draft
MOST_BYTES = 64 << 20


def choose(studio: Studio, asked: steps.Asked) -> Answer | None:
    """Use the data that a form names; return the answer of the command that this runs, or None."""
    do = steps.need(asked, "do", "an action")
    if do == "people":
        _set_people(studio.project, steps.need(asked, "people", "the number of people"))
        return None
    data = steps.need(asked, "data", "a file or a table")
    if do == "draft":
        argv = ["policy", "init", studio.choose_file(data), *_draft_options(studio.project, asked), "--json"]
        studio.engine.forget(studio.project.result_id(argv))
        return studio.answer(argv)
    if do == "collector":
        return studio.answer(_export(studio, studio.choose_file(data)))
    if do != "records":
        raise InputError(f"There is no action {do!r} on data.")
    with studio.project.edit(f"records of {Path(data).name}") as (settings, _):
        settings["records"] = _disguised_source(studio, asked, data)
    return None


def _draft_options(project: Project, asked: steps.Asked) -> list[str]:
    """Return the options of a draft from a form: sensitive and clear columns, tables, limit."""
    uses = dict(zip(steps.several(asked, "column"), steps.several(asked, "use"), strict=False))
    chosen = {use: [name for name in uses if uses[name] == use] for use in ("sensitive", "clear")}
    if uses and not chosen["sensitive"]:
        raise InputError("Choose at least one sensitive variable.")
    if chosen["clear"] and not steps.one(asked, "clear_accepted"):
        raise InputError(
            f"{', '.join(chosen['clear'])} would be public for every person. To release them in clear, "
            "accept that in the form."
        )
    options = [word for use, names in chosen.items() if names for word in (f"--{use}", ",".join(names))]
    options += [word for text in steps.several(asked, "date") for word in ("--date", text)]
    options += steps.options_from(asked, "count")
    kind, value = steps.one(asked, "kind") or "limit", steps.one(asked, "limit")
    if kind not in LIMITS:
        raise InputError(f"A limit must be one of {', '.join(LIMITS)}.")
    options += [f"--{kind}", value] if value else []
    people = project.settings["people"]
    return [*options, *(["--people", str(people)] if people else [])]


def _set_people(project: Project, text: str) -> None:
    if not text.isdecimal() or not 0 < int(text) <= MOST_PEOPLE:
        raise InputError("The number of people must be a whole number above 0.")
    with project.edit(f"{text} people") as (settings, _):
        settings["people"] = int(text)


def _disguised_source(studio: Studio, asked: steps.Asked, data: str) -> dict[str, Any]:
    policy, engine = steps.one(asked, "policy"), steps.one(asked, "engine")
    records: dict[str, Any] = {"data": data, "policy": studio.choose_file(policy) if policy else None}
    if engine is None:
        return records | {"data": studio.choose_file(data)}
    url = steps.one(asked, "url")
    if url is not None and ":" in url.partition("://")[2].partition("@")[0] and "@" in url:
        raise InputError("Remove the password from the address, and put it into PGPASSWORD or ~/.pgpass.")
    records |= {"engine": engine, "url": url}
    read_step(["estimate", *steps.of_records(records)])  # raises before it is stored
    studio.reach.name(url or LOCAL)
    return records


def _export(studio: Studio, collector: str) -> list[str]:
    """Return the command that exports the current reports of a survey's collector into a new file."""
    with studio.project.lock:
        folder = studio.project.folder / COLLECTED
        folder.mkdir(exist_ok=True)
        number = 1 + max((int(p.stem) for p in folder.glob("*.parquet") if p.stem.isdecimal()), default=0)
    return ["survey", "export", collector, "--out", f"{COLLECTED}/{number}.parquet", "--json"]


def keep_exported_reports(project: Project, job: StudioJob) -> None:
    """Make exported reports the records to count, and store their collector for the next export."""
    out = job.argv[job.argv.index("--out") + 1]
    with project.edit(f"reports of {Path(job.argv[2]).name}") as (settings, _):
        settings["records"] = {"data": out, "policy": None, "collector": job.argv[2]}


def open_model(studio: Studio, asked: steps.Asked) -> str:
    """Copy a model, for example of a session, into the project, so that the project is self-contained."""
    path = studio.project.folder / studio.choose_file(steps.need(asked, "model", "a file with a model"))
    if path.suffix != ".json" or path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path.name}: a model is a .json file of at most {MOST_BYTES >> 20} MiB.")
    (studio.project.folder / MODELS).mkdir(exist_ok=True)
    inside = f"{MODELS}/{path.name}"
    if not (studio.project.folder / inside).exists() or not path.samefile(studio.project.folder / inside):
        write_whole(studio.project.folder / inside, path.read_text(encoding="utf-8"))
    return inside


def keep_row_count(project: Project, job: StudioJob) -> None:
    """Store the number of records of a file after a policy was checked on it."""
    if len(job.argv) > 4 and job.outcome is not None:
        project.keep_count(job.argv[3], json.loads(job.outcome.printed)["rows"])


@lru_cache(maxsize=8)
def _carried_policy(path: Path, _state: int) -> Policy:
    with open_batches([str(path)], []) as batches:
        policy = carried_policy(batches.metadata)
    if policy is None:
        raise InputError(
            f"{path.name}: no policy is stored with the records; name its policy file on the page Data."
        )
    return policy


def policy_of(studio: Studio, records: Mapping[str, Any]) -> Policy:
    """Return the policy of the records: the one named with them, or the one stored with them."""
    project = studio.project
    studio.reach.check(read_step(["estimate", *steps.of_records(records)]))
    if records.get("policy"):
        return Policy.load(project.folder / records["policy"])
    if records.get("engine"):
        raise InputError("No policy is stored with a database table; name its policy file on the page Data.")
    path = project.folder / records["data"]
    if not path.is_file():
        raise InputError(f"{records['data']}: the file no longer exists; choose another on the page Data.")
    return _carried_policy(path, path.stat().st_mtime_ns)


def adopt_draft(project: Project, job: StudioJob) -> None:
    """Make a draft the policy, and store its guarantee and costs."""
    data = job.argv[2]
    printed = json.loads(job.outcome.printed if job.outcome is not None else "")
    values = printed.pop("policy")
    project.keep_draft(job.argv, printed | {"id": Policy.from_dict(values).id})
    with project.edit(f"drafted from {Path(data).name}") as (settings, policy):
        settings["data"] = data
        policy.clear()
        policy.update(values)
