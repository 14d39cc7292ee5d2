"""Every source of counts, one line each: name, how to make it, into how many samples it splits the records.

A new source is one more line. It gets a `Case` and answers about its disguised records, except where it is
marked as clear: then it answers about the clear records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from tests.conformance.cases import Case

import masquerade as mq


@dataclass(frozen=True)
class Source:
    name: str
    make: Callable[[Case], mq.Tally]
    samples: int = 1
    clear: bool = False

    def parts(self, case: Case) -> list[tuple[pd.DataFrame, mq.Policy]]:
        """Return the records of every independent sample, and the policy they were disguised by."""
        frame = case.clear if self.clear else case.disguised
        policy = case.policy.undisguised() if self.clear else case.policy
        return [(frame.iloc[i :: self.samples], policy) for i in range(self.samples)]


def in_memory(frame: pd.DataFrame, case: Case) -> mq.Tally:
    return mq.tally(frame, case.policy)


def warmed(case: Case) -> mq.Tally:
    """Return a source that has merged equal rows, as it does after several questions."""
    source = mq.tally(case.disguised, case.policy)
    source.answer([mq.Query(by=name) for name in source.schema])
    source.answer([mq.Query(by=name) for name in source.schema])
    return source


SOURCES = (
    Source("clear records", lambda case: mq.tally(case.clear, schema=case.policy), clear=True),
    Source("disguised records", lambda case: mq.tally(case.disguised, case.policy)),
    Source("disguised records, equal rows merged", warmed),
    Source("cached", lambda case: mq.Cached(in_memory(case.disguised, case))),
    Source(
        "merged",
        lambda case: mq.Merged([in_memory(case.disguised.iloc[i::2], case) for i in range(2)]),
        samples=2,
    ),
)
