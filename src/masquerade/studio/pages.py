"""The seven screens: what each shows, from the project's files and what commands printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from masquerade.channels.measures import breach_bound
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.words import (
    category_text,
    epsilon_text,
    gamma_text,
    gamma_words,
    log_gamma,
    percent,
    visible,
)
from masquerade.studio import pictures, policy_edits, steps
from masquerade.studio.answer import Answer
from masquerade.studio.project import RESULTS

if TYPE_CHECKING:
    from masquerade.studio.engine import Job
    from masquerade.studio.server import Studio

SCREENS = ("data", "policy", "trade-off", "estimate", "learn", "audit", "release")
TITLES = ("Data", "Policy", "Trade-off", "Estimate", "Learn", "Audit", "Release")
ENDINGS = (".csv", ".gz", ".tsv", ".parquet", ".arrow", ".xlsx", ".sav", ".dta", ".xpt", ".baskets")
MOST_FILES, MOST_ROWS = 200, 400
# what templates may ask for where a screen has nothing to show
EMPTY: dict[str, Any] = {
    **dict.fromkeys(("problem", "answer", "risk", "tables", "link", "values", "picture")),
    **dict.fromkeys(("rows", "folders", "files", "releases"), ()),
    "folder": Path("/"),
}
SAVED = ("csv", "tex", "md")
SVG_STYLE = (
    "text{font:12px sans-serif;fill:#1d2733}.bar{fill:#bcd7ee}.whisker{stroke:#1a6fb5;stroke-width:2}"
    ".grid{stroke:#dde2e8}.tick{fill:#65717f}"
)


def number(value: Any, at: str, form: str = ",.4g") -> Markup:
    """Return a number for reading, with what the command printed and where it stands in that."""
    if value is None:
        return Markup("–")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
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
    return Markup('<data value="{}" data-at="{}">{}</data>').format(repr(value), at, words)


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


def problem_page(studio: Studio, words: str) -> str:
    """Return the page that says what went wrong, and how to go on."""
    return filled("problem.html.j2", _frame(studio, "problem", {}) | {"problem": words})


def screen_page(studio: Studio, name: str, asked: steps.Asked) -> str:
    """Return one of the screens."""
    content = _frame(studio, name, asked)
    try:
        content |= VIEWS[name](studio, asked, content)
    except MasqueradeError as error:
        content["problem"] = str(error)
    return filled(f"{name}.html.j2", EMPTY | content)


def _frame(studio: Studio, name: str, asked: steps.Asked) -> dict[str, Any]:
    """Return what every page shows: the summary line, versions, and what was asked."""
    project = studio.project
    settings, policy, problem = project.settings, None, None
    try:
        policy = project.policy
    except MasqueradeError as error:
        problem = str(error)
    gamma: Any = None
    if policy is not None and policy.disguised:
        gamma = max(
            math.prod(group.channel.gamma for group in policy.groups_of(stratum) if group.disguised)
            for stratum in policy.strata or (None,)
        )
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
        found["answer"] = _answer_of(draft)
    elif settings["data"] and content["policy"] is not None:
        found["answer"] = studio.answer(["policy", "check", "policy.yaml", settings["data"], "--json"])
        clear = [name for name in content["variables"] if name not in content["policy"].disguised]
        if clear:
            quasi = ["--quasi", ",".join(clear), "--json"]
            found["risk"] = studio.answer(["anonymize", "check", settings["data"], *quasi])
    return found


def _policy(_studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    policy, people = content["policy"], content["settings"]["people"]
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
    found = policy_edits.live_figures(values, name, gamma, studio.project.settings["people"])
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
    answer = studio.answer(steps.trade_off(asked, content["settings"]["people"]))
    picture = Markup("")
    if answer.values is not None:
        lines: dict[str, list[tuple[float, float]]] = {}
        floor = []
        for row in answer.values["curve"]:
            if row["margin"]:
                lines.setdefault(row["design"], []).append((row["epsilon"], row["margin"]))
            if row["floor"]:
                floor.append((row["epsilon"], row["floor"]))
        picture = pictures.curves(lines, sorted(set(floor)), answer.values["epsilon"], "Error against ε")
    return {"answer": answer, "picture": picture}


def _records(content: Mapping[str, Any]) -> Mapping[str, Any]:
    records: Mapping[str, Any] | None = content["settings"]["records"]
    if not records:
        raise InputError("There are no disguised records yet: make some on Release, or choose some on Data.")
    return records


def _estimate(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    records = _records(content)
    if steps.one(asked, "do") is None:
        return {"picture": Markup("")}
    answer = studio.answer(steps.estimate(asked, records))
    return {"answer": answer, "picture": _bars(answer)}


def _bars(answer: Answer) -> Markup:
    """Return the picture of whatever has values with intervals."""
    rows = answer.values or []
    if isinstance(rows, dict):
        rows = rows.get("rows", [])
    elif rows and "cells" in rows[0]:
        rows = [
            cell["labels"] | {k: v for k, v in cell.items() if k != "labels"} for cell in rows[0]["cells"]
        ]
    found = []
    for row in rows:
        value = next((row[key] for key in VALUES if isinstance(row.get(key), (int, float))), None)
        if value is None or row.get("lower") is None or row.get("upper") is None:
            return Markup("")
        label = " · ".join(str(v) for v in row.values() if isinstance(v, str)) or "all"
        found.append(pictures.Bar(label, value, row["lower"], row["upper"]))
    return pictures.bars(found, "Estimates with their intervals")


LINK = "learn?do=link&parent={parent}&child={child}"
VALUES = ("count", "share", "difference", "ratio", "odds_ratio", "odds ratio", "estimate", "coef", "mean")


def _learn(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    records = _records(content)
    do = steps.one(asked, "do")
    if do is None:
        return {"picture": Markup(""), "tables": None, "link": None}
    if do == "network" and steps.one(asked, "structure") is None:
        found = studio.answer(steps.learn(dict(asked) | {"do": ["structure"]}, records))
        if found.values is None:
            return {"answer": found, "picture": Markup(""), "tables": None, "link": None}
        asked = dict(asked) | {"structure": [f"results/{found.name}.json"]}
        asked.pop("max_parents", None)
    learner = {"link": "structure"}.get(do, do)
    answer = studio.answer(steps.learn(dict(asked) | {"do": [learner]}, records))
    link, tables = None, None
    if do == "link":
        link = studio.answer(steps.learn(asked, records))
    kind = answer.values.get("kind") if isinstance(answer.values, dict) else None
    if kind in {"bayesian_network", "naive_bayes", "association_rules"}:
        tables = studio.answer(steps.tables_of(answer.name))
    picture = _bars(answer) if kind is None else Markup("")
    if kind == "structure":
        strength = {(s["parent"], s["child"]): s["statistic"] for s in answer.values["strengths"]}
        picture = pictures.network(answer.values["parents"], strength, LINK)
    elif kind == "bayesian_network":
        parents = {node["variable"]["name"]: _parents(node) for node in answer.values["nodes"]}
        picture = pictures.network(parents, {}, LINK)
    return {"answer": answer, "picture": picture, "tables": tables, "link": link}


def _parents(node: Mapping[str, Any]) -> list[str]:
    return [parent["name"] if isinstance(parent, dict) else str(parent) for parent in node["parents"]]


def _audit(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    if steps.one(asked, "do") is None:
        return {}
    if content["policy"] is None and steps.one(asked, "do") == "policy":
        raise InputError("There is no policy yet: draft one on the page Data.")
    return {"answer": studio.answer(steps.audit(asked, content["settings"]["records"]))}


def _release(studio: Studio, asked: steps.Asked, _content: Mapping[str, Any]) -> dict[str, Any]:
    made = steps.one(asked, "made")
    folder = studio.project.folder / "releases"
    inside = folder.iterdir() if folder.is_dir() else ()
    kept = sorted((p for p in inside if p.name.isdecimal()), key=lambda p: int(p.name))
    releases = [
        {"number": p.name, "files": [f.name for f in sorted(p.iterdir()) if not f.name.startswith(".")]}
        for p in kept
    ]
    found: dict[str, Any] = {"releases": releases}
    if made is None:
        return found
    step = next((s for s in studio.project.steps if s["result"] == made), None)
    job = studio.engine.job(made)
    argv = step["command"] if step is not None else None if job is None else list(job.argv)
    if argv is None:
        raise InputError("That release is not known any more; the list below has all there are.")
    kept_values = studio.project.result(made)
    if kept_values is not None:
        found["answer"] = Answer(made, tuple(argv), kept_values, tuple(step["said"]) if step else ())
    elif job is not None:
        found["answer"] = _answer_of(job)
    return found


def _answer_of(job: Job) -> Answer:
    """Return what is known of a job that has no result: how far it is, or what went wrong."""
    problem, running = (job.words, None) if job.over.is_set() else (None, job)
    return Answer(job.name, job.argv, problem=problem, job=running)


def download(studio: Studio, name: str, ending: str) -> tuple[str, bytes]:
    """Return the kind and the bytes of a kept result in another form."""
    step = next((one for one in studio.project.steps if one["result"] == name), None)
    if step is None:
        raise InputError("There is no such result in this project.")
    path = studio.project.folder / RESULTS / f"{name}.json"
    if ending == "json":
        return "application/json", path.read_bytes()
    if ending == "svg":
        answer = studio.answer(step["command"])
        text = str(_bars(answer)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        return "image/svg+xml", text.replace(">", f"><style>{SVG_STYLE}</style>", 1).encode()
    if ending not in SAVED or step["command"][0] not in {"estimate", "stats"}:
        raise InputError(f"This result is not written as .{ending}.")
    out = studio.project.folder / "downloads" / f"{name}.{ending}"
    out.parent.mkdir(exist_ok=True)
    argv = [word for word in step["command"] if word != "--json"]
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
