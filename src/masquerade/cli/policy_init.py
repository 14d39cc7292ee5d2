"""Drafts of `masquerade policy init`: policies whose channels spend one limit per person."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from masquerade.cli.output import join_names, progress, say
from masquerade.cli.plan import cost_values
from masquerade.core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from masquerade.channels.privacy_level import PrivacyLimit
    from masquerade.disguising.column_summary import ColumnSummary
    from masquerade.disguising.policy_draft import Draft
    from masquerade.plan.person_budget import LimitSpending

Answer = TypeVar("Answer")
# the most categories of a variable that the user did not name; with more, tables of pairs have many cells
MOST_CATEGORIES = 12


@dataclass(frozen=True)
class Choice:
    """The user's choice of sensitive and clear variables, tables to count, and number of people.

    Initially, names are as the user typed them: a string may contain several names, separated by commas.
    """

    sensitive: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    count: str | None = None
    people: int | None = None


@dataclass(frozen=True)
class DraftWithinLimit:
    """A draft whose channels spend one limit, with its cost.

    `head` has the entries of the policy that precede its variables, such as the limit. `notes` are comments
    on variables that are dealt in blocks, written only if the policy has such blocks.
    """

    draft: Draft
    spending: LimitSpending
    head: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def to_yaml(self) -> str:
        """Return the policy file, with its guarantee and cost as comments."""
        from masquerade.disguising.policy_draft import draft_with_limit  # noqa: PLC0415  (loads Arrow)

        notes = self.notes if "blocks" in self.spending.parts else ()
        return draft_with_limit(self.draft, [*self.spending.lines(), *notes], self.head, self.spending.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the policy without comments, its guarantee and its cost."""
        from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
        from masquerade.channels.policy import text as policy_text  # noqa: PLC0415
        from masquerade.channels.policy.privacy import gamma_figures  # noqa: PLC0415

        policy = policy_text.plain_values(policy_text.parse(self.to_yaml(), "yaml"))
        return {
            "policy": policy,
            "limit": self.spending.limit.to_dict(),
            "record": gamma_figures(Policy.from_dict(policy).record_gamma),
            "people": self.spending.made.n,
            "design": self.spending.made.design,
            **cost_values(self.spending),
            "cannot": list(self.spending.made.cannot),
            "left_out": dict(self.draft.left_out),
        }


def draft_within_limit(
    columns: Sequence[ColumnSummary],
    groups: Mapping[str, Sequence[float]],
    limit: PrivacyLimit,
    choice: Choice,
    notes: tuple[str, ...] = (),
) -> DraftWithinLimit:
    """Return a policy that spends a limit on the sensitive variables, and its cost.

    Parameters
    ----------
    columns : sequence of ColumnSummary
        Columns of the data.
    groups : mapping of str to sequence of float
        Cut points of numeric columns that are already grouped.
    limit : PrivacyLimit
        Limit on what all reports of a person may reveal.
    choice : Choice
        The user's choice. If it is empty, the user is asked on a terminal.
    notes : tuple of str, optional
        Comments on class response, included if the draft uses it.
    """
    from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
    from masquerade.disguising import policy_draft  # noqa: PLC0415  (loads Arrow)
    from masquerade.plan.person_budget import SHARES_AND_PAIRS, spend_limit  # noqa: PLC0415  (loads SciPy)

    known = [column.name for column in columns]
    choice = replace(choice, sensitive=_names(choice.sensitive, known), clear=_names(choice.clear, known))
    both = set(choice.sensitive) & set(choice.clear)
    if both:
        raise InputError(f"{join_names(sorted(both))}: sensitive, or released in clear? Name each once.")
    named = {*choice.sensitive, *choice.clear, *groups}
    draft = policy_draft.draft_variables(columns, groups=groups, named=named, most_categories=MOST_CATEGORIES)
    choice = _ask(draft, choice)
    draft = _select(draft, choice)
    with progress("planning"):
        spending = spend_limit(
            Policy.from_dict(draft.variables()),
            limit,
            n=max(draft.rows, 1) if choice.people is None else choice.people,
            queries=choice.count or SHARES_AND_PAIRS,
            clear=choice.clear,
        )
    for line in spending.warning_lines():
        say(f"warning: {line}")
    left = [name for name in spending.made.task.schema if name not in spending.made.task.sizes]
    draft = replace(
        draft,
        entries={name: lines for name, lines in draft.entries.items() if name not in left},
        left_out={**draft.left_out, **dict.fromkeys(left, "no table to be counted contains it")},
    )
    head: dict[str, Any] = {"limit": limit.to_dict()}
    head |= {"clear": "accepted"} if choice.clear else {}
    return DraftWithinLimit(draft, spending, head, notes)


def _names(texts: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Split texts at commas into names; a name may itself contain commas."""
    names: list[str] = []
    for text in texts:
        parts = text.split(",")
        while parts:
            joined = [",".join(parts[:end]).strip() for end in range(len(parts), 0, -1)]
            name = next((name for name in joined if name in known), joined[-1])
            parts = parts[len(joined) - joined.index(name) :]
            if name and name not in known:
                raise InputError(f"There is no variable {name!r}.{did_you_mean(name, known)}")
            names += [name] if name else []
    return tuple(dict.fromkeys(names))


def _select(draft: Draft, choice: Choice) -> Draft:
    """Return the draft with the variables that the user named; with all, if none is named sensitive."""
    for name in (*choice.sensitive, *choice.clear):
        if name in draft.left_out:
            raise InputError(f"{name!r} cannot be a variable: {draft.left_out[name]}.")
    if not choice.sensitive:
        return draft
    kept = {*choice.sensitive, *choice.clear}
    rest = {name: "named neither sensitive nor clear" for name in draft.entries if name not in kept}
    entries = {name: lines for name, lines in draft.entries.items() if name in kept}
    return replace(draft, entries=entries, left_out={**draft.left_out, **rest})


def _ask(draft: Draft, choice: Choice) -> Choice:
    """Return the choice; ask for it if it is empty and the user is at a terminal."""
    if choice != Choice() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return choice
    from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
    from masquerade.plan.questions import tables_of  # noqa: PLC0415

    say(f"variables: {join_names(draft.entries, 40)}")
    sensitive = _answer("Which are sensitive? NAME,NAME … [all]", lambda text: _names([text], draft.entries))
    rest = [name for name in draft.entries if name not in sensitive] if sensitive else []
    clear = (
        _answer("Which may be released in clear? NAME,NAME … [none]", lambda text: _names([text], rest))
        if rest
        else ()
    )
    schema = Policy.from_dict(_select(draft, Choice(sensitive)).variables()).schema
    count = _answer(
        "What will be counted? [singles, pairs]", lambda text: text and tables_of(text, schema) and text
    )
    return replace(choice, sensitive=sensitive, clear=clear, count=count or None)


def _answer(question: str, read: Callable[[str], Answer]) -> Answer:
    """Ask a question until `read` accepts the answer."""
    while True:
        sys.stderr.write(f"{question}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise InputError("No answer: nothing was drafted.")
        try:
            return read(line.strip())
        except InputError as error:
            say(str(error))


def split_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """Split names that were given separately or with commas between them."""
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


def limit_from_options(
    limit: str | None, gamma: str | None = None, epsilon: str | None = None
) -> PrivacyLimit:
    """Return the limit stated by one of three options, by default 5%:50%."""
    from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit  # noqa: PLC0415

    stated = {"breach": limit, "gamma": gamma, "epsilon": epsilon}
    given = {name: value for name, value in stated.items() if value is not None}
    if len(given) > 1:
        raise InputError("Give one of --limit, --gamma and --epsilon.")
    return PrivacyLimit.parse(given) if given else DEFAULT_LIMIT


def ask_line(question: str) -> str:
    """Ask a question at the terminal and return the answer."""
    sys.stderr.write(f"{question}: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()
