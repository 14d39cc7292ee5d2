"""Steps: what a page asks, as the command that answers it, and as the line of Python that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from masquerade.core.errors import InputError

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


def draws(argv: Sequence[str]) -> bool:
    """Tell whether a command draws, so that its figures differ each time: a release, attacks on one."""
    return argv[0] in {"disguise", "release"} or list(argv[:2]) == ["audit", "release"]


def shown(argv: Sequence[str]) -> str:
    """Return a command as it is typed in the project's folder."""
    return shlex.join(["masquerade", *argv])


def python(argv: Sequence[str]) -> str:
    """Return the line of Python that gives the same figures."""
    words = [word for word in argv if word != "--json"]
    options = {a[2:]: b for a, b in zip(words, [*words[1:], ""], strict=True) if a.startswith("--")}
    return PYTHON[words[0]](words, options)


def _source(data: str, options: Mapping[str, str]) -> str:
    if options.get("engine") == "postgres":
        return (
            f"mq.tally(connection.table({data!r}), mq.Policy.load({options.get('policy', 'policy.yaml')!r}))"
        )
    return f"mq.tally({data!r}" + (f", {options['policy']!r})" if "policy" in options else ")")


def _estimate_line(words: Sequence[str], options: Mapping[str, str]) -> str:
    where = dict([options["where"].split("=", 1)]) if "where" in options else {}
    names = tuple(filter(None, options.get("by", "").split(",")))
    return f"{_source(words[1], options)}.answer([mq.Query(by={names!r}, where={where!r})])"


def _stats_line(words: Sequence[str], options: Mapping[str, str]) -> str:
    verb = options.get("model", "logistic") if words[1] == "regress" else words[1]
    pair = [name for key in ("of", "outcome", "group", "formula") for name in _parts(options, key)]
    named = [f"by={tuple(options['by'].split(','))!r}"] if options.get("by") else []
    told = ", ".join([_source(words[2], options), *map(repr, pair), *named])
    return f"mq.stats.{verb.replace('-', '_')}({told})"


def _learn_line(words: Sequence[str], options: Mapping[str, str]) -> str:
    told = [repr(options["target"])] if "target" in options else []
    if "structure" in options:
        told = [f"mq.learn.load({options['structure']!r})"]
    verb = {
        "network": "bayesian_network",
        "rules": "association_rules",
        "linear": "linear_classifier",
        "tree": "decision_tree",
    }
    name = verb.get(words[1], words[1].replace("-", "_"))
    return f"mq.learn.{name}({', '.join([_source(words[2], options), *told])})"


def _plan_line(words: Sequence[str], options: Mapping[str, str]) -> str:
    bound = f"privacy={{'epsilon': {options['epsilon']}}}"
    return f"mq.plan(mq.Policy.load({words[1]!r}), {bound}, queries={options['queries']!r}, n={options['n']})"


def _audit_line(words: Sequence[str], options: Mapping[str, str]) -> str:
    policy = f", {options['policy']!r}" if "policy" in options else ""
    return f"mq.audit.audit_{words[1]}({words[2]!r}{policy})"


PYTHON: dict[str, Callable[[Sequence[str], Mapping[str, str]], str]] = {
    "estimate": _estimate_line,
    "stats": _stats_line,
    "learn": _learn_line,
    "plan": _plan_line,
    "audit": _audit_line,
    "disguise": lambda w, o: f"mq.disguise_file({w[1]!r}, {o['out']!r}, mq.Policy.load({o['policy']!r}))",
    "release": lambda w, o: f"mq.interop.write_release({w[2]!r}, {o['policy']!r}, {o['out']!r})",
    "party": lambda w, _: f"from masquerade.services.common.release_ledger import inspect; inspect({w[2]!r})",
    "survey": lambda w, _: f"from masquerade.survey.survey_file import Survey; Survey.load({w[2]!r})",
    "show": lambda w, _: f"mq.learn.load({w[1]!r})",
    "privacy": lambda w, _: f"mq.privacy({w[1]!r})",
    "policy": lambda w, _: f"mq.Policy.load({w[2]!r})",
    "anonymize": lambda w, o: f"mq.anonymity.check({w[2]!r}, {o.get('quasi', '').split(',')!r})",
}


def _parts(options: Mapping[str, str], key: str) -> list[str]:
    text = options.get(key)
    return [] if text is None else [text] if key == "formula" else text.split(",")
