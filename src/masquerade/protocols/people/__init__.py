"""Protection of people across rounds, whatever protocol counts them.

A person's device permanently keeps one `ledger`: the answers that it has sent (`history`), and the reports
drawn for its record (`reports`). A `roster` lists who is enrolled; `questions` are what may be asked.
`history` also decides when two answers together would be about too few people; `checks` caches the
results of checks.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
