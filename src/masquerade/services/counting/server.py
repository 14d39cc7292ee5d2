"""What the miner and the leaders of a count are: state, terms from the office, and who may ask what."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.services.common.jobs import Call, Handler
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import NotAdmitted
from masquerade.services.common.server import NodeServer
from masquerade.services.common.service import Service
from masquerade.services.common.state import INTERRUPTED, State
from masquerade.services.counting.messages import CountTerms
from masquerade.services.counting.settings import CountNodeSettings

ANYBODY: Final = Peer("Anybody")  # a capital letter: no peer in a settings file can be called so
SCOPE, TERMS = "count", "terms"


class CountServer(NodeServer):
    """Everything behind the address of a miner or leader; a subclass says what it does at which place."""

    CALLED = "server"
    RESTORED = "masquerade count restored"
    AGREEMENT = "counts may differ by single people from counts that were made since the backup"
    settings: CountNodeSettings
    places: dict[str, Handler]

    def __init__(self, settings: CountNodeSettings) -> None:
        self.description = settings.description()
        self.terms: CountTerms | None = None
        super().__init__(settings)

    def begin(self, files: ExitStack) -> None:  # noqa: ARG002
        """Go on with terms that the office has fixed, unless the state came from a backup."""
        name, over = self.description.name, "it is over. Name a new count in its description."
        if self.restores.doubted:
            raise InputError(f"{self.restores.doubt} What count {name!r} has done since is not known: {over}")
        if self.state.notes.get(INTERRUPTED, name) is not None:
            raise InputError(f"Count {name!r} went on when this state was restored from a backup: {over}")
        known = self.state.notes.get(SCOPE, TERMS)
        if known is not None:
            terms = CountTerms.decode(known)
            if terms.name != name:
                raise InputError(
                    f"This state is that of count {terms.name!r}; {name!r} needs a state folder of its own."
                )
            self.take_terms(terms)

    @classmethod
    def noticed(cls, settings: CountNodeSettings, state: State) -> None:
        """End the count of the settings, which may have gone on since the backup."""
        name = settings.description().name
        if state.notes.get(INTERRUPTED, name) is None:
            state.notes.put(INTERRUPTED, name, b"")

    def enrol(self, call: Call) -> bytes:
        """Take the terms from the office, once; the same ones again change nothing."""
        if call.peer.name != self.settings.office:
            raise NotAdmitted("Only the enrolment office says who is counted.")
        terms = CountTerms.decode(call.body)
        if terms.encode() != self.description.terms(dict(terms.members)).encode():
            raise InputError("The office's terms are not those of this server's description of the count.")
        if self.terms is None:
            self.state.notes.put(SCOPE, TERMS, terms.encode())
            self.take_terms(terms)
        elif self.terms.digest != terms.digest:
            reason = f"Who is counted in {terms.name!r} was fixed before: other people need a new count."
            raise QueryRefused([Refusal("already_enrolled", reason)])
        return terms.digest

    def take_terms(self, terms: CountTerms) -> None:
        """Begin with the terms that the office has fixed."""
        self.terms = terms

    def enrolled(self) -> CountTerms:
        """Return the terms, or refuse until there are any."""
        if self.terms is None:
            reason = "The enrolment office has not said yet who is counted."
            raise QueryRefused([Refusal("not_enrolled", reason)])
        return self.terms

    def answer(self, call: Call) -> bytes:
        """Answer a message to one of the places."""
        return self.places[call.place](call)

    def service(self) -> Service:
        """Return the service that this server is; replies are kept in memory, as nothing is done twice."""
        return self.service_at(self.places, anonymous=ANYBODY)
