"""An example survey: files that work unchanged, and synthetic respondents for a demonstration."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
from masquerade.survey.forms.information import consent_digest
from masquerade.survey.forms.questionnaire import UNKNOWN_CONSENT, UNKNOWN_CONTACT, Questionnaire
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.page import body_size

POLICY: Final = """\
masquerade: 1
# Limit for one person, over everything in their record: γ = 19 (ε = 2.94).
# Someone who thought it 5% likely can think it at most 50% likely after seeing everything.
# Design: one joint channel.
# Errors with 1,500 people (half-width of a 95% interval, points):
#                                   γ = 19    ε = 5.00    ε = 8.00
#   a share                          ± 4.2       ± 2.7       ± 2.5
#   a table of two variables         ± 3.7       ± 2.4       ± 2.2
title: Health at work
limit: {breach: 5%:50%}
clear: accepted  # age
variables:
  age: {categories: [under 30, 30 to 49, 50 or more]}
  pills: {categories: ["yes", "no"]}
  told: {categories: ["yes", "no"]}
  nights: {categories: [none, some, many]}
joint:
- variables: [pills, told, nights]
  channel: {kind: for_gamma, gamma: 19}
"""
SURVEY: Final = """\
masquerade_survey: 1
title: {{en: Health at work, de: Gesundheit bei der Arbeit}}
languages: [en, de]
policy: policy.yaml
collector: {address}
{issuer}contact:
  en: "Write here who runs this survey and how to reach them."
  de: "Schreiben Sie hier, wer diese Befragung durchführt und wie man Sie erreicht."
consent:
  en: |
    Four questions about health at work. Taking part is voluntary.

    We publish only how many people in all gave each answer.
  de: |
    Vier Fragen zur Gesundheit bei der Arbeit. Die Teilnahme ist freiwillig.

    Wir veröffentlichen nur, wie viele Menschen insgesamt welche Antwort gegeben haben.
agree:
  en: "I am 18 or older. I have read this page and want to take part."
  de: "Ich bin 18 oder älter. Ich habe diese Seite gelesen und möchte teilnehmen."
information:
  purpose:
    en: "We want to know how many people take medicines to be able to work, and how they sleep."
    de: "Wir möchten wissen, wie viele Menschen für die Arbeit Medikamente nehmen und wie sie schlafen."
  participants:
    en: "Write here whom you ask, how you reach them, and how many people you need."
    de: "Schreiben Sie hier, wen Sie fragen, wie Sie die Menschen erreichen und wie viele Sie brauchen."
  effort:
    en: "Two minutes. You are not paid. A question may bring up unpleasant memories."
    de: "Zwei Minuten. Sie bekommen kein Geld. Eine Frage kann unangenehme Erinnerungen wecken."
  benefits:
    en: "You have no advantage yourself. The results may help to make work healthier."
    de: "Sie selbst haben keinen Vorteil. Die Ergebnisse können helfen, Arbeit gesünder zu machen."
  legal_basis:
    en: "Your consent (Article 6(1)(a) and Article 9(2)(a) GDPR)."
    de: "Ihre Einwilligung (Artikel 6 Absatz 1 Buchstabe a und Artikel 9 Absatz 2 Buchstabe a DSGVO)."
  retention:
    en: "Write here how long you keep what people send, and why. Set delete_after to the last day."
    de: "Schreiben Sie hier, wie lange und warum Sie das Gesendete aufbewahren. Der letzte Tag: delete_after."
  rights:
    en: |
      You do not have to take part, and nothing happens if you do not. With your withdrawal code you can have
      what you sent deleted while the survey is open. Without the code we cannot tell which answers are yours.
      You can complain to a data protection authority.
    de: |
      Sie müssen nicht teilnehmen. Es hat keine Folgen, wenn Sie es nicht tun. Mit Ihrem Code können Sie
      löschen lassen, was Sie gesendet haben, solange die Befragung läuft. Ohne den Code wissen wir nicht,
      welche Antworten Ihre sind. Sie können sich bei einer Datenschutzbehörde beschweren.
  officer:
    en: "Write here how to reach your data protection officer."
    de: "Schreiben Sie hier, wie man Ihre Datenschutzbeauftragte oder Ihren Datenschutzbeauftragten erreicht."
closing:
  text: {{en: "Thank you for your time.", de: "Danke, dass Sie sich Zeit genommen haben."}}
  help:
    en: "Write here who helps people whom the questions worry, such as a helpline."
    de: "Schreiben Sie hier, wer hilft, wenn die Fragen belasten, zum Beispiel ein Sorgentelefon."
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
  text: {{en: "Does anyone at work know about it?", de: "Weiß jemand bei der Arbeit davon?"}}
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
TOGETHER: Final = 16  # synthetic people who send at the same time: the collector stores them in one write
_TRIES: Final = 20


def write_example(
    folder: Path,
    address: str,
    *,
    invited: bool = False,
    questionnaire: tuple[Questionnaire, str] | None = None,
    policy: Policy | None = None,
    copied: Survey | None = None,
) -> None:
    """Write a survey, its policy and the settings of its collector into a new folder.

    Parameters
    ----------
    folder : Path
        New folder.
    address : str
        Address of the collector.
    invited : bool
        True if only people with an invitation may answer.
    questionnaire : tuple of Questionnaire and str, optional
        Questions of another program's form, and the text of the policy file for them.
    policy : Policy, optional
        Policy whose variables are the questions.
    copied : Survey, optional
        Survey whose questions are copied, without its invitations and dates.

    Raises
    ------
    FileError
        If the folder exists.

    Notes
    -----
    Without a questionnaire, a policy and a survey, the files contain an example.
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
        form, chosen_policy = questionnaire
        survey = _to_yaml(form.survey_values(address, issuer))
    elif policy is not None:
        chosen_policy = policy_text.write(policy.to_dict(), "yaml")
        survey = _to_yaml(_survey_values(policy, address, issuer))
    elif copied is not None:
        chosen_policy = policy_text.write(copied.policy.to_dict(), "yaml")
        limits = {"issuer", "closes", "delete_after"}
        values = copied.spec.model_dump(exclude_unset=True, exclude=limits, by_alias=True)
        survey = _to_yaml({**values, "policy": "policy.yaml", "collector": address})
    else:
        chosen_policy = POLICY
        survey = SURVEY.format(address=address, issuer="" if issuer is None else f'issuer: "{issuer}"\n')
    write_whole(folder / "policy.yaml", chosen_policy)
    write_whole(folder / "survey.yaml", survey)
    chosen = port if address.startswith("http:") and port.isdecimal() else "8443"
    write_whole(folder / "collector.yaml", COLLECTOR.format(port=chosen, key=key))


def _survey_values(policy: Policy, address: str, issuer: str | None) -> dict[str, Any]:
    """Return the contents of a survey file whose questions are the names of a policy's variables."""
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


def _to_yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=110)


def answer_as_people(
    survey: Survey, address: str, people: int, progress: Callable[[int], object] = lambda _: None
) -> None:
    """Answer a survey as synthetic people: disguise each record, and send it as a page would.

    For variables that are not in the example, all categories are equally likely.

    Parameters
    ----------
    survey : Survey
        Survey without invitations.
    address : str
        Address of the collector.
    people : int
        Number of people.
    progress : callable
        Called after each report with the number of reports sent.

    Raises
    ------
    InputError
        If the collector does not accept a report.
    """
    policy, fresh = survey.policy, Keystream()
    nobody = np.zeros(people, dtype=np.uint8)
    codes = {}
    for name, variable in policy.schema.items():
        example = TRUE_SHARES.get(name, ())
        shares = example if len(example) == len(variable) else (1,) * len(variable)
        weights = np.array([shares], dtype=np.int64)
        codes[name] = draw(nobody, draw_table(np.arange(len(shares))[None], weights, len(shares)), fresh)
    for question in survey.questions:  # people who are not asked report `not_asked`
        if question.not_asked is not None:
            for name, admitted in question.shown.items():
                codes[question.name][~np.isin(codes[name], admitted)] = question.not_asked
    reports = disguise_codes(codes, policy, fresh_draws(fresh))
    rows = zip(*(reports[name].tolist() for name in policy.observed), strict=True)
    with (
        httpx.Client(base_url=address, trust_env=False, timeout=30.0) as http,
        ThreadPoolExecutor(TOGETHER) as pool,
    ):
        sending = pool.map(lambda row: _post(http, body_of(survey, row)), rows)
        for done, _ in enumerate(sending, start=1):
            progress(done)


def body_of(
    survey: Survey, codes: tuple[int, ...], *, token: str | None = None, name: str | None = None
) -> bytes:
    """Encode a report as a page sends it: JSON, padded to the length of all messages."""
    values: dict[str, Any] = {
        "policy": survey.policy.id,
        "id": name or secrets.token_hex(16),
        "mode": 0,
        "reports": list(codes),
        "token": token,
    }
    digest = consent_digest(survey.spec)
    if digest is not None:
        values["agreed"] = digest
    return json.dumps(values, separators=(",", ":")).encode().ljust(body_size(survey))


def _post(http: httpx.Client, body: bytes) -> None:
    for _ in range(_TRIES):
        try:
            reply = http.post("/v1/reports", content=body, headers={"Content-Type": "text/plain"})
        except httpx.TransportError:
            continue
        if reply.status_code == 200:
            return
    raise InputError("The collector does not accept the reports of the synthetic people.")
