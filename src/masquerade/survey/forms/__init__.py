"""Survey files and questionnaires of other programs: SurveyJS, XLSForm, LimeSurvey."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
