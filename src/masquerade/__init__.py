"""masquerade: learn from data nobody is allowed to see.

Every privacy technology is a way to answer counting questions; every learner is a function from answers to a
model. Names are loaded when they are first used, so that importing the package stays quick.
"""

from typing import TYPE_CHECKING

from masquerade.core.lazy_exports import lazy_exports

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
    from masquerade.sources.projection import projected
    from masquerade.sources.projection_seeded import simulate_projected
    from masquerade.sources.tally import tally

__version__ = "0.2.0.dev0"

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


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "": ["anonymity", "channels", "data", "evaluate", "learn"],
        "channels.channel": ["Channel"],
        "channels.policy": ["Policy"],
        "channels.privacy": ["privacy"],
        "core.covariance": ["Covariance"],
        "core.errors": ["MasqueradeError", "QueryRefused", "Refusal"],
        "core.guarantee": ["Guarantee"],
        "core.query": ["Query"],
        "core.schema": ["Schema", "Variable"],
        "core.table": ["CountTable"],
        "core.tally": ["Cached", "Merged", "Tally"],
        "disguising.files": ["disguise_file"],
        "disguising.frames": ["disguise"],
        "disguising.seeded": ["simulate"],
        "frames.baskets": ["basket_policy", "read_baskets"],
        "sources.projection": ["projected"],
        "sources.projection_seeded": ["simulate_projected"],
        "sources.tally": ["tally"],
    },
)
