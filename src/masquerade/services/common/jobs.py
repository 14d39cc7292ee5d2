"""Jobs: each message is handled once, in a thread, and its reply is durable before it is sent.

A job belongs to its idempotency key, not to the connection that started it. A caller that repeats the key
while the job runs waits for the same job, and afterwards receives the stored reply, byte for byte.

For a `PassingReply`, which is useless after a crash, only the fact that it was sent is stored durably.
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
OPERATOR_PLACES = 8  # concurrent requests of the operator; some wait for the next step of a session


@dataclass(frozen=True, slots=True)
class Call:
    """An admitted message: its sender, path and body.

    `parameters` are the values of the path's template.
    """

    peer: Peer
    place: str
    body: bytes = field(repr=False)
    key: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)


class PassingReply(bytes):
    """A reply that is useless after this process has ended, and therefore kept only in memory."""


Handler = Callable[[Call], bytes]


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The result of a job; `failure` is the exception that the handler raised, for the log."""

    status: int
    body: bytes
    failure: Exception | None = None
    replayed: bool = False
    passing: bool = False


@dataclass(slots=True, eq=False)
class MessageJob:
    """One message that is being handled; `abandoned` if its caller stopped waiting."""

    peer: str
    place: str
    digest: str
    done: asyncio.Future[JobOutcome]
    abandoned: bool = False


class Jobs:
    """The jobs of one service: limited in number, and one per idempotency key."""

    def __init__(
        self, replies: ReplyStore, limits: Limits, peers: Collection[str] = (), operator: str = ""
    ) -> None:
        self._replies, self._limits, self._operator = replies, limits, operator
        self._peers = frozenset(peers) - {operator}
        self._jobs: set[MessageJob] = set()
        self._by_key: dict[tuple[str, str], MessageJob] = {}
        self._requests: Counter[str] = Counter()
        self.stopping = False

    def check_open(self) -> None:
        """Raise `Busy` if the service is stopping."""
        if self.stopping:
            raise Busy("This service is stopping and accepts no new requests. Ask again later.")

    def enter(self, peer: str) -> None:
        """Reserve a slot for a request, or raise `Busy`; `leave` releases it.

        The operator has separate slots. One slot is reserved for each peer without a request, so that no peer
        can take all of them.
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
                f"This service handles at most {self._limits.concurrency} requests at once, and keeps a slot "
                "free for each peer without a request. Ask again later."
            )
        self._requests[peer] += 1

    def leave(self, peer: str) -> None:
        """Release the slot of a request; a job that still runs keeps one."""
        self._requests[peer] -= 1

    @property
    def running(self) -> int:
        """Return the number of requests or running jobs, whichever is larger."""
        return max(self._requests.total(), len(self._jobs))

    async def answer(self, call: Call, handler: Handler, wait: float = math.inf) -> JobOutcome:
        """Handle a message once and return the outcome.

        Raises
        ------
        TimedOut
            If the job takes longer than `wait` seconds, or than the limits allow. The job continues, and the
            caller can repeat the message with the same key until it is done.
        """
        job, seconds = await self._job(call, handler), min(self._limits.seconds, wait)
        await asyncio.wait({job.done}, timeout=seconds)
        if not job.done.done():
            job.abandoned = True
            raise TimedOut(
                f"This took longer than {seconds:g} seconds and continues. Ask again with the same key."
            )
        return job.done.result()

    async def finish(self, seconds: float) -> bool:
        """Wait for all running jobs, at most `seconds`; return True if all have ended."""
        if self._jobs:
            await asyncio.wait({job.done for job in self._jobs}, timeout=max(0.0, seconds))
        return not self._jobs

    async def _job(self, call: Call, handler: Handler) -> MessageJob:
        """Return the running job with the key of a message, or start one.

        Raise `KeyReused` if the job with this key is for a different message.
        """
        if call.key is None:
            return self._start(call, handler, "")
        digest = await in_thread(lambda: "sha256:" + sha256(call.body).hexdigest())
        name = (call.peer.name, call.key)
        job = self._by_key.get(name)
        if job is None:  # no await between this check and the start, so no second job can start
            job = self._by_key[name] = self._start(call, handler, digest)
            job.done.add_done_callback(lambda _: self._by_key.pop(name, None))
        elif (job.place, job.digest) != (call.place, digest):
            raise _reused_key()
        return job

    def _start(self, call: Call, handler: Handler, digest: str) -> MessageJob:
        """Start a job in a thread."""
        job = MessageJob(
            call.peer.name, call.place, digest, in_thread(lambda: self._work(call, handler, digest))
        )
        self._jobs.add(job)

        def ended(result: asyncio.Future[JobOutcome]) -> None:
            self._jobs.discard(job)
            if not result.cancelled():
                result.exception()  # retrieved even if no caller waits, or asyncio would report it

        job.done.add_done_callback(ended)
        return job

    def _work(self, call: Call, handler: Handler, digest: str) -> JobOutcome:
        """Return the stored reply to a message; without one, run the handler and store its reply."""
        if call.key is not None:
            stored = self._replies.find(call.peer.name, call.key)
            if stored is not None:
                if (stored.place, stored.body_digest) != (call.place, digest):
                    raise _reused_key()
                return JobOutcome(stored.status, bytes(stored.reply), replayed=True)
        done = self._run_handler(call, handler)
        if call.key is not None:
            row = (call.peer.name, call.key, call.place, digest, done.status, done.body)
            self._replies.keep(*row, passing=done.passing)
        return done

    def _run_handler(self, call: Call, handler: Handler) -> JobOutcome:
        """Return the outcome of a handler; any error but `Busy` becomes a reply, too."""
        most = self._limits.reply_bytes
        try:
            reply = handler(call)
            if len(reply) <= most:
                return JobOutcome(200, bytes(reply), passing=isinstance(reply, PassingReply))
            failure: Exception = TooLarge(f"The reply would be longer than {most:,} bytes.")
        except Busy:
            raise  # nothing was done, so nothing is stored: the same key may try again
        except Exception as error:  # noqa: BLE001  (any error becomes the stored reply of this key)
            failure = error
        return JobOutcome(*problems.encode(failure), failure)


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Start work in a daemon thread, and return a future of its result.

    If the loop ends first, the result is lost; durable changes of the work are not.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # cancelling the wait must not cancel the work

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:  # noqa: BLE001  (raised again where the outcome is awaited)
            outcome.set_exception(error)
        except BaseException as error:  # noqa: BLE001  (an exit from one call is not the end of the service)
            outcome.set_exception(RuntimeError(type(error).__name__))

    threading.Thread(target=run, name="masquerade call", daemon=True).start()
    return asyncio.wrap_future(outcome)


def _reused_key() -> KeyReused:
    return KeyReused("This idempotency key was used for another message. Nothing was done; use a new key.")
