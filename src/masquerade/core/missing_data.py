"""Records that are missing, and not at random: nothing is answered unless that is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from masquerade.core.errors import Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query


@dataclass(frozen=True, slots=True)
class Missing:
    """What is missing from a source, in words, and whether whoever asks accepts it.

    Standard errors speak of a population, and would pretend that the records are a sample of it. Learners
    build on them, so every question is refused until it is accepted that answers are about the records left.
    """

    what: str
    accepted: bool = False

    def refusals(self, queries: Sequence[Query | None]) -> list[Refusal]:
        """Return a refusal with the code ``incomplete`` for every question, or none if that is accepted."""
        if self.accepted:
            return []
        reason = (
            f"Rows are missing, not at random: {self.what}. "
            "Say accept_incomplete=True (or --accept-incomplete) to go on."
        )
        return [Refusal("incomplete", reason, query) for query in queries]

    def noted(self, guarantee: Guarantee) -> Guarantee:
        """Return a guarantee that says so among its assumptions."""
        return replace(guarantee, assumptions=(*guarantee.assumptions, self.what))
