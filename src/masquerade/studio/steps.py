"""Steps: the command for the request of a page, and the equivalent line of Python."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from masquerade.core.errors import InputError
from masquerade.studio.allow_list import LEARN_OPTIONS, SHOWN_LEARNERS, StudioStep, read_step

Asked = Mapping[str, Sequence[str]]  # the parameters of a URL or form, with all their values
COMPARISONS = ("difference", "ratio", "odds-ratio")
AVERAGES = ("mean", "quantile")


def one(asked: Asked, name: str) -> str | None:
    """Return the first value of a parameter, or None if it is empty."""
    values = [value.strip() for value in asked.get(name, ()) if value.strip()]
    return values[0] if values else None


def several(asked: Asked, name: str) -> list[str]:
    """Return all values of a parameter."""
    return [value.strip() for value in asked.get(name, ()) if value.strip()]


def need(asked: Asked, name: str, words: str) -> str:
    """Return the value of a required parameter; raise InputError if it is missing."""
    value = one(asked, name)
    if value is None:
        raise InputError(f"Choose {words}.")
    return value


def options_from(asked: Asked, *names: str) -> list[str]:
    """Return the options of a command for the parameters that have a value."""
    found = []
    for name in names:
        for value in several(asked, name):
            found += [f"--{name.replace('_', '-')}", value]
    return found


def of_records(records: Mapping[str, Any]) -> list[str]:
    """Return the arguments that locate the records to count."""
    argv = [str(records["data"])]
    for name in ("policy", "engine", "url"):
        argv += [f"--{name}", str(records[name])] if records.get(name) else []
    return argv


def estimate(asked: Asked, records: Mapping[str, Any]) -> list[str]:
    """Return the command of the Estimate page."""
    do, where = one(asked, "do") or "count", of_records(records)
    names = several(asked, "by")
    given_where = options_from(asked, "where")
    if do == "count":
        by = ["--by", ",".join(names)] if names else []
        misfit = ["--misfit"] if one(asked, "misfit") else []
        options = options_from(asked, "level", "kind", "nonnegative", "simultaneous")
        return ["estimate", *where, *by, *given_where, *options, *misfit, "--json"]
    if do == "shares":
        of = need(asked, "of", "the variable whose shares to estimate")
        by = ["--by", ",".join(names)] if names else []
        options = options_from(asked, "level", "missing")
        options += options_from(asked, "given") if one(asked, "missing") == "at-random" else []
        return ["stats", "shares", *where, "--of", of, *by, *given_where, *options, "--json"]
    if do in AVERAGES or do == "enough":
        return _average(asked, where, do) if do in AVERAGES else ["enough", *where, "--json"]
    missing = options_from(asked, "missing")
    if do == "associations":
        return ["stats", "associations", *where, *options_from(asked, "of"), *given_where, *missing, "--json"]
    outcome = need(asked, "of", "the first variable")
    group = need(asked, "group", "the second variable")
    if do == "independence":
        return [
            "stats",
            "independence",
            *where,
            "--of",
            f"{outcome},{group}",
            *given_where,
            *missing,
            "--json",
        ]
    if do in COMPARISONS:
        pair = ["--outcome", outcome, "--group", group]
        return ["stats", do, *where, *pair, *given_where, *missing, *options_from(asked, "level"), "--json"]
    raise InputError(f"There is no estimate {do!r}.")


def _average(asked: Asked, where: Sequence[str], do: str) -> list[str]:
    """Return the command of a mean or a quantile."""
    names = several(asked, "by")
    of = need(asked, "of", "the variable with numbers")
    by = ["--by", ",".join(names)] if names else []
    options = options_from(asked, "level", *(["q"] if do == "quantile" else []))
    way = one(asked, "missing")
    options += ["--missing", way] if way is not None and way != "category" else []
    options += options_from(asked, "given") if way == "at-random" else []
    return ["stats", do, *where, "--of", of, *by, *options_from(asked, "where"), *options, "--json"]


def test_model(asked: Asked, records: Mapping[str, Any], path: str) -> list[str]:
    """Return the command that tests a classifier on disguised records, by default those of the project."""
    data = one(asked, "test") or str(records["data"])
    policy = ["--policy", str(records["policy"])] if records.get("policy") else []
    return ["predict", data, "--model", path, *policy, "--test", *options_from(asked, "positive"), "--json"]


def learn(asked: Asked, records: Mapping[str, Any]) -> list[str]:
    """Return the command of the Learn page."""
    do, where = one(asked, "do") or "structure", of_records(records)
    if do == "regress":
        formula = need(asked, "formula", "an outcome and terms, such as ill ~ smoker + sex")
        return ["stats", "regress", *where, "--formula", formula, *options_from(asked, "model"), "--json"]
    if do == "link":
        pair = f"{need(asked, 'parent', 'a link')},{need(asked, 'child', 'a link')}"
        return ["stats", "independence", *where, "--of", pair, "--power", "0.8", "--json"]
    if do not in SHOWN_LEARNERS:
        raise InputError(f"There is no learner {do!r}.")
    learner = SHOWN_LEARNERS[do]
    if ("target",) in learner.needs:
        need(asked, "target", "the variable to predict")
    if ("k",) in learner.needs:
        need(asked, "k", "the number of clusters")
    chosen = [option.name for option in learner.options if option.name in LEARN_OPTIONS]
    options = options_from(asked, *(name for name in chosen if name != "names"))
    names = several(asked, "names") if "names" in chosen else []
    options += ["--names", ",".join(names)] if names else []
    return ["learn", do, *where, *options, "--json"]


def model(path: str, *, tables: bool = False) -> list[str]:
    """Return the command that shows a model, or its tables."""
    return ["show", path, *(["--table"] if tables else []), "--json"]


def ask_network(asked: Asked, path: str) -> list[str]:
    """Return the command that asks a network for the distribution of a variable, given others."""
    of, given = need(asked, "of", "a variable of the network"), one(asked, "given")
    return ["show", path, "--query", of if given is None else f"{of} | {given}", "--json"]


def trade_off(asked: Asked, people: int, clear: Sequence[str] = ()) -> list[str]:
    """Return the command of the Trade-off page; `clear` are the clear variables of the policy."""
    options = ["--epsilon", one(asked, "epsilon") or "2", "--n", one(asked, "n") or str(people)]
    options += ["--queries", one(asked, "queries") or "pairs", "--per", one(asked, "per") or "record"]
    options += [word for name in clear for word in ("--clear", name)]
    return ["plan", "policy.yaml", *options, "--curve", "--json"]


def audit(asked: Asked, records: Mapping[str, Any] | None) -> list[str]:
    """Return the command of the Audit page."""
    if (one(asked, "do") or "policy") == "policy":
        return ["audit", "policy", "policy.yaml", "--no-page", "--json"]
    if not records:
        raise InputError("Release disguised records first, or choose some on the page Data.")
    return ["audit", "release", *of_records(records), "--json"]


def format_command(argv: Sequence[str]) -> str:
    """Format a command as typed in the project's folder."""
    return shlex.join(["masquerade", *argv])


def python(argv: Sequence[str]) -> str:
    """Return the line of Python that gives the same numbers.

    Every value in it is a literal, and every name is from this module or the allow-list.
    """
    step = read_step(argv)
    return PYTHON[step.command[0]](step)


def _source(step: StudioStep) -> str:
    data, policy = step.arguments[0], step.one("policy")
    if step.database is not None:
        return f"mq.tally(connection.table({data!r}), mq.Policy.load({policy or 'policy.yaml'!r}))"
    return f"mq.tally({data!r})" if policy is None else f"mq.tally({data!r}, {policy!r})"


def _estimate_line(step: StudioStep) -> str:
    parts = (text.partition("=") for text in step.options.get("where", ()))
    where = {name: label for name, _, label in parts}
    return f"{_source(step)}.answer([mq.Query(by={_names(step, 'by')!r}, where={where!r})])"


def _stats_line(step: StudioStep) -> str:
    kind = step.command[1]
    verb = step.one("model") or "logistic" if kind == "regress" else kind
    formula = step.one("formula")
    pair = [name for key in ("of", "outcome", "group") for name in _names(step, key)]
    pair += [] if formula is None else [formula]
    named = [f"by={_names(step, 'by')!r}"] if "by" in step.options else []
    named += [f"q={float(step.one('q') or 0):.15g}"] if "q" in step.options else []
    named += [f"missing={step.one('missing')!r}"] if "missing" in step.options else []
    named += [f"given={_names(step, 'given')!r}"] if "given" in step.options else []
    return f"mq.stats.{verb.replace('-', '_')}({', '.join([_source(step), *map(repr, pair), *named])})"


def _learn_line(step: StudioStep) -> str:
    target, structure = step.one("target"), step.one("structure")
    more = [] if target is None else [repr(target)]
    more += [] if step.one("k") is None else [f"k={int(step.one('k') or 0)}"]
    more += [] if step.one("names") is None else [f"names={_names(step, 'names')!r}"]
    if structure is not None:
        more = [f"mq.learn.load({structure!r})"]
    more += [] if step.one("method") is None else [f"method={step.one('method')!r}"]
    verb = {
        "network": "bayesian_network",
        "rules": "association_rules",
        "linear": "linear_classifier",
        "tree": "decision_tree",
    }
    name = verb.get(step.command[1], step.command[1].replace("-", "_"))
    return f"mq.learn.{name}({', '.join([_source(step), *more])})"


def _plan_line(step: StudioStep) -> str:
    bound = f"privacy={{'epsilon': {float(step.one('epsilon') or 0):.15g}}}"
    question = f"queries={step.one('queries')!r}, n={int(step.one('n') or 0)}"
    return f"mq.plan(mq.Policy.load({step.arguments[0]!r}), {bound}, {question})"


def draft_python(argv: Sequence[str], people: int) -> str:
    """Return the line of Python that gives the costs of a draft."""
    step = read_step(argv)
    given_limit = {"breach": step.one("limit"), "gamma": step.one("gamma"), "epsilon": step.one("epsilon")}
    stated = {name: value for name, value in given_limit.items() if value} or {"breach": "5%:50%"}
    count = "" if step.one("count") is None else f", queries={step.one('count')!r}"
    return (
        "from masquerade.channels.privacy_level import PrivacyLimit; from masquerade.plan.person_budget "
        "import spend_limit; policy = mq.Policy.load('policy.yaml'); spend_limit(policy, "
        f"PrivacyLimit.parse({stated!r}), n={int(people)}{count}, clear=policy.clear_variables).costs"
    )


def _audit_line(step: StudioStep) -> str:
    policy = f", {step.one('policy')!r}" if "policy" in step.options else ""
    return f"mq.audit.audit_{step.command[1]}({step.arguments[0]!r}{policy})"


def _disguise_line(step: StudioStep) -> str:
    arguments = [repr(step.arguments[0]), repr(step.one("out")), f"mq.Policy.load({step.one('policy')!r})"]
    if "memo" in step.options:
        arguments += [f"memo={step.one('memo')!r}", f"id={step.one('id')!r}"]
    if "accept-gamma" in step.options:
        accepted = float(step.one("accept-gamma") or 0)
        arguments.append(f"accept_gamma={'1e999' if accepted == math.inf else f'{accepted:.15g}'}")
    arguments += [
        f"{name.replace('-', '_')}=True" for name in ("new-memo", "shuffle") if name in step.options
    ]
    return f"mq.disguise_file({', '.join(arguments)})"


def _predict_line(step: StudioStep) -> str:
    positive = "" if step.one("positive") is None else f", positive={step.one('positive')!r}"
    return f"mq.evaluate.performance(mq.learn.load({step.one('model')!r}), {_source(step)}{positive})"


def _first(form: str) -> Callable[[StudioStep], str]:
    """Return a function that formats a line with the step's argument."""
    return lambda step: form.format(repr(step.arguments[0]))


def _show_line(step: StudioStep) -> str:
    load = f"mq.learn.load({step.arguments[0]!r})"
    query = step.one("query")
    if query is None:
        return load
    target, _, given = (part.strip() for part in query.partition("|"))
    pairs = [part.partition("=") for part in given.split(",") if part.strip()]
    known = {name.strip(): label.strip() for name, _, label in pairs}
    more = f", {known!r}" if known else ""
    return f"{load}.project().query({target!r}{more})"


PYTHON: dict[str, Callable[[StudioStep], str]] = {
    "estimate": _estimate_line,
    "stats": _stats_line,
    "learn": _learn_line,
    "plan": _plan_line,
    "audit": _audit_line,
    "disguise": _disguise_line,
    "release": lambda s: (
        f"mq.interop.write_release({s.arguments[0]!r}, {s.one('policy')!r}, {s.one('out')!r})"
    ),
    "enough": lambda s: f"mq.visible_pairs({_source(s)})",
    "predict": _predict_line,
    "party": _first("from masquerade.services.common.release_ledger import inspect; inspect({})"),
    "survey": _first("from masquerade.survey.forms.survey_file import Survey; Survey.load({})"),
    "show": _show_line,
    "privacy": _first("mq.privacy({})"),
    "policy": _first("mq.Policy.load({})"),
    "anonymize": lambda s: f"mq.anonymity.check({s.arguments[0]!r}, {list(_names(s, 'quasi'))!r})",
}


def _names(step: StudioStep, key: str) -> tuple[str, ...]:
    return tuple(filter(None, (step.one(key) or "").split(",")))
