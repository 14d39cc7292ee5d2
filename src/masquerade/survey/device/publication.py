"""Writing terms: a survey as devices take part in it; the same survey gives the same bytes everywhere."""

from __future__ import annotations

import json
from typing import Any

from masquerade.core.errors import InputError
from masquerade.survey.device.terms import FORMAT, Terms
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.mechanism import mechanism
from masquerade.survey.page.page import body_size


def terms_text(survey: Survey, authority: str | None = None) -> str:
    """Return the terms of a survey, the same text for everybody, in the survey's first language.

    `authority` is who signs the collector's certificate (PEM), unless every device knows them.
    """
    spec, policy, first = survey.spec, survey.policy, survey.languages[0]
    if spec.panel:
        raise InputError(
            "panel: the draws of a panel follow from a recovery code that its page shows; a device keeps its "
            "report instead. Leave 'panel' out."
        )
    values: dict[str, Any] = {
        "masquerade_gather": FORMAT,
        "title": survey.text(spec.title)[first],
        "contact": survey.text(spec.contact)[first],
        "consent": survey.text(spec.consent)[first],
        "closes": spec.closes,
        "delete_after": spec.delete_after,
        "collector": spec.collector,
        "authority": authority,
        "issuer": spec.issuer,
        "policy": policy.id,
        "questions": [
            {"name": one.name, "text": one.text[first], "labels": list(policy.schema[one.name].categories),
             "shown": {name: list(codes) for name, codes in one.shown.items()}, "not_asked": one.not_asked}
            for one in survey.questions
        ],
        "report_sizes": [len(variable) for variable in policy.observed.variables],
        "mechanism": mechanism(policy),
        "size": body_size(survey),
    }  # fmt: skip
    text = json.dumps(values, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    Terms.parse(text)
    return text
