"""masquerade: learn from data nobody is allowed to see.

Every privacy technology is a way to answer counting questions; every learner is a function from answers to a
model. Names are loaded when they are first used, so that importing the package stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from masquerade import anonymity, channels, data, evaluate, learn
    from masquerade.channels.channel import Channel
    from masquerade.channels.policy import Policy
    from masquerade.channels.privacy import privacy
    from masquerade.core.covariance import Covariance
    from masquerade.core.errors import MasqueradeError, QueryRefused, Refusal
    from masquerade.core.guarantee import Guarantee
    from masquerade.core.query import Query
    from masquerade.core.schema import Schema, Variable
    from masquerade.core.table import CountTable
    from masquerade.core.tally import Cached, Merged, Tally
    from masquerade.disguising.files import disguise_file
    from masquerade.disguising.frames import disguise
    from masquerade.disguising.seeded import simulate
    from masquerade.frames.baskets import basket_policy, read_baskets
    from masquerade.sources.projected import projected
    from masquerade.sources.projection_seeded import simulate_projected
    from masquerade.sources.tally import tally

__version__ = "0.1.0"

_HOME = {
    "Cached": "masquerade.core.tally",
    "Channel": "masquerade.channels.channel",
    "CountTable": "masquerade.core.table",
    "Covariance": "masquerade.core.covariance",
    "Guarantee": "masquerade.core.guarantee",
    "MasqueradeError": "masquerade.core.errors",
    "Merged": "masquerade.core.tally",
    "Policy": "masquerade.channels.policy",
    "Query": "masquerade.core.query",
    "QueryRefused": "masquerade.core.errors",
    "Refusal": "masquerade.core.errors",
    "Schema": "masquerade.core.schema",
    "Tally": "masquerade.core.tally",
    "Variable": "masquerade.core.schema",
    "anonymity": "",
    "basket_policy": "masquerade.frames.baskets",
    "channels": "",
    "data": "",
    "disguise": "masquerade.disguising.frames",
    "disguise_file": "masquerade.disguising.files",
    "evaluate": "",
    "learn": "",
    "privacy": "masquerade.channels.privacy",
    "projected": "masquerade.sources.projected",
    "read_baskets": "masquerade.frames.baskets",
    "simulate": "masquerade.disguising.seeded",
    "simulate_projected": "masquerade.sources.projection_seeded",
    "tally": "masquerade.sources.tally",
}

__all__ = [
    "Cached",
    "Channel",
    "CountTable",
    "Covariance",
    "Guarantee",
    "MasqueradeError",
    "Merged",
    "Policy",
    "Query",
    "QueryRefused",
    "Refusal",
    "Schema",
    "Tally",
    "Variable",
    "anonymity",
    "basket_policy",
    "channels",
    "data",
    "disguise",
    "disguise_file",
    "evaluate",
    "learn",
    "privacy",
    "projected",
    "read_baskets",
    "simulate",
    "simulate_projected",
    "tally",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'masquerade' has no attribute {name!r}")
    home = _HOME[name]
    value = getattr(import_module(home), name) if home else import_module(f"masquerade.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*__all__, "__version__"])
