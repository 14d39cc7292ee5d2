"""A source that refuses what would, with all that it has answered, give a small set away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from masquerade.core.errors import InputError, Refusal
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Selected, Tally, check_source, raise_refusals
from masquerade.protocols.people.ledger import Ledger
from masquerade.sources.inference_control import InferenceControl, Rules

SIMULATABLE = "refusals follow from the questions alone, and tell nothing about the records"
TELLING = "refusals look at the counts: each tells whoever asks that a rule was broken"
HISTORY = "everything that was ever answered about these records is in the history of this source"


class Controlled:
    """A `Tally` that answers what its rules allow, given everything it has answered before.

    `rules` say what must stay undetermined; without any, the cells of all variables together. `history` is a
    ledger of what was answered, on the disk before an answer leaves: a `FileLedger` outlives the process and
    may be shared by several. One history belongs to one set of records.

    >>> import pandas as pd
    >>> from masquerade.sources.tally import tally
    >>> people = pd.DataFrame({"a": [0, 1] * 8, "b": [0, 0, 1, 1] * 4})
    >>> source = Controlled(tally(people))
    >>> source.answer([Query(by="a")])[0].values.tolist()
    [8.0, 8.0]
    >>> source.check([Query(by=("a", "b"))])[0].reason
    'The table of a, b shows cells of a × b, which must stay undetermined... Ask without a or b.'
    """

    def __init__(self, source: Tally, rules: Rules | None = None, history: Ledger | None = None) -> None:
        check_source(source)
        self.source, self.schema, self.rules = source, source.schema, Rules() if rules is None else rules
        self.control = InferenceControl(self.schema, self.rules, history, source)
        told = (SIMULATABLE if self.rules.simulatable else TELLING, HISTORY)
        self.guarantee = replace(source.guarantee, assumptions=(*source.guarantee.assumptions, *told))

    def __repr__(self) -> str:
        """Show what is controlled."""
        return f"Controlled({self.source!r})"

    @property
    def simulatable(self) -> bool:
        """Tell whether refusals follow from the questions alone."""
        return self.rules.simulatable

    def select(self, names: Iterable[str]) -> Selected:
        """Return some variables as a source of their own."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why questions would be refused now; whatever is answered meanwhile counts too."""
        return [*self.source.check(queries), *self.control.check(queries)]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, once it is in the history; all of it or nothing."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.source.check(queries))
        self.control.admit(queries)
        return self.source.answer(queries)
