"""The wire format: strict encoding of messages, sessions over a transport, durable storage."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
