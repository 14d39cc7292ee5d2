"""What every service shares: who may speak to it, what it takes and keeps, how it starts and stops.

`service` is what answers, `server` runs it, `jobs` work on each message once; `client` calls other services,
who are `peers`; `problems` cross between them. `settings`, read by `settings_file`, say what a node is;
`state` and `release_ledger` what it remembers, `logs` what it tells;
`example_deployment` writes a whole deployment to try out. Nothing is loaded before it is asked for:
import the module that you need.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
