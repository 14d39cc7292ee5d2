"""Audit: prove a mechanism, attack a release, say what an attacker really gets."""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.audit.enumeration import audit_policy as audit_policy
    from masquerade.audit.findings import Audit as Audit
    from masquerade.audit.findings import AuditTable as AuditTable
    from masquerade.audit.findings import Finding as Finding

__getattr__, __dir__, __all__ = lazy_exports(__name__)
