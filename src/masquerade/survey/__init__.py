"""Surveys whose answers are disguised on the respondent's own device, before anything leaves it.

A *survey file* contains the questions and names the policy. `build` turns it into one self-contained page,
with the exact sampler of `masquerade.disguising` in JavaScript, and the files to check and print with it.
`masquerade.survey.collector` collects the reports that such pages send.
"""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.disguising.report_draws import disguise_codes as disguise_codes
    from masquerade.survey.collector.example import answer_as_people as answer_as_people
    from masquerade.survey.forms.survey_file import Survey as Survey
    from masquerade.survey.page.mechanism import panel_draws as panel_draws
    from masquerade.survey.page.mechanism import panel_key as panel_key
    from masquerade.survey.page.page import build as build

__getattr__, __dir__, __all__ = lazy_exports(__name__)
