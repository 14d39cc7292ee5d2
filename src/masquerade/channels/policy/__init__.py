"""Policies: schema and channels of a data set, their file, and their privacy measures."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.channels.policy.group import Group as Group
    from masquerade.channels.policy.policy import Policy as Policy
    from masquerade.channels.policy.policy import check_policy as check_policy
    from masquerade.channels.policy.policy import policy_of as policy_of

__getattr__, __dir__, __all__ = lazy_exports(__name__)
