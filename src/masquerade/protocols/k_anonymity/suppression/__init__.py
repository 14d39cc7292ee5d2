"""Formulation 2 of distributed k-anonymity: people who trust nobody with their row star what sets them apart.

Meyerson & Williams's algorithm in three phases, none of which shows a row to anybody:

1. *Distances.* Every `Person` encrypts the values of its row under a key that all `KeyHolder`s and the
   `Miner` hold together. For every two people and each attribute, one ciphertext holds nothing where they
   agree; each key holder blinds these and shuffles the attributes of each pair, with proofs that all others
   check before anything is opened (`comparison`). What opens is how many attributes agree, not which.
2. *Groups.* Everybody computes groups of at least k from the distances by the same function, and signs them;
   nobody goes on unless all have signed the same.
3. *Opening.* For each group and attribute, formulation 1 with the size of the group as threshold, so that a
   value opens if all of the group have it. The form with a randomness server is used: the talk's own sends
   quasi-identifiers in clear, and here these are the very values to be hidden. Reports are sealed for the
   miner and reach it through the first key holder, which changes their order.

Who learns what: `partition_guarantee`. Distances are known to all, by name: that is what the talk's solution
costs. Comparing all pairs is slow: more than 300 people are refused unless the cost is accepted.

A crash ends the session, and nothing is done twice. The shares of key holders and the keys of the randomness
server are in memory alone: one that is started again has another share, which the board of keys shows, and
what was encrypted stays closed. That a row has left, and which credential was evaluated, is in the ledgers of
people and of the randomness server, which last: the row goes into no second session unless its person agrees.

The text of the paper (Zhong, Yang, Wright: Privacy-enhancing k-anonymization of customer data, PODS 2005) was
not at hand: this is a reconstruction from the talk's slides with the proofs that it needs.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
