"""Releases: disguised records, a folder for an archive, a page for respondents; and their total γ."""

from __future__ import annotations

import json
import math
import re
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.channels.privacy_level import DEFAULT_LIMIT
from masquerade.channels.rationals import rational
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.record_gamma import Gamma, describe_gamma, describe_person
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.formatting import category_text, gamma_words
from masquerade.disguising.memo import Memo
from masquerade.services.common.ledger_totals import (
    DISGUISED,
    PersonTotal,
    person_total,
    releases_of_file,
)
from masquerade.services.common.release_ledger import (
    FILE,
    Release,
    ReleaseLedger,
    inspect,
)
from masquerade.sources.tally import tally
from masquerade.studio import steps
from masquerade.studio.allow_list import MEMO, read_step
from masquerade.studio.answer import Answer
from masquerade.studio.project import Project

if TYPE_CHECKING:
    from masquerade.studio.engine import StudioJob
    from masquerade.studio.server import Studio

FOLDER = "releases"
LEDGER = f"{FOLDER}/{FILE}"
PAGE = "survey"
RELEASED = re.compile(rf"{FOLDER}/[0-9]{{1,9}}/disguised[.](csv|parquet)")


def make(studio: Studio, asked: steps.Asked) -> Answer:
    """Make the release that a form of the Release page requests."""
    do = steps.one(asked, "do") or "disguise"
    if do not in MAKERS:
        raise InputError(f"There is no release {do!r}.")
    data = studio.project.settings["data"]
    if do == "disguise" and data:
        studio.reach.check(read_step(["policy", "init", data]))  # before the folder of the release is created
        if steps.one(asked, "person") and memo_state(studio.project).present is not None:
            studio.reach.check_memo()
    return studio.answer(MAKERS[do](studio.project, asked))


def _disguise(project: Project, asked: steps.Asked) -> list[str]:
    """Return the command that disguises the data into a new folder, next to a copy of the current policy."""
    settings = project.settings
    if not settings["data"] or project.policy is None:
        raise InputError("Choose a file and a policy first.")
    ending = steps.one(asked, "ending") or "csv"
    if ending not in {"csv", "parquet"}:
        raise InputError("Disguised records are written as csv or parquet.")
    options = ["--shuffle"] if steps.one(asked, "shuffle") else []
    person = steps.one(asked, "person")
    options += _memo_options(project, person, again=bool(steps.one(asked, "again")))
    options += _accept_options(project, asked, has_memo=person is not None)
    releases_of_file(project.policy, FOLDER, 0, memo=None, digest=None)  # raises before a row is drawn
    with project.lock:
        folder = project.folder / FOLDER
        folder.mkdir(exist_ok=True)
        ReleaseLedger.open(project.folder / LEDGER).close()  # raises if it cannot be written
        number = 1 + max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=0)
        (folder / str(number)).mkdir()
        write_whole(folder / str(number) / "policy.yaml", policy_text.write(project.policy_values, "yaml"))
    where = f"{FOLDER}/{number}"
    policy = ["--policy", f"{where}/policy.yaml"]
    return ["disguise", settings["data"], *policy, *options, "--out", f"{where}/disguised.{ending}", "--json"]


class MemoState(NamedTuple):
    """The id of the memo in the folder, or None, and the ids of memos in the ledger."""

    present: str | None
    known: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Return True if earlier releases used only other memos, so that everyone would be drawn again."""
        return bool(self.known) and self.present not in self.known


def memo_state(project: Project) -> MemoState:
    """Return the memo in the folder and the memos of earlier releases."""
    try:
        present = Memo.load(project.folder / MEMO).id
    except FileNotFoundError:
        present = None
    draws = [release.draw for release in _disguised_releases(project) if release.draw]
    return MemoState(present, tuple(dict.fromkeys(draw.partition(" ")[0] for draw in draws)))


def memo_question(project: Project) -> str | None:
    """Describe the effect of a memo on people whom another memo disguised before; None without them."""
    state, policy = memo_state(project), project.policy
    if not state.changed or policy is None:
        return None
    bound = gamma_words(total_with(project, policy, has_memo=False).bound)
    lost = f"{MEMO} is missing" if state.present is None else f"{MEMO} is a different memo"
    return (
        f"{lost}: earlier releases were drawn from a memo that is not here. Restore that memo from a copy to "
        f"repeat the reports. A different memo draws everyone again: over all releases that is {bound}."
    )


def memo_words(project: Project) -> str | None:
    """Describe the γ of releases under several memos; None if there is at most one memo."""
    released_before = _disguised_releases(project)
    if len(memo_state(project).known) < 2:
        return None
    number = len({release.session for release in released_before})
    over = "both" if number == 2 else f"all {number}"
    bound = gamma_words(person_total(released_before).bound)
    return f"These people were disguised before under another memo: over {over} releases {bound}."


def _releases(project: Project) -> list[Release]:
    if not (project.folder / LEDGER).exists():
        return []
    return [entry.release for entry in inspect(project.folder / LEDGER)[0]]


def _disguised_releases(project: Project) -> list[Release]:
    return [release for release in _releases(project) if release.kind == DISGUISED]


def total_with(project: Project, policy: Policy, *, has_memo: bool) -> PersonTotal:
    """Return the total of all releases and a further one under a policy, for one person."""
    memo = memo_state(project).present if has_memo else None
    return person_total([*_releases(project), *releases_of_file(policy, FOLDER, 0, memo=memo, digest=None)])


def total_words(project: Project) -> dict[str, str] | None:
    """Describe what a further release means for one person; None without a policy.

    `beyond` is the γ that must be accepted, or "" within the limit. `repeated` is the total if a memo repeats
    the reports.
    """
    policy = project.policy
    if policy is None:
        return None
    limit, fresh = policy.limit or DEFAULT_LIMIT, total_with(project, policy, has_memo=False)
    repeated = total_with(project, policy, has_memo=True)
    return {
        "person": describe_person(fresh.bound, policy.clear_missing),
        "total": gamma_words(fresh.bound),
        "limit": str(limit),
        "stated": "" if policy.limit is None else "1",
        "beyond": "" if fresh.is_within(limit) else gamma_words(fresh.bound),
        "repeated": "" if repeated.bound == fresh.bound else gamma_words(repeated.bound),
        "before": str(len({release.session for release in _disguised_releases(project)})),
    }


def _accept_options(project: Project, asked: steps.Asked, *, has_memo: bool) -> list[str]:
    """Return the option that accepts a total beyond the limit; raise InputError if it is missing."""
    text, policy = steps.one(asked, "accept_gamma"), project.policy
    if policy is None:
        return []
    accepted: Gamma | None = None
    if text is not None:
        accepted = math.inf if text == "inf" else rational(text, "the γ that you accept")
    total, limit = total_with(project, policy, has_memo=has_memo), policy.limit or DEFAULT_LIMIT
    if not total.is_within(limit) and (accepted is None or total.bound > accepted):
        raise InputError(
            f"{describe_gamma(total.bound)} With the earlier releases, a whole record has "
            f"{gamma_words(total.bound)}, beyond the limit for one person ({limit}). Nothing was released. "
            "Repeat the earlier reports by their memo, or write the γ that you accept into the form."
        )
    return [] if text is None else ["--accept-gamma", text]


def _memo_options(project: Project, person: str | None, *, again: bool) -> list[str]:
    """Return the options of a memo; a memo that replaces another one is used only if the user agrees."""
    if person is None:
        return []
    question = memo_question(project)
    if question is not None and not again:
        raise InputError(f'{question} To do so, choose "draw everyone again".')
    new = ["--new-memo"] if memo_state(project).present is None else []
    return ["--memo", MEMO, *new, "--id", person]


def record_release(project: Project, job: StudioJob) -> None:
    """Enter a release into the ledger and make it the records to count; delete its files if that fails."""
    out, policy = (job.argv[job.argv.index(option) + 1] for option in ("--out", "--policy"))
    try:
        printed = json.loads(job.outcome.printed) if job.outcome is not None else {}
        lines = entries(project.folder, out, policy, printed["rows"], memo=printed["memo"])
        with ReleaseLedger.open(project.folder / LEDGER) as ledger:
            for line in lines:
                ledger.append(line)
    except BaseException:
        place = project.folder / out
        for file in place.parent.glob(f"{place.name}*"):  # not shown to the user yet: the job is not over
            file.unlink()
        raise
    with project.edit(f"released {Path(job.argv[1]).name}") as (settings, _):
        settings["records"] = {"data": out, "policy": policy}


def recover_releases(project: Project) -> None:
    """Enter releases that are missing from the ledger because the studio ended before they were entered.

    Whether a memo drew such a release is unknown, so it counts as a separate draw.
    """
    there = [
        place.relative_to(project.folder).as_posix()
        for place in sorted((project.folder / FOLDER).glob("*/disguised.*"))
        if RELEASED.fullmatch(place.relative_to(project.folder).as_posix())
    ]
    if not there:
        return
    with ReleaseLedger.open(project.folder / LEDGER) as ledger:
        known = {entry.release.session for entry in ledger.entries()}
        for out in [place for place in there if place not in known]:
            policy = (Path(out).parent / "policy.yaml").as_posix()
            [table] = tally(project.folder / out, Policy.load(project.folder / policy)).answer([Query()])
            for entry in entries(project.folder, out, policy, table.n, memo=None):
                ledger.append(entry)


def entries(folder: Path, out: str, policy_file: str, rows: int, *, memo: str | None) -> list[Release]:
    """Return the ledger lines of a released file."""
    with (folder / out).open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    return releases_of_file(Policy.load(folder / policy_file), out, rows, memo=memo, digest=digest)


def _package(project: Project, asked: steps.Asked) -> list[str]:
    """Return the command that makes a folder for an archive: records, policy, codebook, descriptions."""
    records = project.settings["records"]
    if not records or records.get("engine") or not records.get("policy"):
        raise InputError("Release disguised records first: a folder for an archive is made from them.")
    released = RELEASED.fullmatch(records["data"])
    out = Path(records["data"]).parent / "package" if released else Path(FOLDER) / "package"
    if (project.folder / out).exists():
        raise InputError(f"{out.as_posix()} already exists; a package is made only once.")
    described = steps.options_from(asked, "title", "description", "creator", "licence")
    policy = ["--policy", records["policy"]]
    return ["release", "make", records["data"], *policy, "--out", out.as_posix(), *described, "--json"]


def _page(project: Project, asked: steps.Asked) -> list[str]:
    """Return the command that builds the survey page for respondents, with the policy."""
    policy = project.policy
    if policy is None:
        raise InputError("There is no policy yet: draft one on the page Data.")
    texts = dict(zip(steps.several(asked, "variable"), asked.get("question", ()), strict=False))
    survey = {
        "masquerade_survey": 1,
        "title": {"en": steps.need(asked, "title", "a title")},
        "languages": ["en"],
        "policy": "policy.yaml",
        "collector": steps.need(
            asked, "collector", "the address that receives reports, such as http://127.0.0.1:8765"
        ),
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
