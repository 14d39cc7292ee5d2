"""The survey file: what it holds, and all that is wrong with it at once."""

from __future__ import annotations

import copy
import os

import pytest
import yaml
from tests.survey.world import change, example

from masquerade.core.errors import InputError
from masquerade.core.record_gamma import FollowUp
from masquerade.survey import Survey
from masquerade.survey.collector.example import write_example
from masquerade.survey.device.participation import Participation
from masquerade.survey.device.publication import terms_text
from masquerade.survey.device.terms import DeviceTerms
from masquerade.survey.forms.survey_file import OWN_LANGUAGES, own_words
from masquerade.survey.page.page import page_values

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
    with pytest.raises(InputError, match="disguises nothing"):
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
                 "questions.1.answers: 'perhaps'", "questions.1.show_if.a: must be an earlier question",
                 "these have none: a"):  # fmt: skip
        assert part in str(told.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda v: v.pop("title"), "title: is missing"),
        (lambda v: v.update(colour="red"), "colour: is not a known key"),
        (lambda v: v.update(order="any"), "order: must be"),
        (lambda v: v.update(title={"en": 3}), "title.*must be text"),
        (lambda v: v["questions"][1].pop("not_asked"), "need each other"),
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


def test_a_dealt_follow_up_is_in_one_unit_with_its_question(tmp_path):
    plain = POLICY.replace(", channel: {kind: binary, p: 0.25}", "") + '  c: {categories: ["yes", "no"]}\n'

    def more(values):
        values["questions"].append({"variable": "c", "text": "C?"})

    with pytest.raises(InputError, match=r"not everyone is asked 'a'. .* write \[a, b\]"):
        loaded(tmp_path, more, plain + "blocks: [{variables: [a, b, c], k: 1, gamma: 3}]")
    survey = loaded(tmp_path, more, plain + "blocks: [{variables: [[a, b], c], k: 1, gamma: 3}]")
    assert survey.follow_ups == (FollowUp("b", {"a": (0,)}, 1),)
    assert survey.record_gamma == 3


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("blocks: [{variables: [[a, b], c], k: 1, gamma: 19}]", None),
        ("joint: [{variables: [a, b, c], channel: {kind: for_gamma, gamma: 19}}]", None),
        ("blocks: [{variables: [a, b, c], k: 1, gamma: 3, cells: 1/2}]", "differences between answers"),
        ("blocks: [{variables: [[a, b], c], k: 2, epsilon: 2.9}]", "too fine for dice"),
        ("joint: [{variables: [b, c], channel: {kind: for_gamma, gamma: 19}}]", "cannot apply show_if"),
    ],
)
def test_sheets_draw_for_questions_that_are_disguised_together(tmp_path, policy, told):
    plain = POLICY.replace(", channel: {kind: binary, p: 0.25}", "") + '  c: {categories: ["yes", "no"]}\n'

    def more(values):
        values["questions"].append({"variable": "c", "text": "C?"})
        values["own_chance"] = True

    if told is None:
        assert loaded(tmp_path, more, plain + policy).spec.own_chance
    else:
        with pytest.raises(InputError, match=told):
            loaded(tmp_path, more, plain + policy)


def test_a_stratum_is_asked_before_what_it_decides(tmp_path):
    strata = POLICY.replace("  b:", "  s: {categories: [n, s]}\n  b:") + (
        "strata: {by: s, channels: {n: {a: {kind: binary, p: 0.1}}}}"
    )
    with pytest.raises(InputError, match="ask it earlier"):
        loaded(tmp_path, lambda v: v["questions"].append({"variable": "s", "text": "S?"}), strata)


@pytest.mark.parametrize("language", OWN_LANGUAGES)
def test_our_languages_say_everything(language):
    english, own = own_words("en"), own_words(language)
    assert own.keys() == english.keys()
    for name, text in english.items():
        assert sorted(part.split("}")[0] for part in text.split("{")[1:]) == sorted(
            part.split("}")[0] for part in own[name].split("{")[1:]
        )


@pytest.mark.parametrize(
    "name", ["zero\0.yaml", "circle.yaml", "n" * 5000 + ".yaml", "folder.yaml", "pipe.yaml"]
)
def test_a_policy_that_is_no_file_is_refused(tmp_path, name):
    """Before, a zero byte or a circle of links was an internal error, and a pipe was waited for."""
    (tmp_path / "circle.yaml").symlink_to(tmp_path / "circle.yaml")
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InputError, match="in or below the folder of the survey"):
        loaded(tmp_path, lambda values: values.update(policy=name))


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


def clear_follow_up(accepted=()):
    """Return a change of the survey: whoever answers yes to a is asked b, whose answer is sent in clear."""

    def change(values):
        values["questions"][1] |= {"reveals": list(accepted)} if accepted else {}

    return change


ONE_IN_CLEAR = """
masquerade: 1
variables:
  a: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  b: {categories: ["yes", "no"]}
"""


def test_a_follow_up_in_clear_gives_its_question_away_and_is_refused_unless_named(tmp_path):
    """The attack: b = yes is only sent by people who answered yes to a, whose γ is 3 on paper."""
    with pytest.raises(InputError, match=r"'b' is sent in clear, and reveals .* 'a'.*reveals: \[a\]"):
        loaded(tmp_path, policy=ONE_IN_CLEAR)
    with pytest.raises(InputError, match=r"questions.1.reveals: 'a' is not revealed"):
        loaded(tmp_path, clear_follow_up(["a"]))  # both are disguised: there is nothing to accept
    survey = loaded(tmp_path, clear_follow_up(["a"]), ONE_IN_CLEAR)
    assert (survey.revealed_variables, survey.clear_variables) == (("a",), ("b", "a"))
    shown = page_values(survey)["questions"]
    assert all("bound" not in question for question in shown)  # the page lists both as sent in clear


def test_a_device_names_what_a_follow_up_in_clear_gives_away(tmp_path):
    survey = loaded(tmp_path, clear_follow_up(["a"]), ONE_IN_CLEAR)
    terms = DeviceTerms.parse(terms_text(survey))
    assert terms.clear_variables == ("b", "a")
    with pytest.raises(InputError, match=r"these terms send a in clear"):
        Participation(terms, tmp_path / "mine").draw({"a": "yes", "b": "no"}, clear=("b",))


def test_follow_ups_of_follow_ups_give_all_before_them_away(tmp_path):
    policy = POLICY + '  c: {categories: ["yes", "no"]}\n'
    third = {"variable": "c", "text": "C?", "show_if": {"b": ["yes"]}, "not_asked": "no"}
    with pytest.raises(InputError, match=r"(?s)reveals: \[b\].*reveals: \[a\]"):
        loaded(tmp_path, lambda values: values["questions"].append(third), policy)
