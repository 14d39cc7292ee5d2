"""The survey page's sampler, run in Node at the bounds of all intervals of a policy."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from masquerade.audit.findings import Finding
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey.page.mechanism import channel_rows, mechanism, vectors

ABOUT: Final = "survey page"
PATIENCE: Final = 300  # seconds
PROGRAM: Final = """
import { readFileSync } from "node:fs";
import { intervals, reportOfWord, rowOf } from "./masquerade.js";
const wrong = [];
for (const { channel, rows } of JSON.parse(readFileSync("walk.json", "utf8")))
  for (const { code, words, reports } of rows) {
    const table = intervals(rowOf(channel, code));
    words.forEach((word, i) => {
      if (reportOfWord(table, BigInt("0x" + word)) !== reports[i]) wrong.push(word);
    });
  }
console.log(wrong.length);
"""


def page_findings(policy: Policy, channels: Iterable[Channel]) -> list[Finding]:
    """Test whether the page's JavaScript gives the same reports as Python at all bounds of intervals.

    `channels` are all channels that the policy draws from.
    """
    try:
        mechanism(policy)
    except InputError as error:
        return [Finding(about=ABOUT, verdict="not covered", says=f"this policy has no survey page. {error}")]
    program = shutil.which("node") or shutil.which("nodejs")
    if program is None:
        return [
            Finding(
                about=ABOUT,
                verdict="not covered",
                says="the page's JavaScript was not run: Node is not installed",
                repair="install Node 20 or newer, and audit again",
            )
        ]
    walked = [
        {"channel": channel_rows(channel), "rows": vectors(channel, "audit", 0)} for channel in channels
    ]
    words = sum(len(row["words"]) for one in walked for row in one["rows"])
    wrong = _mismatches(program, walked)
    if wrong is None:
        return [Finding(about=ABOUT, verdict="not covered", says="the page's JavaScript did not run in Node")]
    if wrong:
        return [
            Finding(
                about=ABOUT,
                verdict="contradicted",
                says=f"the page's JavaScript gives different reports for {wrong:,} of {words:,} words",
                repair="do not collect with this page; report this as a bug",
            )
        ]
    return [
        Finding(
            about=ABOUT,
            verdict="proved",
            says=f"the page's JavaScript gives the same reports at all bounds of intervals ({words:,} words)",
            attack="every bound of an interval, the words next to it, and the first and the last word, in "
            "Node",
            assumption="the browser's random words are uniform",
        )
    ]


def _mismatches(program: str, walked: list[dict[str, Any]]) -> int | None:
    script = files("masquerade.survey.page").joinpath("assets", "masquerade.js").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="masquerade-") as folder:
        place = Path(folder)
        (place / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        (place / "masquerade.js").write_text(script, encoding="utf-8")
        (place / "walk.json").write_text(json.dumps(walked), encoding="utf-8")
        (place / "walk.mjs").write_text(PROGRAM, encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603
                [program, "walk.mjs"], cwd=place, capture_output=True, text=True, timeout=PATIENCE, check=True
            )
        except (subprocess.SubprocessError, OSError):
            return None
    return int(done.stdout)
