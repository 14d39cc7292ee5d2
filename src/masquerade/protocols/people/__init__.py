"""What protects people across rounds, whatever protocol counts them.

A person's device keeps one `ledger` for good: what has left it (`history`), which reports were drawn for its
record (`reports`). Who is enrolled is a `roster`; what may be asked are `questions`. `history` also says when
two answers together would tell about few people; `checks` remember what was checked.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
