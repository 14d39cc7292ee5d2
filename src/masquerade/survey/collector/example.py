"""A survey to begin with: files that work as they are, and made-up respondents for a demonstration."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import yaml

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_new, write_whole
from masquerade.crypto import oprf
from masquerade.crypto.keys import new_token
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.report_draws import disguise_codes, fresh_draws
from masquerade.kernels.draw import draw, draw_table
from masquerade.survey.forms.questionnaire import UNKNOWN_CONSENT, UNKNOWN_CONTACT, Questionnaire
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.page import body_size

POLICY: Final = """\
masquerade: 1
title: Health at work
variables:
  age: {categories: [under 30, 30 to 49, 50 or more]}
  pills: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  told: {categories: ["yes", "no"], channel: {kind: binary, p: 0.25}}
  nights: {categories: [none, some, many], channel: {kind: symmetric, p: 0.3}}
"""
SURVEY: Final = """\
masquerade_survey: 1
title: {{en: Health at work, de: Gesundheit bei der Arbeit}}
languages: [en, de]
policy: policy.yaml
collector: {address}
{issuer}contact:
  en: "Put here who asks, and how they can be reached."
  de: "Schreiben Sie hierher, wer fragt und wie man sie erreicht."
consent:
  en: |
    Four questions about health at work, two minutes. Taking part is voluntary.

    Results are published as shares of all who answered.
  de: |
    Vier Fragen zur Gesundheit bei der Arbeit, zwei Minuten. Die Teilnahme ist freiwillig.

    Veröffentlicht werden Anteile aller, die geantwortet haben.
questions:
- variable: age
  text: {{en: "How old are you?", de: "Wie alt sind Sie?"}}
  answers:
    under 30: {{en: Under 30, de: Unter 30}}
    30 to 49: {{en: 30 to 49, de: 30 bis 49}}
    50 or more: {{en: 50 or more, de: 50 oder älter}}
- variable: pills
  text:
    en: "In the last 12 months, did you take medicines to be able to work?"
    de: "Haben Sie in den letzten 12 Monaten Medikamente genommen, um arbeiten zu können?"
  help: {{en: "Painkillers, stimulants, tranquillisers.", de: "Schmerz-, Aufputsch- oder Beruhigungsmittel."}}
  answers: {{"yes": {{en: "Yes", de: Ja}}, "no": {{en: "No", de: Nein}}}}
- variable: told
  text: {{en: "Does anybody at work know of it?", de: "Weiß jemand bei der Arbeit davon?"}}
  answers: {{"yes": {{en: "Yes", de: Ja}}, "no": {{en: "No", de: Nein}}}}
  show_if: {{pills: ["yes"]}}
  not_asked: "no"
- variable: nights
  text:
    en: "How many nights of the last week did you sleep badly because of work?"
    de: "Wie viele Nächte der letzten Woche haben Sie wegen der Arbeit schlecht geschlafen?"
  answers:
    none: {{en: None, de: Keine}}
    some: {{en: One to three, de: Eine bis drei}}
    many: {{en: Four or more, de: Vier oder mehr}}
"""
COLLECTOR: Final = """\
masquerade: 1
survey: survey.yaml
listen: {{port: {port}}}
state: collected
team_token: team.token
{key}"""
TRUE_SHARES: Final = {"age": (25, 45, 30), "pills": (30, 70), "told": (10, 90), "nights": (50, 35, 15)}
_TRIES: Final = 20


def write_example(
    folder: Path,
    address: str,
    *,
    invited: bool = False,
    questionnaire: Questionnaire | None = None,
    policy: Policy | None = None,
    copied: Survey | None = None,
) -> None:
    """Write a survey with its policy and the settings of its collector into a new folder.

    It asks what a questionnaire of another program asks, or for the variables of a policy, or what another
    survey asks, of anybody and at any time; without them it is an example.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise FileError(f"{folder}: exists already; name a new folder.") from None
    issuer, key = None, ""
    if invited:
        made = oprf.random_key()
        write_new(
            folder / "token.key", ristretto255.encode_scalar(made.secret.reveal()).hex() + "\n", what="a key"
        )
        issuer, key = made.public.encode().hex(), "token_key: token.key\n"
    write_new(folder / "team.token", new_token() + "\n", what="a token")
    port = address.rpartition(":")[2]
    if questionnaire is not None:
        chosen_policy = policy_text.write(questionnaire.policy_values(), "yaml")
        survey = _written(questionnaire.survey_values(address, issuer))
    elif policy is not None:
        chosen_policy = policy_text.write(policy.to_dict(), "yaml")
        survey = _written(_survey_values(policy, address, issuer))
    elif copied is not None:
        chosen_policy = policy_text.write(copied.policy.to_dict(), "yaml")
        limits = {"issuer", "closes", "delete_after"}
        asked = copied.spec.model_dump(exclude_unset=True, exclude=limits)
        survey = _written({**asked, "policy": "policy.yaml", "collector": address})
    else:
        chosen_policy = POLICY
        survey = SURVEY.format(address=address, issuer="" if issuer is None else f'issuer: "{issuer}"\n')
    write_whole(folder / "policy.yaml", chosen_policy)
    write_whole(folder / "survey.yaml", survey)
    chosen = port if address.startswith("http:") and port.isdecimal() else "8443"
    write_whole(folder / "collector.yaml", COLLECTOR.format(port=chosen, key=key))


def _survey_values(policy: Policy, address: str, issuer: str | None) -> dict[str, Any]:
    """Return a survey file that asks for a policy's variables by their names."""
    return {
        "masquerade_survey": 1,
        "title": policy.to_dict().get("title") or "Reports",
        "policy": "policy.yaml",
        "collector": address,
        **({} if issuer is None else {"issuer": issuer}),
        "contact": UNKNOWN_CONTACT,
        "consent": UNKNOWN_CONSENT,
        "questions": [{"variable": name, "text": name} for name in policy.schema],
    }


def _written(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=110)


def answer_as_people(
    survey: Survey, address: str, people: int, progress: Callable[[int], object] = lambda _: None
) -> None:
    """Let made-up people answer: each disguised by itself, sent as a page would send it.

    What is not asked in the example is answered by all categories alike.
    """
    policy, fresh = survey.policy, Keystream()
    nobody = np.zeros(people, dtype=np.uint8)
    codes = {}
    for name, variable in policy.schema.items():
        known = TRUE_SHARES.get(name, ())
        shares = known if len(known) == len(variable) else (1,) * len(variable)
        weights = np.array([shares], dtype=np.int64)
        codes[name] = draw(nobody, draw_table(np.arange(len(shares))[None], weights, len(shares)), fresh)
    for question in survey.questions:  # whoever is not asked answers all the same
        if question.not_asked is not None:
            for name, admitted in question.shown.items():
                codes[question.name][~np.isin(codes[name], admitted)] = question.not_asked
    reports = disguise_codes(codes, policy, fresh_draws(fresh))
    rows = zip(*(reports[name].tolist() for name in policy.observed), strict=True)
    with httpx.Client(base_url=address, trust_env=False, timeout=30.0) as http:
        for done, row in enumerate(rows, start=1):
            _post(http, body_of(survey, row))
            progress(done)


def body_of(
    survey: Survey, codes: tuple[int, ...], *, token: str | None = None, name: str | None = None
) -> bytes:
    """Return what a page sends for a report."""
    values = {
        "policy": survey.policy.id,
        "id": name or secrets.token_hex(16),
        "mode": 0,
        "reports": list(codes),
        "token": token,
    }
    return json.dumps(values, separators=(",", ":")).encode().ljust(body_size(survey))


def _post(http: httpx.Client, body: bytes) -> None:
    for _ in range(_TRIES):
        try:
            reply = http.post("/v1/reports", content=body, headers={"Content-Type": "text/plain"})
        except httpx.TransportError:
            continue
        if reply.status_code == 200:
            return
    raise InputError("The collector does not take the reports of made-up people.")
