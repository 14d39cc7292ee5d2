"""Remake the picture of the README: ``python -m masquerade.report.picture docs/images/demo.png``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from masquerade.core.atomic import write_whole
from masquerade.report.pictures import counts_picture
from masquerade.report.study import Study, run_study
from masquerade.report.style import house_style, png

PEOPLE = 20_000


def story_picture(study: Study) -> bytes:
    """Return the picture that tells the story, as PNG: naive counts are wrong, estimates are not."""
    title = f"{study.n:,} people behind masks: counted naively, and estimated by masquerade"
    with house_style():
        return png(counts_picture(study, width=7.6, height=4.3, title=title))


def main(arguments: Sequence[str]) -> int:
    """Write the picture to the path given."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m masquerade.report.picture TARGET.png\n")
        return 2
    content = story_picture(run_study(PEOPLE))
    write_whole(Path(arguments[0]), content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
