"""Common parts of all services: admission, limits, durable state, settings, start and stop.

- `service` answers requests, `server` runs it, and `jobs` handles each message once.
- `client` calls other services, which are `peers`; `problems` are errors on the wire.
- `settings`, read by `settings_file`, describe a node.
- `state` and `release_ledger` are durable; `logs` writes log lines without data.
- `example_deployment` writes a deployment to try out.

Modules are loaded on demand: import the module that you need.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
