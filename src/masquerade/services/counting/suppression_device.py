"""A person's device in a suppression: answer each step once, and check the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from masquerade.anonymity.suppression import partition_distances
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.k_anonymity.suppression.messages import Boards, PartitionTerms, signed_groups
from masquerade.protocols.k_anonymity.suppression.roles import Person
from masquerade.protocols.people.ledger import Claim
from masquerade.services.counting.messages import SuppressionCountTerms
from masquerade.services.counting.suppression_messages import (
    CLOSINGS,
    DISTANCES,
    GROUPS,
    KEYS,
    TABLE,
    RelayedReports,
    SuppressionStep,
)

if TYPE_CHECKING:
    from masquerade.services.counting.person_file import PersonFile

ROW, VOTE = "count row", "count groups"
ACCEPTED = b"accepted"


class SuppressionDevice:
    """A person in a suppression: the row is encrypted and sent once, and every step is answered once.

    A device that is started again sends the same encrypted row, and continues until it has signed groups.
    After that its keys are lost with its memory, and the suppression ends.
    """

    def __init__(
        self,
        person: PersonFile,
        terms: SuppressionCountTerms,
        agreed: PartitionTerms,
        codes: Mapping[str, int],
        *,
        earlier: Iterable[str] = (),
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        row = [terms.labels[name][codes[name]] for name in agreed.attributes]
        self._file, self._count_terms, self._terms, self._tell = person, terms, agreed, tell
        self._person = Person(person.name, person.identity, agreed, row, ledger=person.ledger, agreed=earlier)
        self._agreement = b""
        self._steps: Mapping[str, Callable[..., bytes]] = {
            KEYS: self._submit,
            DISTANCES: self._agree,
            GROUPS: self._request,
            CLOSINGS: self._report,
            TABLE: self._accept,
        }

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a step."""
        step = SuppressionStep.decode(message)
        return self._steps[step.step](*step.parts)

    def _submit(self, keys: bytes) -> bytes:
        sent = self._file.ledger.find(ROW, self._count_terms.digest)
        if sent is None:
            sent = self._person.submit(keys)
            self._file.ledger.claim([Claim(ROW, self._count_terms.digest, sent)])
        else:
            self._person.resume(sent)
        return sent

    def _agree(self, *boards: bytes) -> bytes:
        sent = self._file.ledger.find(ROW, self._count_terms.digest)
        if sent is not None:
            self._person.resume(sent)
        vote = self._person.agree(Boards(*boards), partition_distances)
        try:
            self._file.ledger.claim([Claim(VOTE, self._count_terms.digest)])
        except KeySpent:
            raise KeySpent(
                "This device stopped after it had signed the groups: the table is over. Nothing was sent."
            ) from None
        return vote

    def _request(self, agreement: bytes, notices: bytes) -> bytes:
        bundle = self._person.request(agreement, notices)
        self._agreement = signed_groups(self._terms, agreement).digest
        return bundle

    def _report(self, replies: bytes, closings: bytes) -> bytes:
        reports = self._person.report(replies, closings)
        terms, person = self._count_terms, self._file
        return RelayedReports.make(person.name, reports, self._agreement, terms, person.identity).encode()

    def _accept(self, release: bytes) -> bytes:
        table = self._person.accept(release)
        row = zip(self._terms.attributes, table[self._file.name], strict=True)
        text = ", ".join(f"{name} {'*' if value is None else value}" for name, value in row)
        self._tell(f"Your row of the table: {text}.")
        return ACCEPTED
