"""The error hierarchy: every error that masquerade raises, and its meaning.

::

    MasqueradeError
    ├── InputError (ValueError)      invalid input; nothing was done
    │   ├── SchemaError              a variable or category that is not in the schema
    │   │   └── UnknownValue         a value that the policy does not list: row and column, never the value
    │   ├── ChannelError             an invalid channel: probabilities, shapes, parameters
    │   │   └── SingularChannel      a channel from whose reports nothing can be estimated
    │   │       └── NotEstimable     a query whose answer does not follow from the reports
    │   ├── PolicyError              an invalid policy file, and the position of the problem
    │   │   └── PolicyMismatch       data disguised under a different policy
    │   ├── FileError                a file that cannot be read or written
    │   └── DataMissing              a public data set that was not found; `tried` lists the locations
    ├── PluginError                  a plug-in of another package cannot be used
    ├── EngineError                  the engine that stores the records failed; nothing was answered
    ├── QueryRefused                 a source refuses a query; `refusals` gives the reasons
    ├── RoundAborted                 a protocol round failed after data had been sent; `spent`, `culprits`
    └── NotConverged                 an iteration stopped before reaching its tolerance

Two further branches are defined where they are raised: errors of cryptography (`crypto.errors`) and of
services (`services.common.problems`).
Commands print an ``InputError`` or ``QueryRefused`` as one line and exit with code 2.
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
MOST_ROWS = 10  # row numbers listed in an error about values

MOST_REASONS = 4  # in the text of a refusal


class MasqueradeError(Exception):
    """Base class of all errors that masquerade raises on purpose.

    Names and labels may contain control characters, which a terminal would interpret. They are escaped in the
    text. All errors can be pickled, whatever arguments their constructors take.
    """

    def __str__(self) -> str:
        """Return the message with control characters escaped."""
        return visible(super().__str__(), lines=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form. It bypasses the constructor because the message is already formatted."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[MasqueradeError], args: tuple[Any, ...], state: dict[str, Any]) -> MasqueradeError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InputError(MasqueradeError, ValueError):
    """Invalid input. Nothing was done."""


class SchemaError(InputError):
    """A variable or category that is not in the schema."""


@dataclass(frozen=True, slots=True)
class ValueProblem:
    """A problem with values of one column, identified by row numbers only.

    At most ten rows are listed; `more` is True if there are others. Their number is not reported, because it
    would be a count of clear values.

    Examples
    --------
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
        """Return the problem as text, without the file."""
        if not self.rows:
            return f"column {self.column!r}: a value {self.problem}"
        listed = ", ".join(map(str, self.rows)) + (" and others" if self.more else "")
        plural = "s" if self.more or len(self.rows) > 1 else ""
        return f"column {self.column!r}, row{plural} {listed}: the value {self.problem}"


class UnknownValue(SchemaError):
    """Values in the data that the policy does not list, identified by row and column only.

    Attributes
    ----------
    problems : tuple of ValueProblem
        All problems, grouped by file, column and problem.
    column, problem, file : str
        Column, problem and file of the first problem.
    row : int or None
        First row of the first problem. None where records have no order, for example in a database.
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
        """Return one error for several problems; rows of the same problem are combined."""
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

    def shift_rows(self, rows: int, file: str | None = None) -> UnknownValue:
        """Return the same error with rows counted from the start of a file instead of a batch.

        Parameters
        ----------
        rows : int
            Number of rows before the batch.
        file : str, optional
            Name of the file, for the message.

        Returns
        -------
        UnknownValue
            The shifted error.
        """
        moved = (
            replace(item, rows=tuple(row + rows for row in item.rows), file=file) for item in self.problems
        )
        return UnknownValue.of(moved)


def _as_one(items: Sequence[ValueProblem]) -> ValueProblem:
    rows = tuple(dict.fromkeys(row for item in items for row in item.rows))
    more = len(rows) > MOST_ROWS or any(item.more for item in items)
    return replace(items[0], rows=rows[:MOST_ROWS], more=more)


class ChannelError(InputError):
    """An invalid channel."""


class SingularChannel(ChannelError):
    """A channel from whose reports nothing can be estimated."""


class NotEstimable(SingularChannel):
    """A query whose answer does not follow from the reports, while other queries can be answered."""


class PolicyError(InputError):
    """An invalid policy."""


class PolicyMismatch(PolicyError):
    """Data disguised under a different policy."""


class FileError(InputError):
    """A file that cannot be read or written."""


class DataMissing(InputError):
    """A public data set that was not found: the locations tried, the reason at each, and advice."""

    def __init__(self, name: str, tried: Sequence[str], advice: str) -> None:
        self.name, self.tried, self.advice = name, tuple(tried), advice
        steps = "".join(f"\n  {place}. {reason}" for place, reason in enumerate(self.tried, start=1))
        super().__init__(f"The data set {name!r} was not found. Searched in:{steps}\n{advice}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a source does not answer a query.

    `code` is for programs: ``singular``, ``not_estimable``, ``incomplete``, ``unknown_variable``,
    ``too_many_cells``, ``too_many_people``, ``too_many_owners``, ``too_few_records``, ``not_consented``,
    ``roster_too_small``, ``departed_too_few``, ``departed_too_many``, ``not_survivors``, ``other_people``,
    ``already_spent``, ``already_opened``, ``epoch_open``, ``unknown_epoch``, ``determined``,
    ``too_few_people``, ``overlap``, ``too_narrow``, ``other_categories``, ``restored``. `reason` is for
    people.

    Examples
    --------
    >>> mq.Refusal("too_few_records", "Fewer than 5 records.").code
    'too_few_records'
    """

    code: str
    reason: str
    query: Query | None = None


class PluginError(MasqueradeError):
    """A plug-in of another package that cannot be found, loaded or used."""


class EngineError(MasqueradeError):
    """The engine that stores the records failed or disconnected. Nothing was answered."""


class DataChanged(EngineError):
    """Files or tables of a source changed after it was opened. Nothing was answered."""

    def __init__(self, what: str, since: datetime | None = None) -> None:
        when = "this source was opened" if since is None else f"{since:%Y-%m-%d %H:%M:%S}"
        super().__init__(
            f"{what}: the data changed since {when}. Nothing was answered, because counts before and after "
            "the change are inconsistent. Open the source again."
        )


class QueryRefused(MasqueradeError):
    """A source refuses a batch of queries. No query of the batch was answered."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        reasons = list(dict.fromkeys(refusal.reason for refusal in self.refusals))
        more = len(reasons) - MOST_REASONS
        rest = [f"and {more:,} more"] if more > 0 else []
        super().__init__("; ".join([*reasons[:MOST_REASONS], *rest]))


class RoundAborted(MasqueradeError):
    """A protocol round failed after data had been sent.

    `spent` is True if the round cannot be repeated with the same data; `culprits` names the parties that
    deviated from the protocol.
    """

    def __init__(self, reason: str, *, spent: bool, culprits: Sequence[str] = ()) -> None:
        self.spent, self.culprits = spent, tuple(culprits)
        super().__init__(reason)


class NotConverged(MasqueradeError):
    """An iteration stopped before reaching its tolerance."""


class MasqueradeWarning(UserWarning):
    """Warning about a result that should be checked."""


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """Return a hint that names the closest known name, or all known names if they are few.

    Parameters
    ----------
    given : object
        Name that was not found.
    known : iterable
        Names that exist.

    Returns
    -------
    str
        Hint that starts with a space, for the end of a message; empty if there is no hint to give.

    Examples
    --------
    >>> from masquerade.core.errors import did_you_mean
    >>> did_you_mean("smokr", ["smoker", "region"])
    " Did you mean 'smoker'?"
    """
    names = [str(name) for name in known]
    # comparing two texts takes time proportional to the product of their lengths
    if len(str(given)) > LONGEST_HINT or len(names) > MOST_HINTS:
        return ""
    close = get_close_matches(str(given), [name for name in names if len(name) <= LONGEST_HINT], n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Known: {', '.join(names)}." if 0 < len(names) <= 12 else ""


def in_one_line(problems: Sequence[str], most: int = 5) -> str:
    """Return several problems as one line that lists the first few.

    Parameters
    ----------
    problems : sequence of str
        Sentences.
    most : int, default 5
        Number of problems listed.

    Returns
    -------
    str
        The line.

    Examples
    --------
    >>> from masquerade.core.errors import in_one_line
    >>> in_one_line(["gamma: is missing.", "gama: is not a known key."])
    'gamma: is missing. gama: is not a known key.'
    """
    more = f" (and {len(problems) - most} more)" if len(problems) > most else ""
    return " ".join(problems[:most]) + more
