"""Audit: prove a mechanism, attack a release, say what an attacker really gets."""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.audit.coalitions import audit_coalitions as audit_coalitions
    from masquerade.audit.differencing import audit_answers as audit_answers
    from masquerade.audit.differencing import audit_states as audit_states
    from masquerade.audit.enumeration import audit_policy as audit_policy
    from masquerade.audit.findings import Audit as Audit
    from masquerade.audit.findings import AuditTable as AuditTable
    from masquerade.audit.findings import Finding as Finding
    from masquerade.audit.known_columns import audit_known_columns as audit_known_columns

__getattr__, __dir__, __all__ = lazy_exports(__name__)
