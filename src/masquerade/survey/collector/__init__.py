"""The collector of a survey: it takes what pages drew, and never sees what people answered.

`collector` answers pages and the fieldwork team, `store` keeps reports and invitations apart, `settings` say
where; `export` writes what was collected, `figures` estimates it, `batches` and `publication` decide what is
shown of it while the survey is open, `example` is a whole survey.

What the collector learns: reports, by day, under which policy and by whose chance they were drawn.
Invitations are exchanged for blind tokens (RFC 9497): it knows who was invited and who asked for a token,
and that each report came with a token of its own, not with whose. No address and no time is kept or logged.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
