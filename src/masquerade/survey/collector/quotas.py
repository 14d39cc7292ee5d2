"""Quotas: so many reports with an answer, and then no more of them.

A collector sees reports, not answers. Of a variable that is not disguised they are the same, and a quota is
what it always was. Of a disguised one a quota counts what was drawn: when it is full, people are turned away
by chance, not by what they answered, and estimates of that variable from those who are left are biased.

A refusal that follows the exact count tells when the last report with that answer came: a respondent can
probe, by submitting and withdrawing. So a collector follows the published count (`follow`), which changes in
batches: a refusal says what the team's page says. The price is that a quota is exceeded by reports that wait.
After a restart it counts nothing until k reports with its answer have arrived, and never those of an earlier
version of the survey that gets no more reports: lower `most` by them.
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
    REPORTS: "counts what was drawn, not what was answered; when it is full, estimates of this variable are "
    "biased: chance decides who is turned away.",
}


@dataclass(frozen=True)
class Quota:
    """At most so many reports in which a column has a category."""

    variable: str
    category: Category
    most: int


class QuotaCounts:
    """How far quotas are, under every version of a survey; who keeps reports counts them here."""

    def __init__(self, quotas: Sequence[Quota], versions: Mapping[str, Policy]) -> None:
        self.quotas, self._places = tuple(quotas), dict[str, list[tuple[int, int] | None]]()
        self._versions, self._counts = dict(versions), [0] * len(quotas)
        self._published: list[int | None] | None = None
        problems = [told for i, quota in enumerate(quotas) for told in self._problems(i, quota)]
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
        found = [policy.observed for policy in self._versions.values() if quota.variable in policy.observed]
        if not found:
            known = {name for policy in self._versions.values() for name in policy.observed}
            yield (
                f"{where}.variable: reports have no column {quota.variable!r}."
                f"{did_you_mean(quota.variable, sorted(known))}"
            )
        elif all(quota.category not in one[quota.variable].categories for one in found):
            hint = did_you_mean(quota.category, found[0][quota.variable].categories)
            yield f"{where}.answer: {quota.category!r} is not a category of {quota.variable!r}.{hint}"

    def refused(self, policy: str, codes: Sequence[int]) -> Ended | None:
        """Return why a report is not taken, None if it is."""
        counts = self._counts if self._published is None else self._published
        full = any((counts[i] or 0) >= self.quotas[i].most for i in self._met(policy, codes))
        return Ended("Enough people have answered like this: the quota is full.") if full else None

    def count(self, policy: str, codes: Sequence[int], by: int = 1) -> None:
        """Count a report that was kept, or withdrawn (by = -1)."""
        for i in self._met(policy, codes):
            self._counts[i] += by

    def recount(self, reports: Iterable[tuple[Any, ...]]) -> None:
        """Count everything again, from rows that begin with the policy and end with the codes."""
        self._counts = [0] * len(self.quotas)
        for policy, *_, codes in reports:
            self.count(policy, codes)

    def follow(self, published: Sequence[int | None]) -> None:
        """Use published counts for refusals from now on, not the reports that were kept; None is not full."""
        self._published = list(published)

    def counts_in(self, reports: Mapping[str, Mapping[tuple[int, tuple[int, ...]], int]]) -> list[int]:
        """Return the count of each quota among some reports."""
        counts = [0] * len(self.quotas)
        for policy, rows in reports.items():
            for i, at in enumerate(self._places.get(policy, ())):
                if at is not None:
                    counts[i] += sum(number for (_, codes), number in rows.items() if codes[at[0]] == at[1])
        return counts

    def figures(self, counts: Sequence[int | None] | None = None) -> list[dict[str, Any]]:
        """Return the count of each quota, by default of the reports that were kept, and what it counts."""
        found = []
        for quota, count in zip(self.quotas, self._counts if counts is None else counts, strict=True):
            disguised = any(quota.variable not in policy.schema or quota.variable in policy.disguised
                            for policy in self._versions.values())  # fmt: skip
            basis = REPORTS if disguised else ANSWERS
            found.append({"variable": quota.variable, "answer": str(quota.category), "count": count,
                          "most": quota.most, "counts": basis, "meaning": MEANING[basis]})  # fmt: skip
        return found

    def _met(self, policy: str, codes: Sequence[int]) -> Iterable[int]:
        places = self._places.get(policy, ())
        return [i for i, at in enumerate(places) if at is not None and codes[at[0]] == at[1]]
