"""Disguised reports from people's own devices, without a page: each device draws, and only the draw leaves.

An organisation publishes *terms*: who asks, what for, and by which chances reports are drawn, the same file
for everybody. A person's device draws the report of its own row by them, keeps what it drew in one file, and
sends that once to the collector of a survey, which cannot tell such a report from one of its pages:
`services.survey` keeps, counts and exports both. Ma (2006), Fig. 1.4.

The modules of a device (`terms`, `device_mechanism`, `participation`) need the standard library alone, and
for invitations a curve: no NumPy. `publication` writes terms, at the organisation.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
