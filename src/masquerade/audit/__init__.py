"""Audits: prove a sampler, attack a release, and measure what an attacker learns."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.audit.attacker import Success as Success
    from masquerade.audit.attacker import attack as attack
    from masquerade.audit.canaries import read_canaries as read_canaries
    from masquerade.audit.canary_key import Canaries as Canaries
    from masquerade.audit.canary_key import make_canaries as make_canaries
    from masquerade.audit.coalitions import audit_coalitions as audit_coalitions
    from masquerade.audit.differencing import audit_answers as audit_answers
    from masquerade.audit.differencing import audit_states as audit_states
    from masquerade.audit.enumeration import audit_policy as audit_policy
    from masquerade.audit.findings import Audit as Audit
    from masquerade.audit.findings import AuditTable as AuditTable
    from masquerade.audit.findings import Finding as Finding
    from masquerade.audit.foreign import foreign_sampler as foreign_sampler
    from masquerade.audit.known_columns import audit_known_columns as audit_known_columns
    from masquerade.audit.noise.black_box import NoiseAudit as NoiseAudit
    from masquerade.audit.noise.black_box import audit_noise as audit_noise
    from masquerade.audit.release import audit_release as audit_release
    from masquerade.audit.sampler import audit_sampler as audit_sampler

__getattr__, __dir__, __all__ = lazy_exports(__name__)
