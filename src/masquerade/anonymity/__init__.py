"""What a data owner does before anything is disguised or shown: nobody stands alone."""

from masquerade.anonymity.mgas import Bins, Groups, mgas, mgas_groups
from masquerade.anonymity.suppression import Suppression, open_repeated, suppress

__all__ = ["Bins", "Groups", "Suppression", "mgas", "mgas_groups", "open_repeated", "suppress"]
