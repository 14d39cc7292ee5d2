"""The studio in a real browser: from an empty folder and a CSV to an audit, by mouse and by keyboard."""

import re
import signal

import pytest
from playwright.sync_api import expect
from tests.messy_survey import write_messy_survey
from tests.studio.browsing import DESKTOP, PEOPLE, PHONE, Keyboard, Mouse, Server, entered, settled
from tests.studio.pictures import PLACES, people
from tests.survey.browser import PATIENCE, running

pytest.importorskip("fastapi")

MOST_WORDS = 480  # two minutes at 240 words a minute
KINDS = {"mouse": Mouse, "keyboard": Keyboard}


@pytest.fixture(scope="module")
def browser():
    with running() as (_, found):
        yield found


@pytest.fixture(params=["mouse", pytest.param("keyboard", marks=pytest.mark.slow)])
def walked(request, browser, tmp_path):
    """Yield somebody at the studio of an empty folder and a file, their one kind of hand, and the folder."""
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    server = Server(tmp_path)
    visit = entered(browser, server, DESKTOP)
    yield visit, KINDS[request.param](visit), tmp_path
    visit.context.close()
    server.close()


def test_from_a_csv_to_an_audit(walked):
    visit, hand, folder = walked
    page = visit.page

    def looked_at():
        settled(visit)
        if isinstance(hand, Mouse):  # the screens are the same for both
            visit.accessible()

    hand.press("button", "people.csv")
    expect(page.get_by_role("heading", name="Variables")).to_be_visible()
    looked_at()

    hand.press("link", "Policy")
    expect(page.get_by_role("heading", level=1)).to_have_text("Policy")
    expect(page.locator("#person")).to_contain_text("at most 50% likely after seeing everything")
    alone = page.get_by_role("button", name="Disguise every variable by itself")
    if alone.count():
        hand.use(alone)
    at_first = page.locator("#w1 strong").inner_text()
    with_limit = page.locator("#person details.change").last
    with_limit.evaluate("(details) => { details.open = true; }")
    with_limit.locator("select").select_option("gamma")
    with_limit.locator("input[name=limit]").fill("100000")
    hand.press("button", "Change the limit")
    slider = page.get_by_role("slider", name="Protection of smoker")
    hand.slide(slider)
    words = f"This answer: {slider.get_attribute('aria-valuetext')}."
    assert words != at_first
    expect(page.locator("#w1 strong")).to_have_text(words)  # before anything is set
    hand.use(page.locator("#v1").get_by_role("button", name="Set", exact=True))
    expect(page.get_by_role("button", name="Undo")).to_have_attribute("title", re.compile("smoker: gamma"))
    expect(page.locator("#w1 strong")).to_have_text(words)
    looked_at()
    hand.press("button", "Undo")
    expect(page.locator("#w1 strong")).to_have_text(at_first)
    hand.press("button", "Redo")
    expect(page.locator("#w1 strong")).to_have_text(words)

    hand.press("link", "Release")
    hand.press("button", "Disguise")
    expect(page.get_by_role("heading", name="Released", exact=True)).to_be_visible()
    looked_at()

    hand.press("link", "Estimate")
    hand.press("checkbox", "smoker")
    hand.press("button", "Estimate")
    expect(page.locator("data[data-at='0.cells.0.lower']")).to_have_count(1)
    looked_at()
    figures = page.locator("#result table").inner_text()

    hand.press("link", "Learn")
    hand.press("button", "Learn")
    expect(page.locator("#result figure svg")).to_be_visible()
    looked_at()
    hand.use(page.locator("#result svg a").first)
    expect(page.locator("#link")).to_contain_text("is detected with power 80%")
    looked_at()

    hand.press("link", "Trade-off")
    expect(page.locator("#result figure svg")).to_be_visible()
    looked_at()

    hand.press("link", "Audit")
    hand.press("button", "Prove the policy")
    expect(page.locator("#result")).to_contain_text("No claim is contradicted.")
    looked_at()

    for _ in range(9):  # the back button leads to the figures as they were
        if "estimate?" in page.url:
            break
        page.go_back()
    expect(page.locator("#result table")).to_have_text(re.compile("count"))
    assert page.locator("#result table").inner_text() == figures
    page.reload()
    assert page.locator("#result table").inner_text() == figures

    inside = (page.url.rpartition("/")[0], "file:")
    assert not [request.url for request in visit.requests if not request.url.startswith(inside)]
    assert not visit.problems
    assert len(list((folder / "project" / "releases").glob("1/disguised.csv"))) == 1


def test_two_tabs_a_phone_and_a_kill_lose_nothing(browser, tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    server = Server(tmp_path)
    first, second = (entered(browser, server, kind) for kind in (DESKTOP, PHONE))
    first.page.get_by_role("button", name="people.csv").click()
    expect(first.page.get_by_role("heading", name="Variables")).to_be_visible()
    for visit in (first, second):  # both show the policy before either changes it
        visit.page.goto(visit.page.url.partition("/data")[0] + "/policy")
    for visit, part in ((first, "#v1"), (second, "#v2")):
        by_hand = visit.page.locator(f"{part} details.change")
        if by_hand.count():
            by_hand.evaluate("(details) => { details.open = true; }")
        visit.page.locator(part).locator("input[name=clear_accepted]").check()
        visit.page.locator(part).get_by_role("button", name="Release in clear").click()
        expect(visit.page.locator(part)).to_contain_text("Released in clear:")
    expect(second.page.locator("#v1")).to_contain_text("Released in clear:")  # nothing of the other is lost
    settled(second).accessible()
    for _ in range(2):
        second.page.get_by_role("button", name="Undo").click()
    expect(second.page.locator("#v1 .danger")).to_have_count(0)

    base = first.page.url.rpartition("/")[0]
    first.page.goto(f"{base}/release")
    first.page.get_by_role("button", name="Disguise").click()
    expect(first.page.get_by_role("heading", name="Released", exact=True)).to_be_visible()
    asked = "estimate?do=count&by=smoker"
    first.page.goto(f"{base}/{asked}")
    expect(first.page.locator("#result table")).to_be_visible()
    settled(first)
    figures = first.page.locator("#result table").inner_text()
    second.page.goto(f"{base}/{asked}")
    settled(second).accessible()
    assert second.page.locator("#result table").inner_text() == figures
    before = (tmp_path / "project" / "steps.json").read_bytes()
    server.close(signal.SIGKILL)

    again = Server(tmp_path)
    try:
        back = entered(browser, again, DESKTOP)
        back.page.goto(back.page.url.rpartition("/")[0] + "/" + asked)
        assert settled(back).page.locator("#result table").inner_text() == figures
        assert (tmp_path / "project" / "steps.json").read_bytes() == before
    finally:
        again.close()
    for visit in (first, second, back):
        visit.context.close()


def test_the_draft_of_thirty_columns_states_the_person_first_and_its_costs(browser, tmp_path):
    names = [f"q{number}" for number in range(1, 31)]
    rows = [",".join("yes" if (row >> place % 7) & 1 else "no" for place in range(30)) for row in range(400)]
    (tmp_path / "thirty.csv").write_text("\n".join([",".join(names), *rows]), encoding="utf-8")
    server = Server(tmp_path)
    try:
        visit = entered(browser, server, PHONE)
        visit.page.get_by_role("button", name="thirty.csv").click()
        expect(visit.page.get_by_role("heading", name="Variables")).to_be_visible(timeout=PATIENCE)
        visit.page.get_by_role("link", name="Policy").click()
        expect(visit.page.locator("#person .lead")).to_have_text(
            "Someone who thought it 5% likely can think it at most 50% likely after seeing everything."
        )
        heads = visit.page.get_by_role("region", name="Costs").locator("thead")
        expect(heads).to_contain_text("ε = 5.00")
        expect(heads).to_contain_text("ε = 8.00")
        expect(visit.page.locator("#costs .danger")).to_contain_text("Not usable, wider than ±20 points")
        settled(visit).accessible()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        visit.page.emulate_media(media="print")
        expect(visit.page.locator("#costs details.change")).to_be_hidden()
        visit.context.close()
    finally:
        server.close()


def test_every_screen_is_accessible_on_a_phone_in_the_dark(browser, tmp_path):
    people(tmp_path)
    server = Server(tmp_path)
    visit = entered(browser, server, PHONE | {"color_scheme": "dark"})
    try:
        page, base = visit.page, visit.page.url.rpartition("/")[0]
        page.get_by_role("button", name="people.csv").click()
        expect(page.get_by_role("heading", name="Variables")).to_be_visible()
        page.goto(f"{base}/release")
        page.get_by_role("button", name="Disguise").click()
        expect(page.get_by_role("heading", name="Released", exact=True)).to_be_visible()
        for place in PLACES.values():
            page.goto(f"{base}/{place}")
            settled(visit).accessible()
            assert page.get_by_role("alert").count() == 0, place
        assert not visit.problems
    finally:
        visit.context.close()
        server.close()


VISIBLE = """(main) => {
  const count = (text) => text.split(/\\s+/).filter(Boolean).length;
  let words = count(main.innerText);
  for (const select of main.querySelectorAll("select")) {
    if (!select.checkVisibility()) continue;
    for (const option of select.options) if (!option.selected) words -= count(option.text);
  }
  return words;
}"""


@pytest.mark.parametrize(
    "rows", [pytest.param(None, marks=pytest.mark.slow), 2_000, pytest.param(200_000, marks=pytest.mark.slow)]
)
def test_five_clicks_from_a_file_to_percentages(browser, tmp_path, rows):
    """Nothing is typed, and every click is on what the page offers next.

    Somebody who reads every visible word of every page at 240 words a minute, before each click, is done in
    two minutes: with a file of two columns, and with one of forty.
    """
    if rows is None:
        (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    else:
        write_messy_survey(tmp_path / "people.csv", rows)
    smoker = "smoker" if rows is None else "smoker: yes/no?"
    patience = 10 * PATIENCE  # forty columns are drafted
    expect.set_options(timeout=patience)
    server = Server(tmp_path)
    visit = entered(browser, server, DESKTOP)
    hand, page, clicks, words = Mouse(visit), visit.page, 0, 0
    page.set_default_timeout(patience)
    for role, name in (
        ("button", "people.csv"),
        ("link", "Disguise the file"),
        ("button", "Disguise"),
        ("link", "Estimate from it"),
        ("link", smoker),
    ):
        main = page.locator("main")
        # what a second release would be is no warning about the first
        assert "Beyond the limit" not in main.inner_text()
        words += main.evaluate(VISIBLE)
        hand.press(role, name)
        settled(visit)
        clicks += 1
    expect(page.locator("#result caption")).to_contain_text(f"Shares of {smoker}")
    expect(page.locator("#result")).to_contain_text("yes")
    assert clicks == 5
    assert words <= MOST_WORDS
    visit.accessible()
    visit.context.close()
    server.close()
    expect.set_options(timeout=PATIENCE)


def test_a_column_of_dates_becomes_ages_by_mouse(browser, tmp_path):
    days = [f"{1950 + row % 50}-{1 + row % 12:02d}-{1 + row % 28:02d}" for row in range(600)]
    rows = [f"{day},{'yes' if place % 3 else 'no'}" for place, day in enumerate(days)]
    (tmp_path / "people.csv").write_text("\n".join(["born,smoker", *rows]), encoding="utf-8")
    server = Server(tmp_path)
    visit = entered(browser, server, DESKTOP)
    hand, page = Mouse(visit), visit.page
    hand.press("button", "people.csv")
    settled(visit)
    hand.press("link", "Policy")
    page.locator("#costs details.change").evaluate("(details) => { details.open = true; }")
    dates = page.get_by_role("combobox", name="Dates of born")
    dates.select_option(label="as an age today")
    page.get_by_role("combobox", name="born", exact=True).select_option("sensitive")
    hand.press("button", "Draft again")
    settled(visit).accessible()
    expect(page.locator("main")).to_contain_text("born")
    hand.press("link", "Policy")
    expect(page.get_by_role("heading", name="born", exact=True)).to_be_visible()
    page.locator("#costs details.change").evaluate("(details) => { details.open = true; }")
    assert "=age:" in dates.input_value()  # the choice is kept
    visit.context.close()
    server.close()


def test_one_click_omits_all_columns(browser, tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    server = Server(tmp_path)
    visit = entered(browser, server, DESKTOP)
    hand, page = Mouse(visit), visit.page
    hand.press("button", "people.csv")
    settled(visit)
    hand.press("link", "Policy")
    chooser = page.locator("#costs details.change")
    chooser.evaluate("(details) => { details.open = true; }")
    hand.press("button", "omitted")
    uses = page.locator("select[name=use]")
    assert {uses.nth(i).input_value() for i in range(uses.count())} == {"none"}
    hand.press("button", "sensitive")
    assert {uses.nth(i).input_value() for i in range(uses.count())} == {"sensitive"}
    visit.context.close()
    server.close()
