"""Pictures of the studio, by a real browser: python -m tests.studio.pictures [FOLDER]

Writes docs/images/studio.webp; with a folder, there every screen on its own as well: on a desktop, a phone,
in the dark and as it is printed.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from tests.studio.browsing import DESKTOP, PHONE, Server, entered, settled
from tests.survey.browser import running

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "studio.webp"
PLACES = {
    "data": "data",
    "policy": "policy",
    "trade-off": "trade-off?epsilon=3",
    "estimate": "estimate?do=count&by=smoker&by=region",
    "learn": "learn?do=link&parent=smoker&child=ill",
    "network": "learn?do=network",
    "tree": "learn?do=tree&target=ill",
    "regression": "learn?do=regress&formula=ill+~+smoker",
    "audit": "audit?do=policy",
    "attack": "audit?do=release",
    "release": "release",
}
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "desktop": (DESKTOP, "screen"),
    "phone": (PHONE, "screen"),
    "dark": (DESKTOP | {"color_scheme": "dark"}, "screen"),
    "print": (DESKTOP, "print"),
}
SHOWN = ("policy", "trade-off", "estimate", "learn")
WIDTH, HEIGHT, GAP = 560, 620, 16


def people(folder: Path) -> None:
    """Write made-up people."""
    draw, n = np.random.default_rng(20261117), 6000
    region = draw.choice(["north", "south", "west"], n)
    smoker = np.where(draw.random(n) < np.where(region == "north", 0.45, 0.2), "yes", "no")
    ill = np.where(draw.random(n) < np.where(smoker == "yes", 0.6, 0.1), "yes", "no")
    columns = {"region": region, "smoker": smoker, "ill": ill}
    pd.DataFrame(columns).to_csv(folder / "people.csv", index=False)


def photographed(browser: Any, server: Server) -> dict[str, bytes]:
    """Go through all screens, as every kind of reader."""
    found = {}
    for kind, (options, media) in KINDS.items():
        visit = entered(browser, server, options)
        page, base = visit.page, visit.page.url.rpartition("/")[0]
        if not found:
            page.get_by_role("button", name="people.csv").click()
            page.get_by_role("heading", name="Variables").wait_for()
            page.goto(f"{base}/release")
            page.get_by_role("button", name="Disguise").click()
            page.get_by_role("heading", name="Released", exact=True).wait_for()
        page.emulate_media(media=media)
        for name, place in PLACES.items():
            page.goto(f"{base}/{place}")
            settled(visit)
            found[f"{kind} {name}"] = page.screenshot(full_page=True)
        visit.context.close()
    return found


def side_by_side(pictures: list[bytes]) -> Image.Image:
    """Return the tops of screens, two in a row."""
    whole = Image.new("RGB", (2 * WIDTH + 3 * GAP, 2 * HEIGHT + 3 * GAP), "#c9ced6")
    for place, content in enumerate(pictures):
        with Image.open(io.BytesIO(content)) as screen:
            small = screen.convert("RGB").resize((WIDTH, round(screen.height * WIDTH / screen.width)))
        down, across = divmod(place, 2)
        part = small.crop((0, 0, WIDTH, HEIGHT))
        whole.paste(part, (GAP + across * (WIDTH + GAP), GAP + down * (HEIGHT + GAP)))
    return whole


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as made, running() as (_, browser):
        people(Path(made))
        server = Server(Path(made))
        try:
            found = photographed(browser, server)
        finally:
            server.close()
    side_by_side([found[f"desktop {name}"] for name in SHOWN]).save(PICTURE, quality=80)
    for name, content in found.items() if folder else ():
        (folder / f"{name.replace(' ', '-')}.png").write_bytes(content)


if __name__ == "__main__":
    main()
