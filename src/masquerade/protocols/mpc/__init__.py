"""Learning on shares: only the model opens, not the counts.

`engine` is the seam (what programs do with secrets); `helped_engine` two computing parties and the helper of
`dealer`, `mpyc_engine` three parties without one; `computation` carries rounds between members of a session;
`family_counts` are hidden counts over several owners, `structure` the parents of every variable, `tree` ID3,
and `k_means` clusters of records whose cells lie anywhere, which `places` brings into a common order.
`control` answers questions that two servers do not learn.
"""

from masquerade.protocols.mpc.dealer import Dealer
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Cost, SecretEngine, finished, run, run_each
from masquerade.protocols.mpc.family_counts import FamilyCounts, HiddenColumns
from masquerade.protocols.mpc.mpyc_engine import MpycEngine
from masquerade.protocols.mpc.private_queries import Client, ControlServer, OverlapRules, Questions
from masquerade.protocols.mpc.structure import FamilyScore, Search, parents

__all__ = [
    "Client",
    "ControlServer",
    "Cost",
    "Dealer",
    "FamilyCounts",
    "FamilyScore",
    "HelpedEngine",
    "HiddenColumns",
    "MpycEngine",
    "OverlapRules",
    "Questions",
    "Search",
    "SecretEngine",
    "finished",
    "parents",
    "run",
    "run_each",
]
