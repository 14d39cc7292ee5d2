"""What a data owner does before anything is disguised: grouping numbers so that nobody stands alone."""

from masquerade.anonymity.mgas import Bins, Groups, mgas, mgas_groups

__all__ = ["Bins", "Groups", "mgas", "mgas_groups"]
