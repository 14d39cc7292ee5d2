"""Parameter learning with a miner who sees every variable disguised (Model II), and without one (Model I).

Without a miner, every party learns its own nodes from its own columns in clear, and from the disguised
columns of parents that other parties own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import masquerade as mq
from masquerade.core import MasqueradeWarning

if TYPE_CHECKING:
    import pandas as pd

Structure = Mapping[str, Sequence[str]]
Sites = Sequence[Sequence[str]]


def learnt(source: mq.Tally, structure: Structure) -> mq.learn.BayesianNetwork:
    """Return the maximum-likelihood parameters; rows without records are uniform, without a warning.

    The experiments count such rows themselves (`distance.clipped`).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)
        return mq.learn.bayesian_network(source, structure)


def with_miner(disguised: pd.DataFrame, policy: mq.Policy, structure: Structure) -> mq.learn.BayesianNetwork:
    """Return the network that the miner learns from the disguised records of all parties."""
    return learnt(mq.tally(disguised, policy), structure)


def taken_for_clear(
    disguised: pd.DataFrame, policy: mq.Policy, structure: Structure
) -> mq.learn.BayesianNetwork:
    """Return the network learned by a miner that takes the reports for clear records."""
    unmarked = disguised.copy()
    unmarked.attrs = {}  # remove the mark of the policy: the library refuses marked records as clear ones
    return learnt(mq.tally(unmarked, schema=policy), structure)


def without_miner(
    clear: pd.DataFrame, disguised: pd.DataFrame, policy: mq.Policy, structure: Structure, sites: Sites
) -> mq.learn.BayesianNetwork:
    """Return the tables that each party learns from its own columns and others' disguised parents.

    `disguised` contains one disguised version of every variable, which its owner sends to the other parties.
    Only the nodes of the given sites are learnt.
    """
    tables = {}
    for own in sites:
        foreign = sorted({parent for node in own for parent in structure[node]} - set(own))
        seen = clear.assign(**{name: disguised[name] for name in foreign})
        nodes = {**dict.fromkeys(foreign, ()), **{node: structure[node] for node in own}}
        network = learnt(mq.tally(seen, party_policy(policy, tuple(own))), nodes)
        tables.update({node: network[node] for node in own})
    return mq.learn.BayesianNetwork(tuple(tables[node] for node in structure if node in tables))


@cache
def party_policy(policy: mq.Policy, own: tuple[str, ...]) -> mq.Policy:
    """Return the policy of the records that a party sees: its own variables are not disguised."""
    values = policy.to_dict()
    values["variables"] = {
        name: {key: entry for key, entry in spec.items() if key != "channel" or name not in own}
        for name, spec in values["variables"].items()
    }
    return mq.Policy.from_dict(values)
