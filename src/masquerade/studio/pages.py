"""Content of the seven screens, from the files of the project and the output of commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, TemplateError
from markupsafe import Markup, escape

from masquerade.channels.privacy_level import DEFAULT_LIMIT
from masquerade.core.bins import bin_edges
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.record_gamma import describe_gamma, describe_person
from masquerade.core.schema import Variable
from masquerade.core.util.formatting import (
    category_text,
    gamma_text,
    gamma_words,
    log_gamma,
    percent,
    visible,
)
from masquerade.disguising.draft_dates import HINT as DATES
from masquerade.learn.model_file import OWN, reader
from masquerade.plan.person_budget import SHARES_AND_PAIRS, WIDTHS
from masquerade.studio import pictures, policy_edits, records, releases, steps
from masquerade.studio.allow_list import SHOWN_LEARNERS, read_step
from masquerade.studio.answer import Answer, answer_of
from masquerade.studio.project import RESULTS
from masquerade.studio.reach import NotAllowed

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.studio.server import Studio

SCREENS = ("data", "policy", "trade-off", "estimate", "learn", "audit", "release")
TITLES = ("Data", "Policy", "Trade-off", "Estimate", "Learn", "Audit", "Release")
ENDINGS = (".csv", ".gz", ".tsv", ".parquet", ".arrow", ".xlsx", ".sav", ".dta", ".xpt", ".jsonl", ".baskets")
MOST_FILES, MOST_ROWS = 200, 400
# defaults of the values that templates use
EMPTY: dict[str, Any] = {
    **dict.fromkeys(("problem", "answer", "risk", "tables", "link", "values", "picture", "alone", "ledger")),
    **dict.fromkeys(("tested", "tested_picture", "predicts", "nodes", "queried")),
    "numbers": [],
    "tested_on": "",
    **dict.fromkeys(("memo_question", "memo_words", "total", "spent", "draft", "limit", "raised", "means")),
    "choices": {},
    "missing": [],
    **dict.fromkeys(("rows", "folders", "files", "releases", "needs"), ()),
    "folder": Path("/"),
    "learners": [
        *((name, learner.title) for name, learner in SHOWN_LEARNERS.items()),
        ("regress", "regression"),
    ],
    "predictors": [name for name, learner in SHOWN_LEARNERS.items() if ("target",) in learner.needs],
}
SAVED = ("csv", "tex", "md")
DIFFERENCES = {"accuracy above trivial", "observed minus predicted"}  # measures that are not shares
CLASSIFIERS = {"naive_bayes", "decision_tree", "linear_classifier"}  # models that predict a class
TABLES_APART = {"bayesian_network", "linear_classifier"}  # models whose tables differ from their summary
MOST_CHOICES = 50  # categories of a variable that a form offers


def number(value: Any, at: str, form: str = ",.4g", command: str = "") -> Markup:
    """Format a number, marked with its exact value and its path in the output of the command.

    Without `command`, it is the command of the surrounding section.
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


def fill_template(template: str, content: Mapping[str, Any]) -> str:
    """Render a template."""
    return visible(_environment().get_template(template).render(content), lines=True)


def problem_page(studio: Studio, words: str, needs: tuple[str, ...] = ()) -> str:
    """Return the page that describes a problem and how to continue."""
    try:
        content = _frame(studio, "problem", {})
    except MasqueradeError as error:  # the project's files are not valid
        return fill_template("broken.html.j2", {"problem": str(error)})
    return fill_template("problem.html.j2", EMPTY | content | {"problem": words, "needs": needs})


def screen_page(studio: Studio, name: str, asked: steps.Asked) -> str:
    """Return one of the screens."""
    content = _frame(studio, name, asked)
    try:
        with reading_results():
            return fill_template(f"{name}.html.j2", EMPTY | content | VIEWS[name](studio, asked, content))
    except MasqueradeError as error:
        problem = {"problem": str(error), "needs": error.needs if isinstance(error, NotAllowed) else ()}
    return fill_template(f"{name}.html.j2", EMPTY | content | problem)


@contextmanager
def reading_results() -> Iterator[None]:
    """Raise InputError if a stored result, which may be any file, does not have the expected form."""
    try:
        yield
    except (TypeError, LookupError, AttributeError, ArithmeticError, TemplateError, ValueError) as error:
        if isinstance(error, MasqueradeError):
            raise
        raise InputError(
            f"A stored result is not what its command prints ({type(error).__name__}): delete the folder "
            f"{RESULTS} and steps.json, and run the commands again."
        ) from None


def _frame(studio: Studio, name: str, asked: steps.Asked) -> dict[str, Any]:
    """Return the values that every page shows: summary line, versions, and form values."""
    project = studio.project
    (at, versions), settings, policy, problem = project.version_index, project.settings, None, None
    try:
        policy = project.policy
    except MasqueradeError as error:
        problem = str(error)
    gamma = policy.record_gamma if policy is not None and policy.disguised else None
    return {
        "screen": name,
        "title": dict(zip(SCREENS, TITLES, strict=True)).get(name, "Something is wrong"),
        "settings": settings,
        "policy": policy,
        "broken": problem,
        "record": None if gamma is None else gamma_words(gamma),
        "person": None if gamma is None or policy is None else describe_person(gamma, policy.clear_missing),
        "versions": versions,
        "at": at,
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
        raise InputError(f"{folder}: is not a folder.")
    draft = studio.engine.job(steps.one(asked, "draft") or "")
    # a job ends before its draft becomes the policy: until then it is shown as running
    if draft is not None and not (draft.state == "done" and draft.over.is_set()):
        found["answer"] = answer_of(draft)
    elif settings["data"] and content["policy"] is not None:
        try:
            found |= _check_data(studio, settings["data"], content)
        except NotAllowed as error:  # still show the list of files
            found |= {"problem": str(error), "needs": error.needs}
    return found


def _check_data(studio: Studio, data: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Check the file against the policy, and measure the risk of the clear columns."""
    answers = {"answer": studio.answer(["policy", "check", "policy.yaml", data, "--json"])}
    clear = [name for name in content["variables"] if name not in content["policy"].disguised]
    if clear:
        quasi = ["--quasi", ",".join(clear), "--json"]
        answers["risk"] = studio.answer(["anonymize", "check", data, *quasi])
    return answers


def _policy(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
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
        "command": steps.format_command(argv),
        "python": "mq.privacy('policy.yaml')",
        "limit": None if policy.limit is None else str(policy.limit),
        "limit_values": policy_edits.limit_of(studio.project.policy_values).to_dict(),
        **_draft(studio, policy, content),
    }


def _draft(studio: Studio, policy: Policy, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the costs of the latest draft, as its command printed them, and the columns to choose from."""
    draft = studio.project.draft
    if draft is None or not content["settings"]["data"]:
        return {"draft": None, "columns": [], "dates": {}}
    argv, printed = draft
    names = {name: "clear" if name in policy.clear_variables else "sensitive" for name in policy.schema}
    columns = [(name, use, "") for name, use in names.items()]
    columns.sort(key=lambda column: column[1])  # clear columns first
    columns += [(name, "", why) for name, why in printed["left_out"].items() if name not in names]
    widths = sorted({item["variables"] for item in printed["costs"]})
    limits = list(dict.fromkeys(item["limit"] for item in printed["costs"]))
    place = {(item["limit"], item["variables"]): at for at, item in enumerate(printed["costs"])}
    return {
        "draft": printed,
        "is_current": printed["id"] == policy.id,
        "columns": columns,
        "dates": _date_choices(argv, printed["left_out"]),
        "cost_heads": [limit.partition(",")[0].partition(" (")[0] for limit in limits],
        "cost_rows": [
            (WIDTHS.get(width, f"a table of {width} variables"), [place[limit, width] for limit in limits])
            for width in widths
        ],
        "draft_command": steps.format_command(argv),
        "draft_python": steps.draft_python(argv, printed["people"]),
        "count": read_step(argv).one("count") or SHARES_AND_PAIRS,
    }


def _date_choices(argv: Sequence[str], left_out: Mapping[str, str]) -> dict[str, list[tuple[str, str, bool]]]:
    """Return the possible readings of each column of dates: value, text, and True if chosen."""
    texts = read_step(argv).options.get("date", ())
    chosen = {text.rpartition("=")[0]: text for text in texts}
    names = [*chosen, *(name for name, why in left_out.items() if why == DATES and name not in chosen)]
    today = date.today().isoformat()  # noqa: DTZ011
    return {
        name: [
            (text, title, text.partition(":")[0] == chosen.get(name, "").partition(":")[0])
            for text, title in (
                (f"{name}=age:{today}", "as an age today"),
                (f"{name}=year", "as years"),
                (f"{name}=quarter", "as quarters"),
                (f"{name}=month", "as months"),
            )
        ]
        for name in names
    }


def live_words(studio: Studio, asked: steps.Asked) -> str:
    """Describe the position of a slider while it is moved."""
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
        "record": gamma_words(record),
        "person": describe_gamma(record),
        "is_beyond": found["is_beyond"],
        "live": True,
    }
    return fill_template("words.html.j2", content)


def _trade_off(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    if content["policy"] is None:
        raise InputError("Draft a policy on the page Data first: a plan needs its variables.")
    policy = content["policy"]
    answer = studio.answer(steps.trade_off(asked, content["people"], policy.clear_variables))
    found: dict[str, Any] = {"answer": answer, "picture": picture_of(answer)}
    if answer.values is not None:
        new, limit = policy_edits.limit_of(answer.values["policy"]), policy.limit or DEFAULT_LIMIT
        found["raised"] = f"from {limit} to {new}" if new.gamma > limit.gamma else None
        found["means"] = describe_gamma(new.gamma)
    return found


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
    """Return the location of the records to count, and their variables for forms."""
    found: Mapping[str, Any] | None = content["settings"]["records"]
    if not found:
        raise InputError("There are no disguised records yet: make some on Release, or choose some on Data.")
    schema = records.policy_of(studio, found).schema
    short = [variable for variable in schema.variables if len(variable) <= MOST_CHOICES]
    choices = {v.name: [category_text(label) for label in v.categories] for v in short}
    return found, {
        "variables": [v.name for v in schema.variables],
        "choices": choices,
        "missing": [v.name for v in schema.variables if v.missing],
        "numbers": [v.name for v in schema.variables if _has_numbers(v)],
    }


def _has_numbers(variable: Variable) -> bool:
    """Return True if the answers of a variable are numbers or bins."""
    answers = variable.answers
    return bin_edges(variable) is not None or all(type(label) in {int, float} for label in answers)


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
    """Return the plot of an answer: a plan, a network, or values with intervals."""
    values = answer.values
    if isinstance(values, dict) and "curve" in values:
        return _curves(values)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == "structure":
        strength = {(s["parent"], s["child"]): s.get("deviance", s["statistic"]) for s in values["strengths"]}
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
    """Return bars with their intervals and, if known, the intervals of the disguise alone."""
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
VALUES = (
    "count",
    "share",
    "difference",
    "ratio",
    "odds_ratio",
    "odds ratio",
    "estimate",
    "coef",
    "mean",
    "quantile",
    "median",
)


def _learn(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    do = steps.one(asked, "do")
    if do == "model":
        path = studio.place_of(steps.need(asked, "model", "a file with a model"))
        shown = studio.answer(steps.model(path))
        return _model_view(studio, shown, path) | _network_query(studio, asked, shown, path)
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
    path = f"{RESULTS}/{answer.name}.json"
    found |= _model_view(studio, answer, path) | _network_query(studio, asked, answer, path)
    return found | _model_test(studio, asked, answer, where, path)


def _model_view(studio: Studio, answer: Answer, path: str) -> dict[str, Any]:
    """Return a model with its plot and its tables."""
    kind = answer.values.get("kind") if isinstance(answer.values, dict) else None
    tables = studio.answer(steps.model(path, tables=True)) if _has_tables(kind) else None
    return {"answer": answer, "picture": picture_of(answer), "tables": tables}


def _network_query(studio: Studio, asked: steps.Asked, answer: Answer, path: str) -> dict[str, Any]:
    """Return the form that asks a network for a distribution, and its answer if the form was sent."""
    values = answer.values if isinstance(answer.values, dict) else {}
    if values.get("kind") != "bayesian_network":
        return {}
    content: dict[str, Any] = {"nodes": [node["variable"]["name"] for node in values["nodes"]]}
    if steps.one(asked, "of") is not None:
        content["queried"] = studio.answer(steps.ask_network(asked, path))
    return content


def _model_test(
    studio: Studio, asked: steps.Asked, answer: Answer, where: Mapping[str, Any], path: str
) -> dict[str, Any]:
    """Return the form of a test of a classifier, and the test if the form was sent."""
    values = answer.values if isinstance(answer.values, dict) else {}
    if values.get("kind") not in CLASSIFIERS or where.get("engine"):
        return {}
    content: dict[str, Any] = {
        "predicts": [category_text(label) for label in values["target"]["categories"]],
        "tested_on": str(where["data"]),
    }
    if steps.one(asked, "test") is None:
        return content
    tested = studio.answer(steps.test_model(asked, where, path))
    picture = Markup("")
    if tested.values is not None:
        rows = [row for row in tested.values["rows"] if row["measure"] not in DIFFERENCES]
        picture = _bars(rows, [])
    return content | {"tested": tested, "tested_picture": picture}


def _has_tables(kind: str | None) -> bool:
    """Return True if `show --table` prints tables of this built-in type of model."""
    return kind is not None and kind in OWN and (kind in TABLES_APART or hasattr(reader(kind), "to_frame"))


def _parents(node: Mapping[str, Any]) -> list[str]:
    return [parent["name"] if isinstance(parent, dict) else str(parent) for parent in node["parents"]]


def _audit(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
    if steps.one(asked, "do") is None:
        return {}
    if content["policy"] is None and steps.one(asked, "do") == "policy":
        raise InputError("There is no policy yet: draft one on the page Data.")
    return {"answer": studio.answer(steps.audit(asked, content["settings"]["records"]))}


def _release(studio: Studio, asked: steps.Asked, content: Mapping[str, Any]) -> dict[str, Any]:
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
    found["total"] = releases.total_words(studio.project)
    if (studio.project.folder / releases.LEDGER).exists():
        if content["policy"] is not None:
            argv = ["privacy", "policy.yaml", "--ledger", releases.LEDGER, "--json"]
            found["spent"] = studio.answer(argv)
            found["policy_epsilon"] = log_gamma((content["policy"].limit or DEFAULT_LIMIT).gamma)
        found["ledger"] = studio.answer(["party", "ledger", releases.LEDGER, "--json"])
    made = steps.one(asked, "made")
    return found if made is None else found | {"answer": _release_answer(studio, made)}


def _release_answer(studio: Studio, name: str) -> Answer:
    """Return the answer of a release, from its job or from its stored result."""
    step = next((one for one in studio.project.steps if one.result == name), None)
    if step is not None:
        kept = studio.project.result(name)
        return Answer(name, tuple(step.command), kept, tuple(step.said))
    job = studio.engine.job(name)
    if job is None:
        raise InputError("That release is unknown; the list below has all releases.")
    return answer_of(job)


def download(studio: Studio, name: str, ending: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of a stored result in another format."""
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
            raise InputError("This result has no plot.")
        return "image/svg+xml", pictures.standing_alone(picture)
    model = argv[0] == "learn"
    if ending not in SAVED or (argv[0] not in {"estimate", "stats"} and not model):
        raise InputError(f"This result cannot be written as .{ending}.")
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
