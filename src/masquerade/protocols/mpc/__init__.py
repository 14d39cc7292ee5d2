"""Secure multi-party computation (MPC): learn on secret shares, so that only the model opens, not the counts.

`engine` is the interface of MPC engines; `dealer_engine` is for two computing parties with a trusted dealer
(`dealer`, the helper of a session), `mpyc_engine` for three parties without a dealer. `computation` relays
rounds between members of a session. `family_counts` are hidden counts over several owners, `structure` finds
the parents of every variable, `tree` grows ID3, and `k_means` clusters records whose cells are at any party,
which `record_order` brings into a common order. `private_queries` answers queries that two servers do not
learn.
"""

from masquerade.protocols.mpc.dealer import Dealer
from masquerade.protocols.mpc.dealer_engine import HelpedEngine
from masquerade.protocols.mpc.engine import Cost, SecretEngine, run, run_alone, run_each
from masquerade.protocols.mpc.family_counts import FamilyCounts, HiddenColumns
from masquerade.protocols.mpc.mpyc_engine import MpycEngine
from masquerade.protocols.mpc.private_queries import ControlServer, OverlapRules, QueryClient, Questions
from masquerade.protocols.mpc.structure import FamilyScore, Search, parents

__all__ = [
    "ControlServer",
    "Cost",
    "Dealer",
    "FamilyCounts",
    "FamilyScore",
    "HelpedEngine",
    "HiddenColumns",
    "MpycEngine",
    "OverlapRules",
    "QueryClient",
    "Questions",
    "Search",
    "SecretEngine",
    "parents",
    "run",
    "run_alone",
    "run_each",
]
