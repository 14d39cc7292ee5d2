"""The error tree: every error of masquerade, and what it means.

::

    MasqueradeError
    ├── InputError (ValueError)      something the caller gave is wrong; nothing was done
    │   ├── SchemaError              a variable or category that the schema does not have
    │   │   └── UnknownValue         a value that the policy does not list: row and column, never itself
    │   ├── ChannelError             a channel that is not one: probabilities, shapes, parameters
    │   │   └── SingularChannel      a channel from whose reports nothing can be estimated
    │   │       └── NotEstimable     a question whose answer does not follow from the reports
    │   ├── PolicyError              a policy file that cannot be used, and where it is wrong
    │   │   └── PolicyMismatch       data disguised under another policy
    │   ├── FileError                a file that cannot be read or written
    │   └── DataMissing              a public data set found nowhere; `tried` says where it was looked for
    ├── PluginError                  a part that another package brings along cannot be used
    ├── EngineError                  the engine that holds the records failed; nothing was answered
    ├── QueryRefused                 a source refuses a question; `refusals` says why
    ├── RoundAborted                 a protocol round failed after something had left; `spent`, `culprits`
    └── NotConverged                 an iteration stopped before reaching its tolerance

Two further branches lie beside what raises them: what can go wrong below a protocol (`crypto.errors`), and
between services (`services.common.problems`).
A command turns an ``InputError`` or ``QueryRefused`` into one line and exit code 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from masquerade.core.util.formatting import visible

if TYPE_CHECKING:
    from datetime import datetime

    from masquerade.core.query import Query


LONGEST_HINT, MOST_HINTS = 100, 1000
MOST_ROWS = 10  # named in an error about values


class MasqueradeError(Exception):
    """Base of every error raised on purpose; each pickles, whatever its constructor takes.

    Its text shows signs that a terminal would obey, which names and labels may hold, written out.
    """

    def __str__(self) -> str:
        """Return what went wrong."""
        return visible(super().__str__(), lines=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make the error again: without its constructor, whose text is made already."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[MasqueradeError], args: tuple[Any, ...], state: dict[str, Any]) -> MasqueradeError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InputError(MasqueradeError, ValueError):
    """Something the caller gave is wrong; nothing was done."""


class SchemaError(InputError):
    """A variable or category that the schema does not have."""


@dataclass(frozen=True, slots=True)
class ValueProblem:
    """What is wrong with some values of a column, by rows only: at most ten, `more` if there are others.

    How many there are is not told: that would be a count of clear values.

    >>> from masquerade.core.errors import ValueProblem
    >>> print(ValueProblem("pills", (3, 17), "is not among the categories"))
    column 'pills', rows 3, 17: the value is not among the categories
    """

    column: str
    rows: tuple[int, ...]
    problem: str
    file: str | None = None
    more: bool = False

    def __str__(self) -> str:
        """Return it in words, without the file."""
        if not self.rows:
            return f"column {self.column!r}: a value {self.problem}"
        listed = ", ".join(map(str, self.rows)) + (" and others" if self.more else "")
        plural = "s" if self.more or len(self.rows) > 1 else ""
        return f"column {self.column!r}, row{plural} {listed}: the value {self.problem}"


class UnknownValue(SchemaError):
    """Values in the data that the policy does not list, named by row and column only.

    `problems` are all of them, grouped; `column`, `row` and `problem` are those of the first. `row` is None
    where records have no order, as in a database.
    """

    def __init__(
        self,
        column: str,
        row: int | None,
        problem: str = "is not one of the policy's categories",
        file: str | None = None,
    ) -> None:
        self._tell((ValueProblem(column, () if row is None else (row,), problem, file),))

    @classmethod
    def of(cls, problems: Iterable[ValueProblem]) -> UnknownValue:
        """Return one error about all of these; rows of the same problem are put together."""
        grouped: dict[tuple[str | None, str, str], list[ValueProblem]] = {}
        for item in problems:
            grouped.setdefault((item.file, item.column, item.problem), []).append(item)
        error = cls("", None)
        error._tell(tuple(_as_one(items) for items in grouped.values()))
        return error

    def _tell(self, problems: tuple[ValueProblem, ...]) -> None:
        self.problems = problems
        self.column, self.problem, self.file = problems[0].column, problems[0].problem, problems[0].file
        self.row = problems[0].rows[0] if problems[0].rows else None
        parts = []
        for place, item in enumerate(problems):
            same = place > 0 and item.file == problems[place - 1].file
            parts.append(f"{item}" if item.file is None or same else f"{item.file}: {item}")
        super().__init__("; ".join(parts))

    def shifted(self, rows: int, file: str | None = None) -> UnknownValue:
        """Return the same error, counted from the start of a file instead of a batch."""
        moved = (
            replace(item, rows=tuple(row + rows for row in item.rows), file=file) for item in self.problems
        )
        return UnknownValue.of(moved)


def _as_one(items: Sequence[ValueProblem]) -> ValueProblem:
    rows = tuple(dict.fromkeys(row for item in items for row in item.rows))
    more = len(rows) > MOST_ROWS or any(item.more for item in items)
    return replace(items[0], rows=rows[:MOST_ROWS], more=more)


class ChannelError(InputError):
    """A channel that is not one."""


class SingularChannel(ChannelError):
    """A channel from whose reports nothing can be estimated."""


class NotEstimable(SingularChannel):
    """A question whose answer does not follow from the reports, while that of others does."""


class PolicyError(InputError):
    """A policy that cannot be used."""


class PolicyMismatch(PolicyError):
    """Data disguised under another policy."""


class FileError(InputError):
    """A file that cannot be read or written."""


class DataMissing(InputError):
    """A public data set found nowhere: where it was looked for, what was wrong there, what to do."""

    def __init__(self, name: str, tried: Sequence[str], advice: str) -> None:
        self.name, self.tried, self.advice = name, tuple(tried), advice
        steps = "".join(f"\n  {place}. {reason}" for place, reason in enumerate(self.tried, start=1))
        super().__init__(f"The data set {name!r} was found nowhere. Looked for it in:{steps}\n{advice}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a source does not answer a query.

    `code` is for programs: ``singular``, ``not_estimable``, ``incomplete``, ``unknown_variable``,
    ``too_many_cells``, ``too_many_people``, ``too_many_owners``, ``too_few_records``, ``not_consented``,
    ``roster_too_small``, ``departed_too_few``, ``departed_too_many``, ``not_survivors``, ``other_people``,
    ``already_spent``, ``already_opened``, ``epoch_open``, ``unknown_epoch``, ``determined``,
    ``too_few_people``, ``overlap``, ``too_narrow``, ``other_categories``, ``restored``; `reason` is for
    people.

    >>> mq.Refusal("too_few_records", "Fewer than 5 records.").code
    'too_few_records'
    """

    code: str
    reason: str
    query: Query | None = None


class PluginError(MasqueradeError):
    """A part that another package brings along cannot be found, loaded or used."""


class EngineError(MasqueradeError):
    """The engine that holds the records failed or went away; nothing was answered."""


class DataChanged(EngineError):
    """Files or tables that a source answers about changed since it was opened: nothing was answered."""

    def __init__(self, what: str, since: datetime | None = None) -> None:
        when = "this source was opened" if since is None else f"{since:%Y-%m-%d %H:%M:%S}"
        super().__init__(
            f"{what}: the data changed since {when}. Nothing was answered, since counts of two states do not "
            "fit together: open it again."
        )


class QueryRefused(MasqueradeError):
    """A source refuses a question, all of a batch or nothing."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__("; ".join(dict.fromkeys(refusal.reason for refusal in self.refusals)))


class RoundAborted(MasqueradeError):
    """A protocol round failed after something had left the client."""

    def __init__(self, reason: str, *, spent: bool, culprits: Sequence[str] = ()) -> None:
        self.spent, self.culprits = spent, tuple(culprits)
        super().__init__(reason)


class NotConverged(MasqueradeError):
    """An iteration stopped before reaching its tolerance."""


class MasqueradeWarning(UserWarning):
    """A result that needs a second look."""


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """Return a hint naming the closest known name, or the known names when there are few.

    >>> from masquerade.core.errors import did_you_mean
    >>> did_you_mean("smokr", ["smoker", "region"])
    " Did you mean 'smoker'?"
    """
    names = [str(name) for name in known]
    if len(str(given)) > LONGEST_HINT or len(names) > MOST_HINTS:  # comparing takes the product of lengths
        return ""
    close = get_close_matches(str(given), [name for name in names if len(name) <= LONGEST_HINT], n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Known: {', '.join(names)}." if 0 < len(names) <= 12 else ""


def in_one_line(problems: Sequence[str], most: int = 5) -> str:
    """Return what is wrong in several places as one line, the first few of them.

    >>> from masquerade.core.errors import in_one_line
    >>> in_one_line(["gamma: is missing.", "gama: is not a known key."])
    'gamma: is missing. gama: is not a known key.'
    """
    more = f" (and {len(problems) - most} more)" if len(problems) > most else ""
    return " ".join(problems[:most]) + more
