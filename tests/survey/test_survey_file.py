"""The survey file: what it holds, and all that is wrong with it at once."""

from __future__ import annotations

import copy

import pytest
import yaml
from tests.survey.world import change, example

from masquerade.core.errors import InputError
from masquerade.survey import Survey
from masquerade.survey.collector.example import write_example
from masquerade.survey.forms.survey_file import OWN_LANGUAGES, own_words

GOOD = {
    "masquerade_survey": 1,
    "title": "T",
    "policy": "policy.yaml",
    "collector": "https://survey.example.org",
    "contact": "C",
    "consent": "We ask.",
    "questions": [
        {"variable": "a", "text": "A?", "answers": {"yes": "Yes", "no": "No"}},
        {"variable": "b", "text": "B?", "show_if": {"a": ["yes"]}, "not_asked": "no"},
    ],
}
POLICY = """
masquerade: 1
variables:
  a: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  b: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
"""


def loaded(folder, change=dict, policy=POLICY):
    values = copy.deepcopy(GOOD)
    change(values)
    (folder / "policy.yaml").write_text(policy)
    (folder / "survey.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return Survey.load(folder / "survey.yaml")


def test_a_survey_has_words_in_every_language(tmp_path):
    write_example(tmp_path / "work", "https://survey.example.org:8443", invited=True)
    survey = Survey.load(tmp_path / "work" / "survey.yaml")
    assert survey.languages == ("en", "de")
    pills, told = survey.questions[1:3]
    assert pills.answers == {"en": ("Yes", "No"), "de": ("Ja", "Nein")}
    assert (told.shown, told.not_asked) == ({"pills": (0,)}, 1)
    assert survey.words["de"]["next"] == "Weiter"
    assert len(survey.spec.issuer) == 64


def test_a_page_that_disguises_nothing_promises_nothing(tmp_path):
    with pytest.raises(InputError, match="nothing is disguised"):
        loaded(tmp_path, policy=POLICY.replace(", channel: {kind: binary, p: 0.25}", ""))


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    def change(values):
        values |= {"collector": "http://elsewhere.org", "closes": "soon", "languages": ["en", "xx"]}
        values["title"] = {"en": "T"}
        values["questions"][0] |= {"variable": "aa"}
        values["questions"][1] |= {"not_asked": "maybe", "answers": {"perhaps": "P"}}

    with pytest.raises(InputError) as told:
        loaded(tmp_path, change)
    for part in ("collector:", "closes:", "title: has no text in 'xx'", "words.xx: these texts are missing",
                 "questions.0.variable: the policy has no variable 'aa'", "questions.1.not_asked",
                 "questions.1.answers: 'perhaps'", "questions.1.show_if.a: must be a question before",
                 "these are not: a"):  # fmt: skip
        assert part in str(told.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda v: v.pop("title"), "title: is missing"),
        (lambda v: v.update(colour="red"), "colour: is not a known key"),
        (lambda v: v.update(order="any"), "order: must be"),
        (lambda v: v.update(title={"en": 3}), "title.*must be text"),
        (lambda v: v["questions"][1].pop("not_asked"), "go together"),
        (lambda v: v.update(order="random"), "needs 'order: fixed'"),
        (lambda v: v.update(panel=True, own_chance=True), "choose one"),
        (lambda v: v["questions"].append({"variable": "a", "text": "again"}), "asked twice"),
        (lambda v: v.update(words={"en": {"nxt": "x"}}), "Did you mean 'next'"),
        (lambda v: v.update(own_chance=True), "own_chance: .*show_if"),
        (lambda v: v.update(masquerade_survey=2), "not a survey"),
        (lambda v: v.update(policy="none.yaml"), "none.yaml"),
    ],
)
def test_what_is_wrong_is_said_where(tmp_path, change, told):
    with pytest.raises(InputError, match=told):
        loaded(tmp_path, change)


def test_dealt_questions_have_no_conditions(tmp_path):
    blocks = (
        POLICY.replace(", channel: {kind: binary, p: 0.25}", "")
        + "blocks: [{variables: [a, b], k: 1, gamma: 3}]"
    )
    with pytest.raises(InputError, match="dealt in blocks have no conditions"):
        loaded(tmp_path, policy=blocks)


def test_a_stratum_is_asked_before_what_it_decides(tmp_path):
    strata = POLICY.replace("  b:", "  s: {categories: [n, s]}\n  b:") + (
        "strata: {by: s, channels: {n: {a: {kind: binary, p: 0.1}}}}"
    )
    with pytest.raises(InputError, match="ask it before"):
        loaded(tmp_path, lambda v: v["questions"].append({"variable": "s", "text": "S?"}), strata)


@pytest.mark.parametrize("language", OWN_LANGUAGES)
def test_our_languages_say_everything(language):
    english, own = own_words("en"), own_words(language)
    assert own.keys() == english.keys()
    for name, text in english.items():
        assert sorted(part.split("}")[0] for part in text.split("{")[1:]) == sorted(
            part.split("}")[0] for part in own[name].split("{")[1:]
        )


def test_a_policy_outside_the_survey_s_folder_is_not_opened(tmp_path):
    """A survey file that came from somebody else names no other files of this machine."""
    example(tmp_path / "own")
    example(tmp_path / "other")
    (tmp_path / "own" / "link.yaml").symlink_to(tmp_path / "other" / "policy.yaml")
    for place in ("../other/policy.yaml", str(tmp_path / "other" / "policy.yaml"), "link.yaml"):
        change(tmp_path / "own" / "survey.yaml", policy=place)
        with pytest.raises(InputError, match="in or below the folder of the survey"):
            Survey.load(tmp_path / "own" / "survey.yaml")
    change(tmp_path / "own" / "survey.yaml", policy="./policy.yaml")
    Survey.load(tmp_path / "own" / "survey.yaml")
