"""A study of eight questions in German, from `survey init` to the report, as fieldwork does it.

One person answers by keyboard on a phone in the light, another by touch in the dark, then synthetic people.
Set SURVEY_PICTURES to a folder to keep a picture of every screen.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from tests.survey.browser import PHONE, Visit, running
from tests.survey.test_cli import run
from tests.survey.world import collecting

from masquerade.survey.collector.example import answer_as_people

GERMAN = PHONE | {"locale": "de-DE", "viewport": {"width": 360, "height": 740}, "reduced_motion": "reduce"}
YES_NO = {"yes": {"de": "Ja", "en": "Yes"}, "no": {"de": "Nein", "en": "No"}}
POLICY = {
    "masquerade": 1,
    "limit": {"breach": "5%:50%"},
    "clear": "accepted",
    "variables": {
        "age": {"categories": ["under 30", "30 to 49", "50 or more"]},
        "sport": {"categories": ["endurance", "team", "other"]},
        "doping": {"categories": ["yes", "no"]},
        "told": {"categories": ["yes", "no"]},
        "pain": {"categories": [1, 2, 3], "channel": {"kind": "for_gamma", "gamma": 2}},
        "nights": {"categories": ["none", "some", "many"], "channel": {"kind": "for_gamma", "gamma": 2}},
        "club": {"categories": ["yes", "no"]},
    },
    "joint": [{"variables": ["doping", "told"], "channel": {"kind": "for_gamma", "gamma": "19/4"}}],
}
QUESTIONS = [
    {"variable": "age", "type": "date", "date": {"from": 1940, "to": 2008, "bins": [30, 50]},
     "text": {"de": "Wann sind Sie geboren?", "en": "When were you born?"}},
    {"variable": "sport", "text": {"de": "Welchen Sport treiben Sie?", "en": "Which sport do you do?"},
     "answers": {"endurance": {"de": "Ausdauersport", "en": "Endurance"},
                 "team": {"de": "Mannschaftssport", "en": "Team sport"},
                 "other": {"de": "Anderen", "en": "Other"}}},
    {"variable": "doping", "answers": YES_NO,
     "caution": {"de": "Die nächste Frage ist heikel.", "en": "The next question is delicate."},
     "text": {"de": "Haben Sie im letzten Jahr verbotene Mittel genommen?",
              "en": "Did you take banned substances last year?"}},
    {"variable": "told", "answers": YES_NO, "show_if": {"doping": ["yes"]}, "not_asked": "no",
     "text": {"de": "Weiß Ihr Trainer davon?", "en": "Does your coach know?"}},
    {"variable": "pain", "type": "scale",
     "text": {"de": "Wie oft trainieren Sie mit Schmerzen?", "en": "How often do you train in pain?"},
     "answers": {1: {"de": "Nie", "en": "Never"}, 2: {"de": "Manchmal", "en": "Sometimes"},
                 3: {"de": "Oft", "en": "Often"}}},
    {"variable": "nights", "type": "number", "number": {"min": 0, "max": 7, "bins": [1, 4]},
     "text": {"de": "Wie viele Nächte haben Sie letzte Woche schlecht geschlafen?",
              "en": "How many nights did you sleep badly last week?"}},
    {"variable": "club", "answers": YES_NO,
     "text": {"de": "Sind Sie in einem Verein?", "en": "Are you in a club?"}},
    {"variable": "remarks", "type": "text", "clear": "accepted", "longest": 300,
     "text": {"de": "Möchten Sie uns noch etwas sagen?", "en": "Is there anything else?"}},
]  # fmt: skip
AGREE = {"de": "Ich bin 18 oder älter und nehme teil.", "en": "I am 18 or older and take part."}
WRITTEN = "Nein, danke für die Umfrage."
PEOPLE = 300


@pytest.fixture(scope="module")
def browser():
    with running() as (_, found):
        yield found


class Person(Visit):
    """A person at the page who may use only the keyboard, and whose screens are checked and pictured."""

    def __init__(self, context, url, name):
        super().__init__(context, url)
        self.name, self.number = name, 0

    def look(self, *, check=True):
        self.number += 1
        if check:
            self.accessible()
        folder = os.environ.get("SURVEY_PICTURES")
        if folder:
            self.page.screenshot(path=Path(folder) / f"{self.name}-{self.number:02}.png", full_page=True)
        return self

    def tab_to(self, selector):
        for _ in range(60):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("(s) => document.activeElement.matches(s)", selector):
                return self
        raise AssertionError(f"{selector}: the Tab key does not reach it")

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
        return self

    def next(self):
        self.page.get_by_role("button", name="Weiter", exact=True).click()
        return self


def by_keyboard(one):
    listed = one.page.get_by_role("listitem")
    assert listed.first.inner_text() == "Wann sind Sie geboren? (nur die Gruppe, zum Beispiel „unter 30“)"
    assert listed.nth(1).inner_text() == "Welchen Sport treiben Sie?"
    one.look().tab_to("[name=agree]").press("Space").tab_to("button.main").press("Enter")
    one.sees("Wann sind Sie geboren").look()
    form = one.page.locator("form").inner_text()  # the warning is read before the answers
    assert 0 < form.index("Gesendet wird nur die Gruppe, nicht die Zahl") < form.index("Weiter")
    one.tab_to("select[name=answer]").press("ArrowDown")
    one.press("Tab", "ArrowDown").tab_to("button.main").press("Enter").sees("Welchen Sport").look()
    one.tab_to("[name=answer]").press("Space", "Enter").sees("Vor der nächsten Frage").look()
    one.tab_to("button.main").press("Enter").sees("verbotene Mittel")
    one.tab_to("[name=answer]").press("Space").look()
    assert 'img "Das Glücksrad für' in one.page.locator("main").aria_snapshot()
    one.press("Enter").sees("Weiß Ihr Trainer").press("2").tab_to("[name=answer]").press("Enter")
    one.sees("Schmerzen").tab_to("[name=answer]").press("ArrowDown").look()
    one.press("Enter").sees("Nächte").tab_to("[name=answer]").press("4").look()
    one.page.get_by_text("Es zählt nur die Gruppe: 4 oder mehr.").wait_for()
    one.press("Enter").sees("Verein").tab_to("[name=answer]").press("Space", "Enter")
    one.sees("noch etwas sagen").tab_to("textarea").page.keyboard.type(WRITTEN)
    one.look().tab_to("button.main").press("Enter").sees("Ihre Antworten").look()
    one.page.get_by_text(WRITTEN).wait_for()
    one.tab_to("button.main").press("Enter").sees("Gesendet").look()


def in_the_dark(one):
    one.look().page.get_by_role("checkbox").first.check()
    one.page.get_by_role("button", name="Beginnen").click()
    one.sees("geboren").page.get_by_label("Monat").select_option("3")
    one.page.get_by_label("Jahr").select_option("1980")
    one.next().sees("Sport").page.get_by_label("Anderen").check()
    one.next().sees("Vor der").page.get_by_role("button", name="Weiter zur Frage").click()
    one.sees("verbotene").page.get_by_label("Nein").check()
    one.look().next().sees("Schmerzen").page.get_by_label("Nie").check()
    one.next().sees("Nächte").page.get_by_role("spinbutton").fill("0")
    one.page.get_by_text("Es zählt nur die Gruppe: 0.").wait_for()  # not "under 1"
    one.next().sees("Verein").page.get_by_label("Nein").check()
    one.next().sees("noch etwas").next().sees("Ihre Antworten").look()
    one.page.get_by_role("button", name="Endgültig absenden").click()
    one.sees("Gesendet").look()


def test_a_german_study_from_init_to_report(browser, tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"
    out.mkdir()
    run("init", work)
    (work / "policy.yaml").write_text(yaml.safe_dump(POLICY, sort_keys=False))
    values = yaml.safe_load((work / "survey.yaml").read_text()) | {
        "languages": ["de", "en"], "questions": QUESTIONS, "closes": "2027-06-30",
        "delete_after": "2030-12-31",
        "consent": {"de": "Acht Fragen zum Sport. Die Teilnahme ist freiwillig.",
                    "en": "Eight questions about sport. Taking part is voluntary."},
        "title": {"de": "Gesund im Sport", "en": "Healthy in sport"},
    }  # fmt: skip
    (work / "survey.yaml").write_text(yaml.safe_dump(values, allow_unicode=True, sort_keys=False))
    told = run("build", work / "survey.yaml", "--out", out / "page")
    assert "at most 50% likely after seeing everything" in told
    assert "sent word for word, as people write it: remarks" in told
    run("dossier", work / "survey.yaml", "--out", out / "dossier.html")
    settings = work / "collector.yaml"
    with collecting(work, agree=AGREE) as (collector, url, _):
        light, dark = (browser.new_context(**GERMAN, color_scheme=it) for it in ("light", "dark"))
        people = Person(light, url + "/", "light"), Person(dark, url + "/", "dark")
        by_keyboard(people[0])
        in_the_dark(people[1])
        assert [person.problems for person in people] == [[], []]
        assert collector.store.texts() == [("remarks", WRITTEN)]
        answer_as_people(collector.survey, url, PEOPLE)
        collector.publish()
        team = Person(dark, f"{url}/team#{(work / 'team.token').read_text().strip()}", "team")
        team.page.get_by_text("Nur gefragt, wer auf „Haben Sie im letzten Jahr").first.wait_for()
        team.page.get_by_text("Der Link ist offen").wait_for()
        team.look()
        shown = team.page.locator("main").inner_text()
        assert not {"reports", "Asked", "open until", "source"} & set(shown.split())
        assert "bis 30. Juni 2027" in shown
        run("close", settings)
    run("export", settings, "--out", out / "reports.csv", "--texts", out / "texts.csv")
    assert WRITTEN in (out / "texts.csv").read_text()
    assert WRITTEN not in (out / "reports.csv").read_text()
    run("report", settings, "--out", out / "bericht.html")
    for name in ("bericht", "dossier"):
        read = Person(light, f"file://{out}/{name}.html", name).look()
        text = read.page.locator("main").inner_text()
        assert "Haben Sie im letzten Jahr verbotene Mittel genommen?" in text
        assert not {"reports", "Asked", "share"} & set(text.split())
        if name == "bericht":
            assert f"{PEOPLE + 2} Meldungen" in text
            rows = read.page.locator("section", has_text="verbotene Mittel genommen?").first.locator("tr")
            check_share(rows.nth(1).inner_text(), 0.5)
    light.close()
    dark.close()


def check_share(row, truth):
    """Assert that an estimate is within six standard errors of the truth; false alarms below 1e-8."""
    numbers = [float(it.replace("−", "-").replace(",", ".")) for it in row.replace("%", "").split()
               if it[-1].isdigit()]  # fmt: skip
    share, low, high = numbers
    assert abs(share - 100 * truth) < 6 * (high - low) / (2 * 1.96) + 1
