"""The documentation site builds strictly, leads nowhere in vain, and loads nothing from elsewhere."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect
from tests.e2e.docs_runner import known_commands
from tests.e2e.pictures import PRINTED, WRITTEN
from tests.survey.browser import PHONE, Visit, running

import masquerade as mq
from masquerade.cli.expected_errors import expected_values

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DESKTOP = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href"), ("object", "data")}
OF_THE_DISK = {"file", "data", "blob", "about"}


class Addresses(HTMLParser):
    """Where a page leads, what it loads, and the places in it that can be led to."""

    def __init__(self, text):
        super().__init__()
        self.leads, self.loads, self.places, self.classes = [], [], set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in {"id", "name"}:
                self.places.add(value)
            elif key == "class":
                self.classes.update((value or "").split())
            elif (tag, key) in LOADED and ("rel", "canonical") not in attrs:
                self.loads.append(value)
            elif key == "href":
                self.leads.append(value)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_page_says_in_its_first_line_for_whom_it_is(page):
    head, empty, first = page.read_text(encoding="utf-8").split("\n")[:3]
    assert head.startswith("# ")
    assert empty == ""
    assert re.match(r"For [a-z]", first), first


def texts_of_the_code():
    """Return every text in the source, pieces of formatted ones by themselves."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_messages_in_the_faq_are_those_of_the_code():
    table = (DOCS / "faq.md").read_text(encoding="utf-8").split("## Error messages")[1]
    messages = re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)
    code = "\n".join(texts_of_the_code())
    assert len(messages) >= 15
    for message in messages:
        for part in message.split("…"):
            assert part.strip() in code, message


def test_pictures_of_the_gallery_are_drawn_by_the_code_beside_them():
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r'^picture\(.*"([\w-]+)"\)$', text, flags=re.MULTILINE))
    shown = set(re.findall(r"\(images/gallery/([\w-]+)\.png\)", text))
    kept = {path.stem: path.stat().st_size for path in (DOCS / "images" / "gallery").iterdir()}
    assert drawn == shown == set(kept)
    assert max(kept.values()) < 100_000


def test_what_a_gamma_costs_is_what_the_code_works_out():
    text = (DOCS / "howto" / "disguise.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([\d.]+)% \| ([\d.]+)% \| ([\d,]+) \|$", text, flags=re.MULTILINE)
    assert [row[0] for row in rows] == ["3", "5", "9", "19"]
    for gamma, kept, belief, people in rows:
        policy = mq.Policy.build({"s": ["yes", "no"]}, {"s": mq.channels.for_gamma(2, int(gamma))})
        [found] = mq.privacy(policy, beliefs=[0.1]).to_dict()["variables"]
        assert float(kept) == pytest.approx(100 * found["bayes_vulnerability"], abs=0.05)
        assert float(belief) == pytest.approx(100 * found["breach"][0]["rho2"], abs=0.05)
        [needed] = expected_values(policy)
        assert f"{needed['people_for_3_points']:,}" == people


def test_pictures_of_pages_stand_beside_what_makes_them():
    """`python -m tests.e2e.pictures` draws them anew."""
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    kept = {path.stem: path.stat().st_size for path in (DOCS / "images" / "pages").iterdir()}
    assert (
        set(kept) == set(re.findall(r"\(images/pages/([\w-]+)\.webp\)", text)) == {*WRITTEN, *PRINTED, "team"}
    )
    assert max(kept.values()) < 50_000
    assert all(f" {name}.html" in text for name in WRITTEN)


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_print_and_draw_what_they_hold(path):
    kept = json.loads(path.read_text(encoding="utf-8"))
    made = runpy.run_path(str(ROOT / "scripts" / "notebooks"))["executed"](kept)
    for before, after in zip(kept["cells"], made["cells"], strict=True):
        assert [output.get("text") for output in before.get("outputs", [])] == [
            output.get("text") for output in after.get("outputs", [])
        ]
    assert path.stat().st_size < 100_000
    assert sum("data" in output for cell in kept["cells"] for output in cell.get("outputs", [])) >= 1


def test_the_site_is_whole_loads_nothing_from_elsewhere_and_can_be_used(tmp_path):
    """One test, because the site is built once: as `make docs` does."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    built = {path: Addresses(path.read_text(encoding="utf-8")) for path in sorted(tmp_path.rglob("*.html"))}
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert f"masquerade {mq.__version__}" in home
    assert 'href="contributing.html"' in home  # a page that lies elsewhere in the repository
    every_link_leads_somewhere(built)
    nothing_is_loaded_from_elsewhere(tmp_path, built)
    every_public_name_is_there(tmp_path, built)
    every_command_and_option_is_there(tmp_path)
    with running() as (_, browser):
        for screen in (PHONE, DESKTOP):
            pages_are_accessible_and_no_request_leaves(tmp_path, browser.new_context(**screen))
        search_finds_gamma_without_a_server(tmp_path, browser.new_context(**DESKTOP))


def every_link_leads_somewhere(built):
    wrong = []
    for page, found in built.items():
        if page.name == "404.html":  # served below any address, so its links begin with /
            continue
        for address in found.leads + found.loads:
            path, _, anchor = unquote(address).partition("#")
            if "://" in address or address.startswith(("mailto:", "data:", "javascript:")):
                continue
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            places = built[target].places if target in built else {anchor}
            if not target.exists() or (anchor and anchor not in places):
                wrong.append((page.name, address))
    assert not wrong
    assert len(built) > 80


def nothing_is_loaded_from_elsewhere(site, built):
    for page, found in built.items():
        assert [address for address in found.loads if "//" in address] == [], page
        assert "mermaid" not in found.classes  # the theme would fetch what draws it
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text) == []


def every_public_name_is_there(site, built):
    words = cache(lambda page: set(re.findall(r"\w+", page.read_text(encoding="utf-8"))))
    for name in mq.__all__:
        thing = getattr(mq, name)
        page = site / "reference" / "api" / f"{getattr(thing, '__name__', 'masquerade')}.html"
        if inspect.ismodule(thing):
            public = [getattr(thing, other) for other in thing.__all__]
        else:
            page, public = site / "reference" / "api" / "masquerade.html", [thing]
        for one in public:
            if inspect.isclass(one) or inspect.isroutine(one):
                assert f"{one.__module__}.{one.__qualname__}" in built[page].places
            if inspect.isfunction(one):
                assert set(inspect.signature(one).parameters) <= words(page), one


def every_command_and_option_is_there(site):
    for path, options in known_commands(hidden=False).items():
        if path:
            page = (site / "reference" / "commands" / f"{path[0]}.html").read_text(encoding="utf-8")
            assert f"masquerade {' '.join(path)}" in page
            assert {
                one for one in options - {"--help", "-h"} if one.startswith("-") and one not in page
            } == set()


def pages_are_accessible_and_no_request_leaves(site, context):
    for page in ("index.html", "tutorial/3-count.html", "reference/api/masquerade.html", "gallery.html"):
        visit = Visit(context, (site / page).as_uri())
        expect(visit.page.get_by_role("heading", level=1).first).to_be_visible()
        expect(visit.page.locator("nav.md-code__nav:not([role]), pre > code:not([tabindex])")).to_have_count(
            0
        )
        visit.accessible()
        assert not visit.problems
        assert {request.url.partition(":")[0] for request in visit.requests} <= OF_THE_DISK
        visit.page.close()


def search_finds_gamma_without_a_server(site, context):
    visit = Visit(context, (site / "index.html").as_uri())
    visit.page.get_by_role("textbox", name="Search").click()
    visit.page.get_by_role("textbox", name="Search").press_sequentially("gamma")
    found = visit.page.locator("a.md-search-result__link[href*='concepts/gamma.html']")
    expect(found.first).to_be_visible()
    assert {request.url.partition(":")[0] for request in visit.requests} <= OF_THE_DISK
