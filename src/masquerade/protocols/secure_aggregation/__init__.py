"""Secure aggregation with dropout recovery: the production form of frequency mining.

Every user holds one record; a server (the miner) learns the sums of their votes and nothing else. Votes are
vectors of counts, hidden by masks that cancel in the sum: one mask for every pair of neighbours in a graph,
and one of the user's own. Masks of users who drop out are recovered from Shamir shares that their
neighbours hold.

Reference: Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning"; the
graph of neighbours as in Bell et al. (2020), "Secure single-server aggregation with (poly)logarithmic
overhead". The counted quantities follow Wright's talk (2005).

Roles are `user.AggregationUser` and `server.Server`, bytes in and bytes out; `simulation.aggregation` runs
many users in one process, `sources.people.aggregation` answers count queries with them. Votes are not
validated: one user can shift any count, as the guarantee states.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
