"""The page in Firefox, on a phone's screen: vectors, one whole path, from disk, and no other host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.survey import programs, vectors
from tests.survey.browser import AXE, KEPT, RULES
from tests.survey.programs import firefox, node, packages
from tests.survey.world import collecting


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_fails_in_ci(monkeypatch, tmp_path, ci, outcome):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    for needed in (programs.node, programs.chromium, programs.firefox, programs.packages):
        with pytest.raises(outcome, match=r"Browser: .* missing: run scripts/install-servers"):
            needed()


def test_firefox_meets_the_vectors_and_goes_the_whole_way(tmp_path):
    program, runs, place = firefox(), node(), packages()
    made = vectors.made()
    (tmp_path / "vectors.json").write_text(json.dumps(made))
    with collecting(tmp_path / "work") as (collector, url, _):
        collector.built.write(tmp_path / "page")
        plan = {
            "firefox": program,
            "url": f"{url}/",
            "title": "Health at work",
            "disk": f"file://{tmp_path}/page/survey.html",
            "away": "http://127.0.0.1:9/",
            "vectors": str(tmp_path / "vectors.json"),
            "axe": str(AXE),
            "rules": RULES,
            "kept": f"({KEPT})()",
        }
        done = subprocess.run(  # noqa: S603
            [runs, str(Path(__file__).with_name("firefox.mjs")), str(place)],
            input=json.dumps(plan), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        reports = [codes for *_, codes in collector.store.reports()]
    told = json.loads(done.stdout)
    assert told["version"].startswith("firefox/")
    assert told["problems"] == []
    assert told["vectors"] == {"met": vectors.count(made), "missed": 0}
    assert vectors.count(made) >= 10_000
    in_file = sum(len(row["words"]) for draw in made["draws"] for row in draw["rows"])
    assert int(told["checked"].split()[0].replace(",", "")) >= in_file
    assert "test values, 0 wrong" in told["checked"]
    assert told["blocked"] == ["fetch", "script"]
    assert told["axe"] == {name: [[], True] for name in ("start", "question", "review", "sent")}
    assert told["reviewed"] == ["30 to 49", "Yes", "No", "None"]
    assert told["before"] == 0
    assert [(key.partition(" ")[2], value) for key, value in told["kept"]] == [("mark", "true")]
    assert told["elsewhere"] == [0, 0, "", f"{url}/"]
    assert told["next"] == [0, 0]
    # what the person saw as sent is what came in, and the page from disk sent one as well
    labels = [("Under 30", "30 to 49", "50 or more"), *[("Yes", "No")] * 2]
    labels.append(("None", "One to three", "Four or more"))
    assert len(reports) == 2
    shown = tuple(own.index(drawn) for own, drawn in zip(labels, told["drawn"], strict=True))
    assert shown in reports
    assert {codes[0] for codes in reports} == {0, 1}
    sent = [address for method, address in told["requests"] if method == "POST"]
    assert sent == [f"{url}/v1/reports"] * 2
    asked = {address.split("/")[2] for _, address in told["requests"] if address.startswith("http")}
    assert asked == {url.split("/")[2]}
