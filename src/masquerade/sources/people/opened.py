"""Opened rows as a source of counts that states that rows are missing, not at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.core.query import Query
from masquerade.core.util.formatting import counted
from masquerade.frames.metadata import INCOMPLETE, with_metadata
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening
from masquerade.protocols.k_anonymity.threshold.row_schema import Form, production_guarantee
from masquerade.sources.records import Records
from masquerade.sources.report_tally import Missing

if TYPE_CHECKING:
    import pandas as pd


class OpenedRows(Records):
    """A `Tally` over the rows that opened: its counts are exact for these rows and omit all others.

    Rows of classes below k are missing, and not at random: rare combinations are missing altogether, so
    counts are too small and associations with rare values are lost. Every query is therefore refused with the
    code ``incomplete`` until the caller accepts that answers are about the opened rows only
    (`accept_incomplete`). `counts` returns plain counts of the opened rows, without standard errors, whether
    accepted or not.

    Parameters
    ----------
    opening : Opening
        Result of opening an epoch.
    form : Form
        Form of the rows.
    accept_incomplete : bool, optional
        Accept that answers are about the opened rows only.

    Examples
    --------
    >>> import os
    >>> schema = mq.Schema({"zip": ["07029", "07030"], "ill": ["colitis", "stroke"]})
    >>> form = mq.people.Form(schema, quasi=("zip",), sensitive=("ill",))
    >>> server = mq.people.RandomnessServer(os.urandom(32), mq.people.EvaluationLedger())
    >>> notice = server.open(form.terms("spring", k=2).encode())
    >>> collector = mq.people.Collector(notice, identity=server.identity, k=2)
    >>> collector.begin(server.close("spring"))
    >>> source = mq.people.OpenedRows(collector.open_classes(form.readable), form)
    >>> [refusal.code for refusal in source.check([mq.Query(by="ill")])]
    ['incomplete']
    """

    def __init__(self, opening: Opening, form: Form, *, accept_incomplete: bool = False) -> None:
        what = (
            f"answers are about the {counted(opening.opened, 'row')} that opened; "
            f"{opening.received - opening.opened:,} of {counted(opening.received, 'report')} did not open, "
            "and rare quasi-identifiers are missing most"
        )
        missing = Missing(what, accept_incomplete)
        super().__init__(form.codes(opening), Policy.clear(form.schema), missing=missing)
        self.opening, self.form, self.incompleteness = opening, form, missing.what
        self.guarantee = missing.add_to(production_guarantee(opening.terms, form))

    def counts(self, query: Query) -> NDArray[np.int64]:
        """Return the number of opened rows of each combination: exact, without standard errors."""
        (table,) = Records(self.codes, self.policy).answer([query])
        return np.rint(table.values).astype(np.int64)

    def to_frame(self) -> pd.DataFrame:
        """Return the opened rows as a pandas frame of labels, class by class, marked as incomplete."""
        import pandas as pd  # noqa: PLC0415  (needed for frames only)

        frame = pd.DataFrame({name: self.schema.decode(name, self.codes[name]) for name in self.schema})
        marked: pd.DataFrame = with_metadata(frame, {INCOMPLETE: self.incompleteness})
        return marked
