"""Public data by name: from a directory, the cache, an installed package or their origin."""

from masquerade.data.describing import describe, names
from masquerade.data.loading import load, network, path

__all__ = ["describe", "load", "names", "network", "path"]
