"""Pictures of a survey's page, by a real browser: python -m tests.survey.pictures [FOLDER]

Writes docs/images/survey-phone.png; with a folder, there every screen on its own as well: light and
dark, with the keyboard's focus, a panel's code, and what is printed.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from tests.survey.browser import PHONE, Visit, running
from tests.survey.world import collecting

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "survey-phone.png"
SCREEN = {
    **PHONE,
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "reduced_motion": "reduce",
}
SHOWN = ("1 who", "3 question", "5 review", "6 sent")
HEIGHT = 760  # of each screen in the picture, in pixels
GAP = 24


def screens(browser: Any, url: str, **more: Any) -> dict[str, bytes]:
    """Go through the page and photograph every screen, whole."""
    context = browser.new_context(**SCREEN | more)
    one, found = Visit(context, f"{url}/"), {}

    def shot(name: str, *, whole: bool = False) -> None:
        found[name] = one.page.screenshot(full_page=whole)

    one.page.get_by_role("heading", level=1).wait_for()
    shot("0 start whole", whole=True)
    one.page.get_by_role("heading", name="Who sees what").scroll_into_view_if_needed()
    one.page.evaluate("scrollTo(0, 0)")
    shot("1 who")
    box = one.page.get_by_label("I have written it down")
    if box.count():
        box.check()
    one.begin().answer("30 to 49").sees("medicines")
    shot("2 question empty")
    one.page.get_by_role("radio", name="Yes", exact=True).check()
    one.page.get_by_role("img").wait_for()
    shot("3 question", whole=True)
    one.page.keyboard.press("Tab")
    shot("4 focus")
    one.page.get_by_role("button", name="Next").click()
    one.answer("No")
    one.page.get_by_role("radio", name="None").check()
    one.page.get_by_role("img").wait_for()
    shot("4 three answers", whole=True)
    one.answer("None").sees("Your answers")
    shot("5 review")
    one.send().sees("Sent")
    shot("6 sent", whole=True)
    context.close()
    return found


def printed(browser: Any, folder: Path) -> dict[str, bytes]:
    """Photograph the letter and the sheets as a printer shows them."""
    context = browser.new_context(viewport={"width": 794, "height": 1123})
    found = {}
    for name in ("letter", "sheets"):
        page = context.new_page()
        page.emulate_media(media="print")
        page.goto(f"file://{folder}/{name}.html")
        found[f"print {name}"] = page.screenshot(full_page=True)
    context.close()
    return found


def side_by_side(pictures: list[bytes]) -> Image.Image:
    """Return screens in a row, cut to one height."""
    parts = [Image.open(io.BytesIO(one)).convert("RGB") for one in pictures]
    height = round(parts[0].width * 844 / 390)
    cut = [part.crop((0, 0, part.width, height)) for part in parts]
    scaled = [
        part.resize((round(part.width * HEIGHT / height), HEIGHT), Image.Resampling.LANCZOS) for part in cut
    ]
    width = sum(part.width for part in scaled) + GAP * (len(scaled) + 1)
    whole = Image.new("RGB", (width, HEIGHT + 2 * GAP), "#d9d6e2")
    left = GAP
    for part in scaled:
        whole.paste(part, (left, GAP))
        left += part.width + GAP
    return whole


def main() -> None:
    """Make the picture of the README, and the others if a folder is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    options = parser.parse_args()
    with running() as (_, browser), tempfile.TemporaryDirectory() as place:
        agree = "I am 18 or older. I have read this page and want to take part."
        with collecting(Path(place) / "open", agree=agree) as (collector, url, _):
            found = screens(browser, url)
            row = side_by_side([found[name] for name in SHOWN])
            row.quantize(256, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)
            if options.folder is None:
                return
            collector.built.write(Path(place) / "built")
            found |= printed(browser, Path(place) / "built")
            dark = screens(browser, url, color_scheme="dark")
            found |= {f"dark {name}": shot for name, shot in dark.items()}
        with collecting(Path(place) / "panel", panel=True) as (_, url, _):
            small = screens(browser, url, viewport={"width": 320, "height": 640})
            found |= {f"panel 320 {name}": shot for name, shot in small.items()}
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, shot in found.items():
        (options.folder / f"{name.replace(' ', '-')}.png").write_bytes(shot)


if __name__ == "__main__":
    main()
