"""Which process runs which test, where pytest-xdist spreads a run over several."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

SAME_CASE = "tests/conformance/test_tally.py"
SERVERS = ("spark", "postgres", "servers", "cli_engines", "test_connections")


class ServersTogether(LoadScopeScheduling):
    """Every test for itself, but those with a server as one, and first, since they take longest.

    Those of one conformance case are together too: what it must answer is then worked out once.
    By name, since the mark `xdist_group` is lost between pytest-xdist 3.8 and pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        if any(word in nodeid.lower() for word in SERVERS):
            return "servers"
        return nodeid.rpartition("-")[2] if nodeid.startswith(SAME_CASE) else nodeid
