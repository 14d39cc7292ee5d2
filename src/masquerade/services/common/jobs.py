"""Every message is worked on once: jobs in threads, and replies that are on the disk before they are sent.

Of a `PassingReply` only that it was given is: nobody could go on with it after a crash.

A job belongs to its idempotency key, not to the connection that started it. Whoever asks again with the same
key while it runs waits for the same job, and afterwards gets the stored reply, byte for byte.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeVar

from masquerade.services.common import problems
from masquerade.services.common.peers import Peer
from masquerade.services.common.problems import Busy, KeyReused, TimedOut, TooLarge
from masquerade.services.common.settings import Limits
from masquerade.services.common.state import ReplyStore

T = TypeVar("T")
OPERATOR_PLACES = 2


@dataclass(frozen=True, slots=True)
class Call:
    """A message that was let in: whose it is, where it goes, and what it says.

    `parameters` are the parts of the place that its template names.
    """

    peer: Peer
    place: str
    body: bytes = field(repr=False)
    key: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)


class PassingReply(bytes):
    """A reply that is of no use once this process has ended: it is given again from memory alone."""


Handler = Callable[[Call], bytes]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job came to; `failure` is what the handler raised, for the log."""

    status: int
    body: bytes
    failure: Exception | None = None
    replayed: bool = False
    passing: bool = False


@dataclass(slots=True, eq=False)
class Job:
    """One message being worked on, and whether somebody gave up waiting for it."""

    peer: str
    place: str
    digest: str
    done: asyncio.Future[Outcome]
    abandoned: bool = False


class Jobs:
    """The jobs of one service: no more at once than its limits allow, and none twice for the same key."""

    def __init__(
        self, replies: ReplyStore, limits: Limits, peers: Collection[str] = (), operator: str = ""
    ) -> None:
        self._replies, self._limits, self._operator = replies, limits, operator
        self._peers = frozenset(peers) - {operator}
        self._jobs: set[Job] = set()
        self._by_key: dict[tuple[str, str], Job] = {}
        self._requests: Counter[str] = Counter()
        self.stopping = False

    def check_open(self) -> None:
        """Raise `Busy` where nothing new is taken."""
        if self.stopping:
            raise Busy("This service is stopping and takes nothing new. Ask again later.")

    def enter(self, peer: str) -> None:
        """Take one of the places for requests, or raise `Busy`; `leave` gives it back.

        The operator has places of their own. Of the others one is left for every peer that has none, so that
        no peer takes all of them.
        """
        self.check_open()
        taken = self._requests + Counter(job.peer for job in self._jobs if job.abandoned)
        if peer == self._operator:
            free = OPERATOR_PLACES - taken[peer]
        else:
            del taken[self._operator]
            left = sum(not taken[name] for name in self._peers - {peer}) if taken[peer] else 0
            free = self._limits.concurrency - taken.total() - left
        if free <= 0:
            raise Busy(
                f"This service works on at most {self._limits.concurrency} requests at once, and leaves a "
                "place for each of its peers. Ask later."
            )
        self._requests[peer] += 1

    def leave(self, peer: str) -> None:
        """Give the place back; a job that still runs keeps one."""
        self._requests[peer] -= 1

    @property
    def running(self) -> int:
        """Return how many requests and jobs there are."""
        return max(self._requests.total(), len(self._jobs))

    async def answer(self, call: Call, handler: Handler, wait: float = math.inf) -> Outcome:
        """Return what a message comes to, working on it once.

        Whoever asks is told after `wait` seconds, or the most that limits allow, that the work goes on: a
        caller that is told so before its own patience ends asks again, however long the work takes.
        """
        job, seconds = await self._job(call, handler), min(self._limits.seconds, wait)
        await asyncio.wait({job.done}, timeout=seconds)
        if not job.done.done():
            job.abandoned = True
            raise TimedOut(f"This took longer than {seconds:g} seconds and goes on. Ask again with its key.")
        return job.done.result()

    async def finish(self, seconds: float) -> bool:
        """Wait for every job that runs; tell whether all have ended."""
        if self._jobs:
            await asyncio.wait({job.done for job in self._jobs}, timeout=max(0.0, seconds))
        return not self._jobs

    async def _job(self, call: Call, handler: Handler) -> Job:
        if call.key is None:
            return self._start(call, handler, "")
        digest = await in_thread(lambda: "sha256:" + sha256(call.body).hexdigest())
        name = (call.peer.name, call.key)
        job = self._by_key.get(name)
        if job is None:  # nothing is awaited between this look and the start
            job = self._by_key[name] = self._start(call, handler, digest)
            job.done.add_done_callback(lambda _: self._by_key.pop(name, None))
        elif (job.place, job.digest) != (call.place, digest):
            raise _reused()
        return job

    def _start(self, call: Call, handler: Handler, digest: str) -> Job:
        job = Job(call.peer.name, call.place, digest, in_thread(lambda: self._work(call, handler, digest)))
        self._jobs.add(job)

        def ended(result: asyncio.Future[Outcome]) -> None:
            self._jobs.discard(job)
            if not result.cancelled():
                result.exception()  # looked at, even if nobody waits for it any more

        job.done.add_done_callback(ended)
        return job

    def _work(self, call: Call, handler: Handler, digest: str) -> Outcome:
        if call.key is not None:
            stored = self._replies.find(call.peer.name, call.key)
            if stored is not None:
                if (stored.place, stored.body_digest) != (call.place, digest):
                    raise _reused()
                return Outcome(stored.status, bytes(stored.reply), replayed=True)
        done = self._handled(call, handler)
        if call.key is not None:
            row = (call.peer.name, call.key, call.place, digest, done.status, done.body)
            self._replies.keep(*row, passing=done.passing)
        return done

    def _handled(self, call: Call, handler: Handler) -> Outcome:
        most = self._limits.reply_bytes
        try:
            reply = handler(call)
            if len(reply) <= most:
                return Outcome(200, bytes(reply), passing=isinstance(reply, PassingReply))
            failure: Exception = TooLarge(f"The reply would be longer than {most:,} bytes.")
        except Busy:
            raise  # nothing was done, so there is nothing to keep: the same key may try again
        except Exception as error:  # noqa: BLE001  (whatever it was, it is the reply to this key from now on)
            failure = error
        return Outcome(*problems.encode(failure), failure)


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Start work in a thread that does not keep the process alive, and return its outcome to come.

    Where the loop has ended meanwhile nobody waits any more, and what must last is on the disk.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # who stops waiting does not stop the work

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:  # noqa: BLE001  (raised again where the outcome is awaited)
            outcome.set_exception(error)
        except BaseException as error:  # noqa: BLE001  (an exit from one call is not the end of the service)
            outcome.set_exception(RuntimeError(type(error).__name__))

    threading.Thread(target=run, name="masquerade call", daemon=True).start()
    return asyncio.wrap_future(outcome)


def _reused() -> KeyReused:
    return KeyReused("This idempotency key was used for another message. Nothing was done; use a new key.")
