"""Which tests may be left out, why, and how many: a run that leaves out others, or more, fails.

A test that vanishes looks like one that passes. So each reason for leaving tests out stands here with the
most tests that may have it; whatever else is skipped is named at the end of the run, and the run fails. Tests
whose server is missing are left out on a developer's machine, and the run says so; in CI they fail
(`tests.servers.fixtures`).
"""

from __future__ import annotations

import os
from collections import Counter
from typing import NamedTuple

import pytest


class Allowance(NamedTuple):
    """A reason that a test may give, by how it begins; the most tests that may give it; and why they may."""

    reason: str
    most: int
    why: str


ALLOWED = (
    Allowance(
        "root may write everywhere", 4, "nobody can forbid the superuser to write; CI runs them as a user"
    ),
    Allowance("no package carries", 4, "public files that no package may pass on; MASQUERADE_DATA has them"),
    Allowance("no published data", 20, "data of R packages under the GPL; MASQUERADE_PUBLISHED has them"),
    Allowance("no fork here", 3, "Windows has no fork"),
    Allowance("reads /proc", 4, "only Linux has /proc"),
    Allowance("no file system to mount", 105, "only root mounts; the one of temporary files is always tried"),
    Allowance("only root makes network namespaces", 1, "one test is of machines in namespaces"),
    Allowance("no rsync here", 31, "other programs put files back, too"),
    Allowance("Spark Connect needs grpcio", 1, "no lock has it: masquerade runs without, see large-data.md"),
    Allowance("no systemd-analyze here", 1, "units are read without it, too"),
    Allowance("MPyC is not installed", 5, "an engine of an extra; the lock of tests has it"),
    Allowance("no environment with SPU is named", 4, "SPU needs NumPy below 2: it lives in one of its own"),
    Allowance("opendp cannot be installed", 2, "slow tests install two versions from an index"),
    Allowance("SCIPY_ARRAY_API is not set", 8, "scikit-learn's own checks of arrays that we do not claim"),
)
SERVERS = ("PostgreSQL:", "Spark:", "Browser:")


def in_ci() -> bool:
    """Tell whether a machine judges a commit: there nothing may be missing."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


class Skips:
    """What was left out in a run; in a run over several processes the first one counts for all."""

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that was skipped, before it ran or while it did."""
        self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a whole file that was skipped."""
        self._count(report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that leaves out more than it may."""
        if not hasattr(session.config, "workerinput") and beyond(self.reasons):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which tests were left out that may not be."""
        for line in beyond(self.reasons):
            terminalreporter.write_line(f"Left out against tests/skips.py: {line}", red=True)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.reasons[reason.removeprefix("Skipped: ")] += 1


def beyond(reasons: Counter[str]) -> list[str]:
    """Return, for each reason that may not be given at all or so often, a line that says so."""
    found, counted = [], Counter[Allowance]()
    for reason, number in reasons.items():
        allowed = next((one for one in ALLOWED if reason.startswith(one.reason)), None)
        if allowed is not None:
            counted[allowed] += number
        elif in_ci() or not reason.startswith(SERVERS):
            found.append(f"{number} because {reason!r}")
    return found + [
        f"{number} because {one.reason!r}, at most {one.most} may be"
        for one, number in counted.items()
        if number > one.most
    ]


def pytest_configure(config: pytest.Config) -> None:
    """Watch what is left out."""
    config.pluginmanager.register(Skips())
