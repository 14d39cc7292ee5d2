"""Pictures of the pages that commands write or serve, by a real browser: python -m tests.e2e.pictures

Runs docs/gallery.md in an empty folder, photographs what it wrote, and a survey's team page and printed
parts; writes docs/images/pages.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from tests.e2e.docs_runner import run_page
from tests.survey.browser import PATIENCE, running
from tests.survey.world import collecting

from masquerade.survey.collector.example import answer_as_people

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = DOCS / "images" / "pages"
WRITTEN = ("report", "plan", "audit", "anonymity")
PRINTED = ("letter", "sheets")
SCREEN = {"width": 900, "height": 1100}
WIDTH = 520  # of a picture, in pixels


def main() -> None:
    """Photograph every page from its top."""
    PICTURES.mkdir(exist_ok=True)
    with running() as (_, browser), tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in ("gallery", "built"):
            (folder / name).mkdir()
        run_page(DOCS / "gallery.md", folder / "gallery")
        for name in WRITTEN:
            photographed(browser, name, (folder / "gallery" / f"{name}.html").as_uri())
        with collecting(folder / "survey") as (collector, url, _):
            token = (folder / "survey" / "team.token").read_text().strip()
            answer_as_people(collector.survey, url, 300)
            collector.publish()
            photographed(browser, "team", f"{url}/team#{token}", until="reports or more")
            collector.built.write(folder / "built")
        for name in PRINTED:
            photographed(browser, name, (folder / "built" / f"{name}.html").as_uri(), media="print")


def photographed(browser: Any, name: str, address: str, *, until: str = "", media: str = "screen") -> None:
    """Write the picture of a page, small."""
    context = browser.new_context(viewport=SCREEN, reduced_motion="reduce", locale="en-GB")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.emulate_media(media=media)
    page.goto(address)
    page.get_by_text(until).first.wait_for() if until else page.get_by_role("heading").first.wait_for()
    with Image.open(io.BytesIO(page.screenshot())) as screen:
        small = screen.convert("RGB").resize(
            (WIDTH, round(screen.height * WIDTH / screen.width)), Image.Resampling.LANCZOS
        )
    small.save(PICTURES / f"{name}.webp", quality=75)
    context.close()


if __name__ == "__main__":
    main()
