"""Steps: what a page asks, as the command that answers it, and as the line of Python that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from masquerade.core.errors import InputError
from masquerade.studio.allow_list import StudioStep, read_step

Asked = Mapping[str, Sequence[str]]  # the parameters of an address: names, and all their values
COMPARISONS = ("difference", "ratio", "odds-ratio")
LEARNERS = ("structure", "network", "naive-bayes", "tree", "rules", "linear")


def one(asked: Asked, name: str) -> str | None:
    """Return the only value of a parameter, None where it is empty."""
    values = [value.strip() for value in asked.get(name, ()) if value.strip()]
    return values[0] if values else None


def several(asked: Asked, name: str) -> list[str]:
    """Return all values of a parameter."""
    return [value.strip() for value in asked.get(name, ()) if value.strip()]


def need(asked: Asked, name: str, words: str) -> str:
    """Return the value of a parameter that a step cannot do without."""
    value = one(asked, name)
    if value is None:
        raise InputError(f"Choose {words}.")
    return value


def given(asked: Asked, *names: str) -> list[str]:
    """Return options of a command for the parameters that have a value."""
    found = []
    for name in names:
        for value in several(asked, name):
            found += [f"--{name.replace('_', '-')}", value]
    return found


def of_records(records: Mapping[str, Any]) -> list[str]:
    """Return how a command finds the records that are counted."""
    argv = [str(records["data"])]
    for name in ("policy", "engine", "url"):
        argv += [f"--{name}", str(records[name])] if records.get(name) else []
    return argv


def estimate(asked: Asked, records: Mapping[str, Any]) -> list[str]:
    """Return the command of the Estimate page."""
    do, where = one(asked, "do") or "count", of_records(records)
    names = several(asked, "by")
    given_where = given(asked, "where")
    if do == "count":
        by = ["--by", ",".join(names)] if names else []
        misfit = ["--misfit"] if one(asked, "misfit") else []
        options = given(asked, "level", "kind", "nonnegative", "simultaneous")
        return ["estimate", *where, *by, *given_where, *options, *misfit, "--json"]
    if do == "shares":
        of = need(asked, "of", "the variable whose shares are wanted")
        by = ["--by", ",".join(names)] if names else []
        return ["stats", "shares", *where, "--of", of, *by, *given_where, *given(asked, "level"), "--json"]
    if do == "associations":
        return ["stats", "associations", *where, *given(asked, "of"), *given_where, "--json"]
    outcome = need(asked, "of", "the first variable")
    group = need(asked, "group", "the second variable")
    if do == "independence":
        return ["stats", "independence", *where, "--of", f"{outcome},{group}", *given_where, "--json"]
    if do in COMPARISONS:
        pair = ["--outcome", outcome, "--group", group]
        return ["stats", do, *where, *pair, *given_where, *given(asked, "level"), "--json"]
    raise InputError(f"There is no estimate {do!r}.")


def learn(asked: Asked, records: Mapping[str, Any]) -> list[str]:
    """Return the command of the Learn page."""
    do, where = one(asked, "do") or "structure", of_records(records)
    if do == "regress":
        formula = need(asked, "formula", "an outcome and terms, such as ill ~ smoker + sex")
        return ["stats", "regress", *where, "--formula", formula, *given(asked, "model"), "--json"]
    if do == "link":
        pair = f"{need(asked, 'parent', 'a link')},{need(asked, 'child', 'a link')}"
        return ["stats", "independence", *where, "--of", pair, "--power", "0.8", "--json"]
    if do not in LEARNERS:
        raise InputError(f"There is no learner {do!r}.")
    if do in {"naive-bayes", "tree", "linear"}:
        need(asked, "target", "the variable that is to be predicted")
    options = given(asked, "target", "max_parents", "structure", "min_support", "min_confidence")
    return ["learn", do, *where, *options, "--json"]


def model(path: str, *, tables: bool = False) -> list[str]:
    """Return the command that shows a model which was learnt, here or in a session; or its tables."""
    return ["show", path, *(["--table"] if tables else []), "--json"]


def trade_off(asked: Asked, people: int) -> list[str]:
    """Return the command of the Trade-off page."""
    options = ["--epsilon", one(asked, "epsilon") or "2", "--n", one(asked, "n") or str(people)]
    options += ["--queries", one(asked, "queries") or "pairs", "--per", one(asked, "per") or "record"]
    return ["plan", "policy.yaml", *options, "--curve", "--json"]


def audit(asked: Asked, records: Mapping[str, Any] | None) -> list[str]:
    """Return the command of the Audit page."""
    if (one(asked, "do") or "policy") == "policy":
        return ["audit", "policy", "policy.yaml", "--no-page", "--json"]
    if not records:
        raise InputError("Release disguised records first, or choose some on the page Data.")
    return ["audit", "release", *of_records(records), "--json"]


def shown(argv: Sequence[str]) -> str:
    """Return a command as it is typed in the project's folder."""
    return shlex.join(["masquerade", *argv])


def python(argv: Sequence[str]) -> str:
    """Return the line of Python that gives the same figures.

    Every value in it is a literal, and every name is one of this module or of the allow-list.
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
    return f"mq.stats.{verb.replace('-', '_')}({', '.join([_source(step), *map(repr, pair), *named])})"


def _learn_line(step: StudioStep) -> str:
    target, structure = step.one("target"), step.one("structure")
    more = [] if target is None else [repr(target)]
    if structure is not None:
        more = [f"mq.learn.load({structure!r})"]
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


def _audit_line(step: StudioStep) -> str:
    policy = f", {step.one('policy')!r}" if "policy" in step.options else ""
    return f"mq.audit.audit_{step.command[1]}({step.arguments[0]!r}{policy})"


def _disguise_line(step: StudioStep) -> str:
    arguments = [repr(step.arguments[0]), repr(step.one("out")), f"mq.Policy.load({step.one('policy')!r})"]
    if "memo" in step.options:
        arguments += [f"memo={step.one('memo')!r}", f"id={step.one('id')!r}"]
    arguments += [
        f"{name.replace('-', '_')}=True" for name in ("new-memo", "shuffle") if name in step.options
    ]
    return f"mq.disguise_file({', '.join(arguments)})"


def _first(form: str) -> Callable[[StudioStep], str]:
    """Return a writer of a line with the step's argument in it."""
    return lambda step: form.format(repr(step.arguments[0]))


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
    "party": _first("from masquerade.services.common.release_ledger import inspect; inspect({})"),
    "survey": _first("from masquerade.survey.forms.survey_file import Survey; Survey.load({})"),
    "show": _first("mq.learn.load({})"),
    "privacy": _first("mq.privacy({})"),
    "policy": _first("mq.Policy.load({})"),
    "anonymize": lambda s: f"mq.anonymity.check({s.arguments[0]!r}, {list(_names(s, 'quasi'))!r})",
}


def _names(step: StudioStep, key: str) -> tuple[str, ...]:
    return tuple(filter(None, (step.one(key) or "").split(",")))
