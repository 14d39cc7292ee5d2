"""Results of steps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from masquerade.studio import steps

if TYPE_CHECKING:
    from masquerade.studio.engine import StudioJob


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a step: the values that its command printed, the job that still runs, or a problem."""

    name: str
    argv: tuple[str, ...]
    values: Any = None
    said: tuple[str, ...] = ()
    job: StudioJob | None = None
    problem: str | None = None

    @property
    def command(self) -> str:
        """Return the command as a user would type it."""
        return steps.format_command(self.argv)

    @property
    def python(self) -> str:
        """Return the line of Python."""
        return steps.python(self.argv)


def answer_of(job: StudioJob) -> Answer:
    """Return the answer of a job: its progress, its problem, or the values that its command printed."""
    if not job.over.is_set():
        return Answer(job.name, job.argv, job=job)
    if job.state != "done" or job.outcome is None:
        return Answer(job.name, job.argv, problem=job.words)
    printed = job.outcome.printed
    values = json.loads(printed) if printed.startswith(("{", "[")) else None
    return Answer(job.name, job.argv, values, job.outcome.said)
