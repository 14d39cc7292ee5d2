"""The seven screens: what each shows, from the project's files and what commands printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError
from markupsafe import Markup, escape

from masquerade.channels.measures import breach_bound
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.util.formatting import (
    category_text,
    epsilon_text,
    gamma_text,
    gamma_words,
    log_gamma,
    percent,
    visible,
)
from masquerade.studio import pictures, policy_edits, records, releases, steps
from masquerade.studio.answer import Answer, answer_of
from masquerade.studio.project import RESULTS
from masquerade.studio.reach import NotAllowed

if TYPE_CHECKING:
    from masquerade.studio.server import Studio

SCREENS = ("data", "policy", "trade-off", "estimate", "learn", "audit", "release")
TITLES = ("Data", "Policy", "Trade-off", "Estimate", "Learn", "Audit", "Release")
ENDINGS = (".csv", ".gz", ".tsv", ".parquet", ".arrow", ".xlsx", ".sav", ".dta", ".xpt", ".baskets")
MOST_FILES, MOST_ROWS = 200, 400
# what templates may ask for where a screen has nothing to show
EMPTY: dict[str, Any] = {
    **dict.fromkeys(("problem", "answer", "risk", "tables", "link", "values", "picture", "alone", "ledger")),
    **dict.fromkeys(("memo_question", "memo_words")),
    "choices": {},
    **dict.fromkeys(("rows", "folders", "files", "releases", "needs"), ()),
    "folder": Path("/"),
}
SAVED = ("csv", "tex", "md")
TABLED = {"bayesian_network", "naive_bayes", "association_rules"}
MOST_CHOICES = 50  # categories of a variable among which a form lets choose


def number(value: Any, at: str, form: str = ",.4g", command: str = "") -> Markup:
    """Return a number for reading, with what the command printed and where it stands in that.

    The command is that of the section which it stands in, unless it is named.
    """
    if value is None:
        return Markup("–")
    if isinstance(value, bool):
        return Markup("yes") if value else Markup("no")
    if not isinstance(value, (int, float)):
        return escape(category_text(value))
    if isinstance(value, int):
        words = f"{value:,}"
    elif form == "p":
        words = "< 0.0001" if value < 1e-4 else f"{value:.4f}"
    elif form == "%":
        words = percent(value)
    else:
        words = f"{value:{form}}"
        words = words.removeprefix("-") if not words.strip("-0.,") else words
    by = Markup(' data-command="{}"').format(command) if command else Markup("")
    return Markup('<data value="{}" data-at="{}"{}>{}</data>').format(repr(value), at, by, words)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("masquerade.studio"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        number=number,
        percent=percent,
        gamma_text=gamma_text,
        gamma_of=lambda text: gamma_words(Fraction(text)),
        category_text=category_text,
        screens=list(zip(SCREENS, TITLES, strict=True)),
        saved=SAVED,
    )
    environment.filters["words"] = lambda name: str(name).replace("_", " ")
    environment.tests["number"] = lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)
    return environment


def filled(template: str, content: Mapping[str, Any]) -> str:
    """Return a template with its content."""
    return visible(_environment().get_template(template).render(content), lines=True)


def problem_page(studio: Studio, words: str, needs: tuple[str, ...] = ()) -> str:
    """Return the page that says what went wrong, and how to go on."""
    try:
        content = _frame(studio, "problem", {})
    except MasqueradeError as error:  # the project's own files are wrong
        return filled("broken.html.j2", {"problem": str(error)})
    return filled("problem.html.j2", EMPTY | content | {"problem": words, "needs": needs})


def screen_page(studio: Studio, name: str, asked: steps.Asked) -> str:
    """Return one of the screens."""
    content = _frame(studio, name, asked)
    try:
        with reading_results():
            return filled(f"{name}.html.j2", EMPTY | content | VIEWS[name](studio, asked, content))
    except MasqueradeError as error:
        problem = {"problem": str(error), "needs": error.needs if isinstance(error, NotAllowed) else ()}
    return filled(f"{name}.html.j2", EMPTY | content | problem)


@contextmanager
def reading_results() -> Iterator[None]:
    """Raise InputError where a kept result, which is a file and may hold anything, is not as it should be."""
    try:
        yield
    except (TypeError, LookupError, AttributeError, ArithmeticError, TemplateError, ValueError) as error:
        if isinstance(error, MasqueradeError):
            raise
        raise InputError(
            f"A kept result is not what its command prints ({type(error).__name__}): delete the folder "
            f"{RESULTS} and steps.json, and ask again."
        ) from None


def _frame(studio: Studio, name: str, asked: steps.Asked) -> dict[str, Any]:
    """Return what every page shows: the summary line, versions, and what was asked."""
    project = studio.project
    settings, policy, problem = project.settings, None, None
    try:
        policy = project.policy
    except MasqueradeError as error:
        problem = str(error)
    gamma = policy_edits.record_gamma(policy) if policy is not None and policy.disguised else None
    return {
        "screen": name,
        "title": dict(zip(SCREENS, TITLES, strict=True)).get(name, "Something is wrong"),
        "settings": settings,
        "policy": policy,
        "broken": problem,
        "record": None if gamma is None else gamma_words(gamma),
        "versions": project.versions,
        "at": project.at,
        "asked": lambda key: steps.one(asked, key) or "",
        "all_asked": lambda key: steps.several(asked, key),
        "query": urlencode([(key, value) for key, values in asked.items() for value in values]),
        "people": project.people,
        "steps": len(project.steps),
        "variables": [] if policy is None else [v.name for v in policy.schema.variables],
        "data_name": Path(settings["data"]).name if settings["data"] else None,
    }


def _data(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    project, settings = studio.project, content["settings"]
    folder = Path(steps.one(asked, "folder") or project.folder.parent).resolve()
    found: dict[str, Any] = {"folder": folder, "folders": [], "files": [], "risk": None}
    if folder.is_dir():
        inside = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: p.name)
        found["folders"] = [p for p in inside if p.is_dir()][:MOST_FILES]
        found["files"] = [p for p in inside if p.is_file() and p.suffix.lower() in ENDINGS][:MOST_FILES]
    else:
        raise InputError(f"{folder}: is no folder.")
    draft = studio.engine.job(steps.one(asked, "draft") or "")
    if draft is not None and draft.state != "done":
        found["answer"] = answer_of(draft)
    elif settings["data"] and content["policy"] is not None:
        try:
            found |= _check_data(studio, settings["data"], content)
        except NotAllowed as error:  # the list of files is shown all the same
            found |= {"problem": str(error), "needs": error.needs}
    return found


def _check_data(studio: Studio, data: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the check of the file by the policy, and the risk of the columns in clear."""
    answers = {"answer": studio.answer(["policy", "check", "policy.yaml", data, "--json"])}
    clear = [name for name in content["variables"] if name not in content["policy"].disguised]
    if clear:
        quasi = ["--quasi", ",".join(clear), "--json"]
        answers["risk"] = studio.answer(["anonymize", "check", data, *quasi])
    return answers


def _policy(_studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    policy, people = content["policy"], content["people"]
    if policy is None:
        return {"rows": [], "values": None}
    values = policy_edits.figures(policy, people)
    by_name = {tuple(item["variables"]): place for place, item in enumerate(values["variables"])}
    expected = {item["variable"]: place for place, item in enumerate(values["expected"])}
    rows = []
    for variable in policy.schema.variables:
        group = policy.group(variable.name)
        alone = group.names == (variable.name,) and group.response is None
        disguised = variable.name in policy.disguised
        place = by_name.get((variable.name,))
        matrix = group.matrix_channel if alone and disguised and group.response is None else None
        small = matrix is not None and len(variable) <= policy_edits.MOST_SPINNERS and matrix.labels is None
        rows.append(
            {
                "name": variable.name,
                "categories": variable.categories,
                "disguised": disguised,
                "alone": alone,
                "with": [name for name in group.names if name != variable.name],
                "place": place,
                "figures": None if place is None else values["variables"][place],
                "expected": expected.get(variable.name),
                "stop": policy_edits.stop_of(policy, variable.name) if disguised and alone else 6,
                "sentences": policy_edits.sentences(matrix, variable.categories)
                if matrix is not None and small
                else [],
                "kept": [round(100 * row[code]) for code, row in enumerate(matrix.matrix.tolist())]
                if matrix is not None and small
                else [],
            }
        )
    argv = ["privacy", "policy.yaml", "--n", str(people), "--json"]
    return {
        "rows": rows,
        "values": values,
        "stops": policy_edits.STOPS,
        "open": steps.one(asked, "open"),
        "command": steps.shown(argv),
        "python": "mq.privacy('policy.yaml')",
        "sentence": belief_words(values["record"]["gamma"]),
    }


def belief_words(gamma: float | None) -> str:
    """Say how far a belief of 5% can rise."""
    if gamma is None:
        return "A report can exclude a value for certain: nothing bounds what is learnt."
    return f"A belief of 5% can rise to at most {percent(breach_bound(gamma, 0.05))}."


def live_words(studio: Studio, asked: steps.Asked) -> str:
    """Return what a slider means where it stands, before it is let go."""
    values = studio.project.policy_values
    name = steps.need(asked, "name", "a variable")
    if name not in values["variables"]:
        raise InputError(f"There is no variable {name!r}.")
    gamma = policy_edits.STOPS[policy_edits.stop_asked(asked)]
    found = policy_edits.live_figures(values, name, gamma, studio.project.people)
    record = found["record_gamma"]
    content = {
        "figures": found["variables"][0],
        "expected": found["expected"][0],
        "record": f"γ = {gamma_text(record)} (ε = {epsilon_text(log_gamma(record))})",
        "live": True,
    }
    return filled("words.html.j2", content)


def _trade_off(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    if content["policy"] is None:
        raise InputError("Draft a policy on the page Data first: its variables are what is planned for.")
    answer = studio.answer(steps.trade_off(asked, content["people"]))
    return {"answer": answer, "picture": picture_of(answer)}


def _curves(plan: Mapping[str, Any]) -> Markup:
    lines: dict[str, list[tuple[float, float]]] = {}
    floor = []
    for row in plan["curve"]:
        if row["margin"]:
            lines.setdefault(row["design"], []).append((row["epsilon"], row["margin"]))
        if row["floor"]:
            floor.append((row["epsilon"], row["floor"]))
    return pictures.curves(lines, sorted(set(floor)), plan["epsilon"], "Error against ε")


def _records(studio: Studio, content: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return where the records are that are counted, and their variables, for forms."""
    found: Mapping[str, Any] | None = content["settings"]["records"]
    if not found:
        raise InputError("There are no disguised records yet: make some on Release, or choose some on Data.")
    schema = records.policy_of(studio, found).schema
    short = [variable for variable in schema.variables if len(variable) <= MOST_CHOICES]
    choices = {v.name: [category_text(label) for label in v.categories] for v in short}
    return found, {"variables": [v.name for v in schema.variables], "choices": choices}


def _estimate(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    where, found = _records(studio, content)
    do = steps.one(asked, "do")
    if do is None:
        return found
    answer = studio.answer(steps.estimate(asked, where))
    if answer.values is not None and do == "count" and steps.one(asked, "kind") is None:
        alone = dict(asked) | {"kind": ["given_records"], "misfit": []}
        found["alone"] = studio.answer(steps.estimate(alone, where))
    return found | {"answer": answer, "picture": picture_of(answer, found.get("alone"))}


def picture_of(answer: Answer, alone: Answer | None = None) -> Markup:
    """Return the picture of an answer: of a plan, a network, or whatever has values with intervals."""
    values = answer.values
    if isinstance(values, dict) and "curve" in values:
        return _curves(values)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == "structure":
        strength = {(s["parent"], s["child"]): s["statistic"] for s in values["strengths"]}
        return pictures.network(values["parents"], strength, LINK)
    if kind == "bayesian_network":
        parents = {node["variable"]["name"]: _parents(node) for node in values["nodes"]}
        return pictures.network(parents, {}, LINK)
    if kind is not None:
        return Markup("")
    inner = _rows(alone.values) if alone is not None and alone.values is not None else []
    return _bars(_rows(values), inner)


def _rows(values: Any) -> list[dict[str, Any]]:
    rows = values or []
    if isinstance(rows, dict):
        return list(rows.get("rows", []))
    if rows and "cells" in rows[0]:
        return [
            cell["labels"] | {k: v for k, v in cell.items() if k != "labels"} for cell in rows[0]["cells"]
        ]
    return list(rows)


def _bars(rows: list[dict[str, Any]], inner: list[dict[str, Any]]) -> Markup:
    """Return bars with their intervals, and inside them those of the disguise alone where they are known."""
    found = []
    for place, row in enumerate(rows):
        value = next((row[key] for key in VALUES if isinstance(row.get(key), (int, float))), None)
        if value is None or row.get("lower") is None or row.get("upper") is None:
            return Markup("")
        label = " · ".join(str(v) for v in row.values() if isinstance(v, str)) or "all"
        within = (inner[place]["lower"], inner[place]["upper"]) if inner else None
        found.append(pictures.Bar(label, value, row["lower"], row["upper"], within))
    return pictures.bars(found, "Estimates with their intervals")


LINK = "learn?do=link&parent={parent}&child={child}"
VALUES = ("count", "share", "difference", "ratio", "odds_ratio", "odds ratio", "estimate", "coef", "mean")


def _learn(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    do = steps.one(asked, "do")
    if do == "model":
        path = studio.place_of(steps.need(asked, "model", "a file with a model"))
        return _shown(studio, studio.answer(steps.model(path)), path)
    where, found = _records(studio, content)
    if do is None:
        return found
    if do == "network" and steps.one(asked, "structure") is None:
        first = studio.answer(steps.learn(dict(asked) | {"do": ["structure"]}, where))
        if first.values is None:
            return found | {"answer": first}
        asked = dict(asked) | {"structure": [f"{RESULTS}/{first.name}.json"]}
        asked.pop("max_parents", None)
    learner = {"link": "structure"}.get(do, do)
    answer = studio.answer(steps.learn(dict(asked) | {"do": [learner]}, where))
    if do == "link":
        found["link"] = studio.answer(steps.learn(asked, where))
    return found | _shown(studio, answer, f"{RESULTS}/{answer.name}.json")


def _shown(studio: Studio, answer: Answer, path: str) -> dict[str, Any]:
    """Return a model with its picture, and the tables that it has."""
    kind = answer.values.get("kind") if isinstance(answer.values, dict) else None
    tables = studio.answer(steps.model(path, tables=True)) if kind in TABLED else None
    return {"answer": answer, "picture": picture_of(answer), "tables": tables}


def _parents(node: Mapping[str, Any]) -> list[str]:
    return [parent["name"] if isinstance(parent, dict) else str(parent) for parent in node["parents"]]


def _audit(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    if steps.one(asked, "do") is None:
        return {}
    if content["policy"] is None and steps.one(asked, "do") == "policy":
        raise InputError("There is no policy yet: draft one on the page Data.")
    return {"answer": studio.answer(steps.audit(asked, content["settings"]["records"]))}


def _release(studio: Studio, asked: steps.Asked, _content: Mapping[str, Any]) -> dict[str, Any]:
    folder = studio.project.folder / releases.FOLDER
    inside = folder.iterdir() if folder.is_dir() else ()
    kept = sorted((p for p in inside if p.name.isdecimal()), key=lambda p: int(p.name))
    found: dict[str, Any] = {
        "releases": [
            {"number": p.name, "files": [f.name for f in sorted(p.iterdir()) if not f.name.startswith(".")]}
            for p in kept
        ]
    }
    found["memo_question"] = releases.memo_question(studio.project)
    found["memo_words"] = releases.memo_words(studio.project)
    if (studio.project.folder / releases.LEDGER).exists():
        found["ledger"] = studio.answer(["party", "ledger", releases.LEDGER, "--json"])
    made = steps.one(asked, "made")
    return found if made is None else found | {"answer": _made(studio, made)}


def _made(studio: Studio, name: str) -> Answer:
    """Return what came of a release, whether its job is still known or only its result."""
    step = next((one for one in studio.project.steps if one.result == name), None)
    if step is not None:
        kept = studio.project.result(name)
        return Answer(name, tuple(step.command), kept, tuple(step.said))
    job = studio.engine.job(name)
    if job is None:
        raise InputError("That release is not known any more; the list below has all there are.")
    return answer_of(job)


def download(studio: Studio, name: str, ending: str) -> tuple[str, bytes]:
    """Return the kind and the bytes of a kept result in another form."""
    step = next((one for one in studio.project.steps if one.result == name), None)
    if step is None:
        raise InputError("There is no such result in this project.")
    path, argv = f"{RESULTS}/{name}.json", step.command
    if ending == "json":
        return "application/json", (studio.project.result_text(name) or "").encode()
    if ending == "svg":
        with reading_results():
            picture = picture_of(studio.answer(argv))
        if not picture:
            raise InputError("This result has no picture.")
        return "image/svg+xml", pictures.standing_alone(picture)
    model = argv[0] == "learn"
    if ending not in SAVED or (argv[0] not in {"estimate", "stats"} and not model):
        raise InputError(f"This result is not written as .{ending}.")
    argv = ["show", path] if model else [word for word in argv if word != "--json"]
    out = studio.project.folder / "downloads" / f"{name}.{ending}"
    out.parent.mkdir(exist_ok=True)
    made = studio.answer([*argv, "--out", f"downloads/{out.name}", "--overwrite"], 600)
    if made.problem is not None:
        raise InputError(made.problem)
    return "text/plain; charset=utf-8", out.read_bytes()


VIEWS = {
    "data": _data,
    "policy": _policy,
    "trade-off": _trade_off,
    "estimate": _estimate,
    "learn": _learn,
    "audit": _audit,
    "release": _release,
}
