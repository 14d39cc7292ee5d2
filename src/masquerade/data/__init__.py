"""Public data by name: from a directory, the cache, an installed package or their origin."""

from masquerade.data.description import describe, names
from masquerade.data.load import load, network, path

__all__ = ["describe", "load", "names", "network", "path"]
