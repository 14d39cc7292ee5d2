"""Policy drafts for imported questionnaires within one limit per person, for `masquerade survey init`."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from masquerade.cli.output import join_names, progress, say
from masquerade.cli.policy_init import Choice, ask_line, split_names
from masquerade.core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from masquerade.channels.privacy_level import PrivacyLimit
    from masquerade.survey.forms.questionnaire import Questionnaire

PEOPLE: Final = 1500
DENOMINATORS: Final = (1, 2, 4, 5, 10, 20, 50, 100, 1000)
LEAST_SHARE: Final = 0.97  # least share of ε that must remain when γ is rounded down
CASES: Final = (10, 20, 50, 100, 200, 500)
LARGEST_CASES: Final = 1000  # largest denominator of exact odds on pages, as in 19 of 30
HEADER: Final = """\
# A policy for imported questions. Draft it again after changing questions: they share the limit.
#
"""


def draft_questionnaire(form: Questionnaire, limit: PrivacyLimit, choice: Choice) -> str:
    """Return a policy file that spends one limit per person on the questions of a form.

    Parameters
    ----------
    form : Questionnaire
        If `choice` names sensitive questions, the questions that it does not name are removed from the form.
    limit : PrivacyLimit
        Limit on what all answers together may reveal about a person.
    choice : Choice
        Sensitive and clear questions. If it is empty, the user is asked on a terminal.

    Returns
    -------
    str
        YAML, with the guarantee and its cost as comments.
    """
    from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
    from masquerade.channels.policy import text as policy_text  # noqa: PLC0415
    from masquerade.plan.person_budget import SHARES_AND_PAIRS, spend_limit  # noqa: PLC0415  (loads SciPy)

    choice = _ask(form, choice)
    choice = replace(choice, sensitive=form.expand(choice.sensitive), clear=form.expand(choice.clear))
    _keep_chosen(form, choice)
    values = form.policy_values()
    with progress("planning"):
        spending = spend_limit(
            Policy.from_dict(values),
            limit,
            n=choice.people or PEOPLE,
            queries=choice.count or SHARES_AND_PAIRS,
            clear=choice.clear,
            together=_follow_up_units(form, choice),
        )
    left = [name for name in spending.made.task.schema if name not in spending.made.task.sizes]
    if left:
        raise InputError(f"No table to be counted contains {join_names(left)}: add it to --count or --clear.")
    for line in spending.lines():
        if line.startswith("NOT USABLE"):
            say(f"warning: {line}")
    sizes = {name: len(entry["categories"]) for name, entry in values["variables"].items()}
    parts = use_exact_odds(use_simple_odds(spending.parts, limit.gamma), sizes)
    variables: dict[str, Any] = {
        name: entry | ({"channel": parts["variables"][name]} if name in parts.get("variables", {}) else {})
        for name, entry in values["variables"].items()
    }
    head = {"masquerade": 1, "title": values["title"], "limit": limit.to_dict()}
    head |= {"clear": "accepted"} if choice.clear else {}
    rest = {key: parts[key] for key in ("joint", "blocks") if key in parts}
    comments = "".join(f"# {line}".rstrip() + "\n" for line in spending.lines())
    return HEADER + comments + policy_text.write({**head, "variables": variables, **rest}, "yaml")


def use_simple_odds(parts: Any, limit: Fraction) -> Any:
    """Return channels with γ as a simple fraction at most e^ε, so that dice can draw them.

    >>> use_simple_odds({"kind": "for_epsilon", "epsilon": "2.944438"}, Fraction(19))
    {'kind': 'for_gamma', 'gamma': 19}
    """
    if isinstance(parts, list):
        return [use_simple_odds(part, limit) for part in parts]
    if not isinstance(parts, Mapping):
        return parts
    if "epsilon" not in parts:
        return {key: use_simple_odds(value, limit) for key, value in parts.items()}
    gamma = _simple_gamma(float(parts["epsilon"]), limit)
    plain = int(gamma) if gamma.denominator == 1 else str(gamma)
    renamed = {("gamma" if key == "epsilon" else key): value for key, value in parts.items()}
    kind = {"kind": "for_gamma"} if parts.get("kind") == "for_epsilon" else {}
    return renamed | {"gamma": plain} | kind


def use_exact_odds(parts: Any, sizes: Mapping[str, int]) -> Any:
    """Return channels whose odds a page can state exactly: the truth is kept in k of fewer than 1,000 cases.

    >>> use_exact_odds({"variables": {"a": {"kind": "for_gamma", "gamma": "221/200"}}}, {"a": 12})
    {'variables': {'a': {'kind': 'for_gamma', 'gamma': '979/886'}}}
    """
    variables = {
        name: _with_exact_odds(channel, sizes[name]) for name, channel in parts.get("variables", {}).items()
    }
    joint = [
        entry
        | {"channel": _with_exact_odds(entry["channel"], math.prod(sizes[it] for it in entry["variables"]))}
        for entry in parts.get("joint", ())
    ]
    changed = {"variables": variables, "joint": joint}
    return {key: changed.get(key, value) for key, value in parts.items()}


def _with_exact_odds(channel: Any, size: int) -> Any:
    if channel.get("kind") != "for_gamma":
        return channel
    gamma = usable_gamma(Fraction(channel["gamma"]), size)
    return channel | {"gamma": int(gamma) if gamma.denominator == 1 else str(gamma)}


def usable_gamma(gamma: Fraction, size: int) -> Fraction:
    """Return γ, or the closest smaller value that keeps a truth in k of fewer than 1,000 cases.

    Formula: a symmetric channel of J truths keeps the truth with γ/(γ + J − 1).
    """
    share = gamma / (gamma + size - 1)
    if share.denominator < LARGEST_CASES:
        return gamma
    for cases in (*CASES, None):
        each = range(2, LARGEST_CASES) if cases is None else (cases,)
        rounded = max(Fraction(math.floor(share * number), number) for number in each)
        smaller = rounded / (1 - rounded) * (size - 1)
        if cases is None or (smaller > 1 and math.log(smaller) >= LEAST_SHARE * math.log(gamma)):
            return smaller if smaller > 1 else gamma
    return gamma


def _simple_gamma(epsilon: float, limit: Fraction) -> Fraction:
    """Return the simplest γ that is at most e^ε and loses little of ε; the limit itself if ε equals it."""
    if limit.denominator in DENOMINATORS and abs(math.log(limit) - epsilon) < 2e-6:
        return limit
    largest = Fraction(math.exp(epsilon)) * (1 - Fraction(1, 2**40))  # exp() may round up
    rounded = (Fraction(math.floor(largest * denominator), denominator) for denominator in DENOMINATORS)
    return next(
        (gamma for gamma in rounded if gamma > 1 and math.log(gamma) >= LEAST_SHARE * epsilon),
        Fraction(math.floor(largest * 10**6), 10**6),
    )


def _follow_up_units(form: Questionnaire, choice: Choice) -> list[tuple[str, ...]]:
    """Return the groups of questions to disguise together: a question and the questions it depends on."""
    units = {
        question.name: {question.name} for question in form.questions if question.name not in choice.clear
    }
    for question in form.questions:
        for name in question.shown:
            if question.name in choice.clear and name not in choice.clear:
                raise InputError(
                    f"{question.name!r} in clear would reveal the answer to {name!r}, which decides whether "
                    "it is asked."
                )
            if name in units and question.name in units:
                units[name] |= units[question.name]
                for other in units[name]:
                    units[other] = units[name]
    found = {tuple(name for name in units if name in unit) for unit in units.values() if len(unit) > 1}
    return sorted(found)


def _keep_chosen(form: Questionnaire, choice: Choice) -> None:
    """Remove the questions that the user did not name, if any are named as sensitive."""
    names = [question.name for question in form.questions]
    for name in (*choice.sensitive, *choice.clear):
        if name not in names:
            raise InputError(f"The form has no question {name!r}.{did_you_mean(name, names)}")
    both = set(choice.sensitive) & set(choice.clear)
    if both:
        raise InputError(f"{join_names(sorted(both))}: sensitive, or sent in clear? Name each once.")
    if not choice.sensitive:
        return
    kept = {*choice.sensitive, *choice.clear}
    for question in form.questions:
        missing = set(question.shown) - kept
        if question.name in kept and missing:
            raise InputError(f"{question.name!r} depends on {join_names(sorted(missing))}: also name it.")
    form.left_out += [f"{name}: named neither sensitive nor clear." for name in names if name not in kept]
    form.questions = [question for question in form.questions if question.name in kept]


def _ask(form: Questionnaire, choice: Choice) -> Choice:
    """Return the choice; ask for it if it is empty and the user is at a terminal."""
    if choice != Choice() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return choice
    say(f"questions: {join_names([question.name for question in form.questions], 40)}")
    clear = split_names([ask_line("Which are not sensitive and may be sent in clear? NAME,NAME … [none]")])
    count = ask_line("What will be counted? [singles, pairs]")
    people = ask_line(f"How many people will answer? [{PEOPLE:,}]").replace(",", "")
    if people and not people.isdecimal():
        raise InputError("The number of people must be a whole number.")
    return replace(choice, clear=clear, count=count or None, people=int(people) if people else None)
