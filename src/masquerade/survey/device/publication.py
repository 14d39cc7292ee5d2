"""Writer of terms for devices; the same survey gives the same bytes everywhere."""

from __future__ import annotations

import json
from typing import Any

from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.survey.device.terms import AGREED, FORMAT, DeviceTerms
from masquerade.survey.forms.information import consent_digest
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.mechanism import mechanism
from masquerade.survey.page.page import body_size


def terms_text(survey: Survey, authority: str | None = None) -> str:
    """Return the terms of a survey as text, in the survey's first language.

    `authority` is the certificate (PEM) of the CA that signed the collector's certificate; omit it if devices
    trust this CA already.
    """
    spec, policy, first = survey.spec, survey.policy, survey.languages[0]
    if spec.panel:
        raise InputError(
            "panel: the draws of a panel depend on a recovery code that its page shows, while a device "
            "stores its report. Omit 'panel'."
        )
    values: dict[str, Any] = {
        "masquerade_gather": FORMAT,
        "title": survey.text(spec.title)[first],
        "contact": survey.text(spec.contact)[first],
        "consent": "\n\n".join(survey.text(it)[first].strip() for it in (spec.consent, spec.agree) if it),
        "closes": spec.closes,
        "delete_after": spec.delete_after,
        "collector": spec.collector,
        "authority": authority,
        "issuer": spec.issuer,
        "policy": policy.id,
        "questions": [
            {"name": one.name, "text": one.text[first], "labels": list(policy.schema[one.name].categories),
             "shown": {name: list(codes) for name, codes in one.shown.items()}, "not_asked": one.not_asked,
             **_missing_codes(policy.schema[one.name])}
            for one in survey.questions
        ],
        "report_sizes": [len(variable) for variable in policy.observed.variables],
        "mechanism": mechanism(policy),
        "size": body_size(survey),
        **({} if spec.agree is None else {AGREED: consent_digest(spec)}),
    }  # fmt: skip
    text = json.dumps(values, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    DeviceTerms.parse(text)
    return text


def _missing_codes(variable: Variable) -> dict[str, list[int]]:
    """Return the codes of missing answers; the first is used if no answer is given."""
    codes = [variable.code(label) for label in variable.missing]
    return {"missing": codes} if codes else {}
