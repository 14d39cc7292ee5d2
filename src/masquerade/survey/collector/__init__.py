"""The collector of a survey: it stores the reports that pages drew, not the answers that they disguise.

`collector` serves pages and the fieldwork team. `store` keeps reports and invitations apart, in the places
that `settings` name. `export` writes the reports to a file, `figures` computes estimates, and `batches` and
`publication` decide what is shown while the survey is open. `example` writes a complete survey.

The collector learns the reports, and the policy and the mode (the source of randomness) of each report.
Invitations are exchanged for blind tokens (RFC 9497): the collector knows who was invited and who requested a
token. It knows that each report came with a token of its own, not whose token it was. It counts reports by
day, and neither stores nor logs addresses or times.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
