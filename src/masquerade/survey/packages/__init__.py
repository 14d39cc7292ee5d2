"""Packages for other survey tools: LimeSurvey, SurveyJS, and ODK with its relatives."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
