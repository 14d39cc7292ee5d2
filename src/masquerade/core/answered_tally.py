"""A source of counts among the people who answered: learners see no missing category."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, Refusal
from masquerade.core.missing_shares import MissingShare, missing_shares
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import RecordTally, Selected, Tally, check_source

ModelMissing = Literal["answered", "category"]
TAKEN: dict[str, str] = {
    "answered": "Every count is among people who answered the variables of that count.",
    "category": "Missing answers are counted as categories of their own.",
    "expected": "Missing answers are replaced by their expected counts (EM on tables).",
    "not items": "Missing answers are not items: supports and confidences are shares of all records.",
}


@dataclass(frozen=True, slots=True)
class MissingAnswers:
    """Shares of missing answers when a model was learned, and how they were treated.

    Attributes
    ----------
    shares : tuple of MissingShare
        Estimated share of each variable that may be missing.
    taken : str
        "answered", "category", "expected" or "not items".
    """

    shares: tuple[MissingShare, ...]
    taken: str

    @property
    def text(self) -> str:
        """Return the shares and their treatment in one line."""
        return " ".join([*(share.text for share in self.shares), TAKEN[self.taken]])

    def labels(self) -> dict[str, tuple[Category, ...]]:
        """Return the categories that mean a missing answer, by variable, if they were left out."""
        return {share.name: share.labels for share in self.shares if self.taken in ("answered", "expected")}


class AnsweredTally:
    """The people of a source who answered: its variables have no missing categories.

    Queries go to the source unchanged, and its tables are restricted to the answers. No extra table is
    queried for the shares of missing answers: they are estimated from the tables that pass through.

    Parameters
    ----------
    source : Tally
        Source of counts.
    missing : {"answered", "category"}, default "answered"
        "category" keeps missing categories and only notes their shares.

    Examples
    --------
    >>> import pandas as pd
    >>> from masquerade.core.answered_tally import AnsweredTally
    >>> policy = {"visits": {"categories": [0, 1, "not stated"], "missing": "not stated"}}
    >>> policy = mq.Policy.from_dict({"masquerade": 1, "variables": policy})
    >>> frame = pd.DataFrame({"visits": [0, 1, 1, None]})
    >>> source = AnsweredTally(mq.tally(frame, schema=policy))
    >>> source.answer([mq.Query(by="visits")])[0].values.tolist()
    [1.0, 2.0]
    >>> source.missing_answers().shares[0].share
    0.25
    """

    def __init__(self, source: Tally, missing: ModelMissing = "answered") -> None:
        check_source(source)
        self.source, self.taken = source, missing
        self.full = source.schema
        self.guarantee = source.guarantee
        self.schema = source.schema
        self._shares: dict[str, MissingShare] = {}
        if missing == "answered":
            self.schema = Schema(Variable(each.name, each.answers) for each in self.full.variables)
        if isinstance(source, RecordTally):
            self.expect = self._expect

    def __repr__(self) -> str:
        """Return the source."""
        return f"AnsweredTally({self.source!r})"

    def __getattr__(self, name: str) -> Any:
        # methods that need the truths of all people are hidden if some people are omitted
        allowed = {"n", "policy", "survey_design", "weighted", "missing"}
        if "taken" in self.__dict__ and self.taken == "category":
            allowed = set(Selected.ABILITIES)
        if name in allowed and "source" in self.__dict__:
            return getattr(self.source, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def select(self, names: Iterable[str]) -> Selected:
        """Return a source with only the named variables."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of the source."""
        return self.source.check(queries)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer as the source does, among the people who answered."""
        for query in queries:
            query.check(self.schema)
        tables = self.source.answer(queries)
        for query, table in zip(queries, tables, strict=True):
            if not query.where:
                for share in missing_shares(table, [n for n in table.names if n not in self._shares]):
                    self._shares[share.name] = share
        return [table.drop_missing() for table in tables] if self.taken == "answered" else tables

    def missing_answers(self) -> MissingAnswers | None:
        """Return the shares of missing answers in all tables so far; None if no variable may be missing."""
        shares = tuple(self._shares[name] for name in self.full if name in self._shares)
        return MissingAnswers(shares, self.taken) if shares else None

    def _expect(
        self, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str]
    ) -> tuple[float, float]:
        """Return the mean of f over the people who answered, and its standard error.

        Formula: m = E[f·1]/E[1], 1 = "answered"; its standard error is the error of E[(f − m)·1]/E[1].
        """
        if self.taken == "category" or not isinstance(self.source, RecordTally):
            return self.source.expect(f, over)  # type: ignore[attr-defined, no-any-return]
        variables = [self.full[name] for name in over]
        places = [np.full(len(variable), -1, dtype=np.intp) for variable in variables]
        for place, variable in zip(places, variables, strict=True):
            place[list(variable.answered_codes)] = np.arange(len(variable.answered_codes))

        def answers(codes: NDArray[np.intp], shift: float, scale: float, *, counts: bool) -> NDArray[Any]:
            moved = np.stack([place[codes[:, i]] for i, place in enumerate(places)], axis=1)
            is_answered = (moved >= 0).all(axis=1)
            result = np.zeros(len(codes))
            kept = moved[is_answered]
            values = np.ones(len(kept)) if counts else np.asarray(f(kept), dtype=float)
            result[is_answered] = (values - shift) * scale
            return result

        share = self.source.expect(lambda codes: answers(codes, 0.0, 1.0, counts=True), over)[0]
        if share <= 0:
            raise InputError("According to the estimates nobody answered all of these variables.")
        mean = self.source.expect(lambda codes: answers(codes, 0.0, 1 / share, counts=False), over)[0]
        error = self.source.expect(lambda codes: answers(codes, mean, 1 / share, counts=False), over)[1]
        return mean, error


def people_who_answered(source: Tally, missing: str = "answered") -> Tally:
    """Return the source without missing categories, or with a note on them; unchanged if there are none.

    Raises
    ------
    InputError
        If `missing` is not "answered" or "category".
    """
    check_source(source)
    if missing not in get_args(ModelMissing):
        raise InputError(
            f"Models take missing='answered' or 'category'. Got {missing!r}. 'answered' is right if missing "
            "answers depend only on the other variables of each count, such as the parents of a node."
        )
    if not any(variable.missing for variable in source.schema.variables):
        return source
    return AnsweredTally(source, "category" if missing == "category" else "answered")


def missing_answers_of(source: Tally) -> MissingAnswers | None:
    """Return the shares of missing answers that a source noted; None for a source without any."""
    return source.missing_answers() if isinstance(source, AnsweredTally) else None
