"""Quotas: an upper limit on the reports with a given answer.

A collector sees reports, not answers. For a variable that is not disguised, both are the same, and a quota
works as in any survey. For a disguised variable, a quota counts what was drawn: when it is full, chance
decides who is turned away, not the answer, and estimates of that variable from the remaining reports are
biased.

A refusal by the exact count would show when the last report with that answer came: a respondent can probe by
submitting and withdrawing. So a collector uses the published count (`follow`), which changes in batches: a
refusal reveals nothing beyond the team's page. The cost is that reports waiting for a batch exceed the quota.
After a restart a quota counts nothing until k reports with its answer have arrived. It never counts reports
of an earlier version of the survey that receives no more reports: lower `most` by their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.schema import Category
from masquerade.services.common.problems import Ended

ANSWERS, REPORTS = "answers", "reports"
MEANING = {
    ANSWERS: "counts answers: this variable is not disguised.",
    REPORTS: "counts disguised reports, not answers. When it is full, estimates of this variable are biased: "
    "chance decides who is turned away.",
}


@dataclass(frozen=True)
class Quota:
    """At most `most` reports in which a column has a category."""

    variable: str
    category: Category
    most: int


class QuotaCounts:
    """Counts of reports toward each quota, over all versions of a survey. The store updates them."""

    def __init__(self, quotas: Sequence[Quota], versions: Mapping[str, Policy]) -> None:
        self.quotas, self._places = tuple(quotas), dict[str, list[tuple[int, int] | None]]()
        self._versions, self._counts = dict(versions), [0] * len(quotas)
        self._published: list[int | None] | None = None
        problems = [problem for i, quota in enumerate(quotas) for problem in self._problems(i, quota)]
        if problems:
            raise InputError("\n  ".join(["quotas:", *problems]) if len(problems) > 1 else problems[0])
        for name, policy in versions.items():
            columns = [variable.name for variable in policy.observed.variables]
            self._places[name] = [
                (columns.index(quota.variable), policy.observed[quota.variable].code(quota.category))
                if quota.variable in columns and quota.category in policy.observed[quota.variable].categories
                else None
                for quota in quotas
            ]

    def _problems(self, place: int, quota: Quota) -> Iterable[str]:
        where = f"quotas.{place}"
        schemas = [policy.observed for policy in self._versions.values() if quota.variable in policy.observed]
        if not schemas:
            columns = {name for policy in self._versions.values() for name in policy.observed}
            yield (
                f"{where}.variable: reports have no column {quota.variable!r}."
                f"{did_you_mean(quota.variable, sorted(columns))}"
            )
        elif all(quota.category not in schema[quota.variable].categories for schema in schemas):
            hint = did_you_mean(quota.category, schemas[0][quota.variable].categories)
            yield f"{where}.answer: {quota.category!r} is not a category of {quota.variable!r}.{hint}"

    def find_refusal(self, policy: str, codes: Sequence[int]) -> Ended | None:
        """Return the refusal of a report whose quota is full, None if it is accepted."""
        counts = self._counts if self._published is None else self._published
        full = any((counts[i] or 0) >= self.quotas[i].most for i in self._match(policy, codes))
        return Ended("Enough people have answered like this: the quota is full.") if full else None

    def count(self, policy: str, codes: Sequence[int], by: int = 1) -> None:
        """Count a report that was stored, or withdrawn (by = -1)."""
        for i in self._match(policy, codes):
            self._counts[i] += by

    def recount(self, reports: Iterable[tuple[Any, ...]]) -> None:
        """Count everything again, from rows that start with the policy and end with the codes."""
        self._counts = [0] * len(self.quotas)
        for policy, *_, codes in reports:
            self.count(policy, codes)

    def follow(self, published: Sequence[int | None]) -> None:
        """Use published counts for refusals from now on, not stored reports. None means not full."""
        self._published = list(published)

    def counts_in(self, reports: Mapping[str, Mapping[tuple[int, tuple[int, ...]], int]]) -> list[int]:
        """Return the count of each quota among the given reports."""
        counts = [0] * len(self.quotas)
        for policy, rows in reports.items():
            for i, at in enumerate(self._places.get(policy, ())):
                if at is not None:
                    counts[i] += sum(number for (_, codes), number in rows.items() if codes[at[0]] == at[1])
        return counts

    def figures(self, counts: Sequence[int | None] | None = None) -> list[dict[str, Any]]:
        """Describe each quota: its limit, what it counts, and its count (by default of stored reports)."""
        entries = []
        for quota, count in zip(self.quotas, self._counts if counts is None else counts, strict=True):
            disguised = any(quota.variable not in policy.schema or quota.variable in policy.disguised
                            for policy in self._versions.values())  # fmt: skip
            basis = REPORTS if disguised else ANSWERS
            entries.append({"variable": quota.variable, "answer": str(quota.category), "count": count,
                            "most": quota.most, "counts": basis, "meaning": MEANING[basis]})  # fmt: skip
        return entries

    def _match(self, policy: str, codes: Sequence[int]) -> Iterable[int]:
        """Return the indices of the quotas that count a report."""
        places = self._places.get(policy, ())
        return [i for i, at in enumerate(places) if at is not None and codes[at[0]] == at[1]]
