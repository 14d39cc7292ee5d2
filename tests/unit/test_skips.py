"""A part that tests need and that is missing fails loudly in CI; no test vanishes in silence."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.servers import fixtures
from tests.skips import ALLOWED, beyond

ROOT = Path(__file__).parents[2]
NO_JAVA = "Spark: Java is missing: install it"


@pytest.mark.parametrize(("variables", "code"), [({}, 0), ({"CI": "true"}, 1), ({"CI": "false"}, 0)])
def test_the_script_fails_in_ci_where_it_may_not_install(variables, code, tmp_path):
    user = tmp_path / "id"
    user.write_text("#!/bin/sh\necho 1000\n")
    user.chmod(0o755)
    done = subprocess.run(  # noqa: S603  (our own script)
        ["/bin/sh", str(ROOT / "scripts" / "install-servers")],
        env={"PATH": str(tmp_path), **variables},  # no Java there
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Java 17 or newer (for Spark)" in done.stderr
    assert "only root may install it" in done.stderr
    assert done.returncode == code, done.stderr


def test_a_test_without_its_server_is_left_out_and_fails_in_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Java is missing"):
        fixtures._need(NO_JAVA)
    assert not beyond(Counter({NO_JAVA: 40}))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI nothing may be missing"):
        fixtures._need(NO_JAVA)
    assert beyond(Counter({NO_JAVA: 40})) == [f"40 because {NO_JAVA!r}"]


@pytest.mark.parametrize("allowed", ALLOWED, ids=lambda allowed: allowed.reason)
def test_a_reason_may_be_given_so_often_and_no_more(allowed):
    reason = f"{allowed.reason} and more"
    assert not beyond(Counter({reason: allowed.most}))
    [line] = beyond(Counter({reason: allowed.most, allowed.reason: 1}))
    assert line == f"{allowed.most + 1} because {allowed.reason!r}, at most {allowed.most} may be"


@pytest.mark.parametrize(
    ("reason", "code"), [pytest.param("no fork here", 0, marks=pytest.mark.slow), ("not today", 1)]
)
def test_a_run_that_leaves_out_another_test_fails_in_whatever_process_it_ran(reason, code, tmp_path):
    test = tmp_path / "test_left_out.py"
    test.write_text(f"import pytest\n\n\ndef test_it():\n    pytest.skip({reason!r})\n")
    done = subprocess.run(  # noqa: S603  (our own tests)
        [sys.executable, "-m", "pytest", "-p", "tests.skips", "-n", "1", "-c", "/dev/null", str(test)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("Left out against tests/skips.py: 1 because 'not today'" in done.stdout) == bool(code)
