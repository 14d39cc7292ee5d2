"""Which process runs which test, where pytest-xdist spreads a run over several."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

CASES = "tests/conformance/test_tally.py"
SYNTAX = "tests/architecture/"  # they share the syntax trees of the package
LONG = tuple(f"tests/e2e/test_{name}.py" for name in ("docs", "cli_parties", "cli_reproduce", "engines"))
SERVERS = ("spark", "postgres", "servers", "cli_engines", "test_connections")


class FilesTogether(LoadScopeScheduling):
    """The tests of a file in one process, since they share fixtures; those with a server as one, and first.

    Conformance cases are apart from one another, and so are the long tests of files that share nothing; those
    that read the package's syntax trees are together.
    By name, since the mark `xdist_group` is lost between pytest-xdist 3.8 and pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        if any(word in nodeid.lower() for word in SERVERS):
            return "servers"
        if nodeid.startswith(CASES):
            return nodeid.rpartition("-")[2]
        if nodeid.startswith(SYNTAX):
            return SYNTAX
        return nodeid if nodeid.startswith(LONG) else nodeid.partition("::")[0]
