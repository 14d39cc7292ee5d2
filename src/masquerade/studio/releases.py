"""What leaves: disguised records, a folder for an archive, a page for respondents; and what adds up."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.formatting import category_text, gamma_words
from masquerade.disguising.memo import Memo
from masquerade.services.common.release_ledger import (
    FILE,
    Entry,
    Release,
    ReleaseLedger,
    inspect,
    spending,
    total,
)
from masquerade.sources.tally import tally
from masquerade.studio import steps
from masquerade.studio.allow_list import MEMO, read_step
from masquerade.studio.answer import Answer
from masquerade.studio.policy_edits import record_gamma
from masquerade.studio.project import Project

if TYPE_CHECKING:
    from masquerade.studio.engine import Job
    from masquerade.studio.server import Studio

FOLDER = "releases"
LEDGER = f"{FOLDER}/{FILE}"
PAGE = "survey"
DISGUISED = "disguised records"
RELEASED = re.compile(rf"{FOLDER}/[0-9]{{1,9}}/disguised[.](csv|parquet)")
ANYBODY = "anybody"


def make(studio: Studio, asked: steps.Asked) -> Answer:
    """Make what a form of the Release page asks for."""
    do = steps.one(asked, "do") or "disguise"
    if do not in MAKERS:
        raise InputError(f"There is no release {do!r}.")
    data = studio.project.settings["data"]
    if do == "disguise" and data:
        studio.reach.check(read_step(["policy", "init", data]))  # before a folder is made for the release
    return studio.answer(MAKERS[do](studio.project, asked))


def _disguise(project: Project, asked: steps.Asked) -> list[str]:
    """Return the command that disguises the data into a new folder, the policy as it is now beside them."""
    settings = project.settings
    if not settings["data"] or project.policy is None:
        raise InputError("Choose a file and a policy first.")
    ending = steps.one(asked, "ending") or "csv"
    if ending not in {"csv", "parquet"}:
        raise InputError("Disguised records are written as csv or parquet.")
    options = ["--shuffle"] if steps.one(asked, "shuffle") else []
    options += _memo_options(project, steps.one(asked, "person"), again=bool(steps.one(asked, "again")))
    with project.lock:
        folder = project.folder / FOLDER
        folder.mkdir(exist_ok=True)
        number = 1 + max((int(p.name) for p in folder.iterdir() if p.name.isdecimal()), default=0)
        (folder / str(number)).mkdir()
        write_whole(folder / str(number) / "policy.yaml", policy_text.write(project.policy_values, "yaml"))
    where = f"{FOLDER}/{number}"
    policy = ["--policy", f"{where}/policy.yaml"]
    return ["disguise", settings["data"], *policy, *options, "--out", f"{where}/disguised.{ending}", "--json"]


class MemoState(NamedTuple):
    """The id of the memo in the folder, None if there is none, and the ids that the ledger knows."""

    present: str | None
    known: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Return True if earlier releases were drawn by other memos, so that all people are drawn again."""
        return bool(self.known) and self.present not in self.known


def memo_state(project: Project) -> MemoState:
    """Return the memo in the folder and the memos of earlier releases."""
    try:
        present = Memo.load(project.folder / MEMO).id
    except FileNotFoundError:
        present = None
    draws = [entry.release.draw for entry in _disguised_entries(project) if entry.release.draw]
    return MemoState(present, tuple(dict.fromkeys(draw.partition(" ")[0] for draw in draws)))


def memo_question(project: Project) -> str | None:
    """Return the effect of a memo on people whom another memo disguised before, None if there are none."""
    state, policy = memo_state(project), project.policy
    if not state.changed or policy is None:
        return None
    spent, gamma = total(spending(_disguised_entries(project))), record_gamma(policy)
    bound = gamma_words(math.inf if spent is None or gamma == math.inf else spent * Fraction(gamma))
    lost = f"{MEMO} is not there" if state.present is None else f"{MEMO} is another memo"
    return (
        f"{lost}, and a memo that is missing here drew earlier releases. Put that memo back from a copy, and "
        f"reports are repeated. Another memo draws all people again: over all releases that is {bound}."
    )


def memo_words(project: Project) -> str | None:
    """Return the γ of releases under several memos, None if there is one memo at most."""
    entries_kept = _disguised_entries(project)
    if len(memo_state(project).known) < 2:
        return None
    spent, number = total(spending(entries_kept)), len({entry.release.session for entry in entries_kept})
    over = "both" if number == 2 else f"all {number}"
    bound = gamma_words(math.inf if spent is None else spent)
    return f"These people were disguised before under another memo: over {over} releases {bound}."


def _disguised_entries(project: Project) -> list[Entry]:
    if not (project.folder / LEDGER).exists():
        return []
    return [entry for entry in inspect(project.folder / LEDGER)[0] if entry.release.kind == DISGUISED]


def _memo_options(project: Project, person: str | None, *, again: bool) -> list[str]:
    """Return the options of a memo; a memo in place of another one is used only if the person says so."""
    if person is None:
        return []
    question = memo_question(project)
    if question is not None and not again:
        raise InputError(f'{question} To do so, choose "draw all people again".')
    new = ["--new-memo"] if memo_state(project).present is None else []
    return ["--memo", MEMO, *new, "--id", person]


def released(project: Project, job: Job) -> None:
    """Write a release down in the ledger, and count it from now on."""
    out, policy = (job.argv[job.argv.index(option) + 1] for option in ("--out", "--policy"))
    printed = json.loads(job.outcome.printed) if job.outcome is not None else {}
    for entry in entries(project.folder, out, policy, printed["rows"], memo=printed["memo"]):
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
    """Return the lines of the ledger for a release: what is disguised, and what is in clear, without a bound.

    Reports that one memo, known by its id, repeats under one policy are one draw, and count once however
    often they are released.
    """
    policy = Policy.load(folder / policy_file)
    with (folder / out).open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    gamma = record_gamma(policy)
    bounded = Fraction(gamma) if gamma != math.inf else None
    clear = tuple(v.name for v in policy.schema.variables if v.name not in policy.disguised)
    draw = None if memo is None else f"{memo} {policy.id}"
    found = []
    if policy.disguised:
        what = (DISGUISED, tuple(policy.disguised), rows, policy.id, bounded, digest, draw)
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
    released = RELEASED.fullmatch(records["data"])
    out = Path(records["data"]).parent / "package" if released else Path(FOLDER) / "package"
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
