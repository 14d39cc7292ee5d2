"""Disguised reports from people's own devices, without a page: each device draws, and only the draw leaves.

An organisation publishes *terms*, the same file for all people: who asks, what for, and the probabilities of
reports. A person's device draws the report of its own row by the terms, stores it in one file, and sends it
once to the collector of a survey. The collector cannot distinguish it from the report of a page, and stores,
counts and exports both (`survey.collector`). Ma (2006), Fig. 1.4.

The modules of a device (`terms`, `device_mechanism`, `participation`) need only the standard library, and an
elliptic curve for invitations: no NumPy. The organisation writes the terms with `publication`.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
