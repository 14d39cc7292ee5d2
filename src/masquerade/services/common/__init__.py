"""Common parts of all services: admission, limits, durable state, settings, start and stop.

- `service` answers requests, `server` runs it, and `jobs` handles each message once.
- `client` calls other services, which are `peers`; `problems` encodes errors as messages.
- `settings` has the models of settings files, which `settings_file` reads.
- `state` and `release_ledger` store data durably; `logs` writes log lines without data.
- `example_deployment` writes the files of an example deployment.

Modules are loaded on demand: import the module that you need.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
