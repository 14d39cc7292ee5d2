"""Formulation 2 of distributed k-anonymity: suppress the values that distinguish people, without a curator.

Meyerson & Williams's algorithm in three phases, none of which shows a row:

1. *Distances.* Every `Person` encrypts the values of its row under a key that all `KeyHolder`s and the
   `SuppressionMiner` hold together. For every two people and each attribute, one ciphertext encrypts zero if
   they agree. Each key holder blinds these ciphertexts and shuffles the attributes of each pair, with proofs
   that all others check before anything is opened (`comparison`). Opening a pair shows how many of its
   attributes agree, but not which.
2. *Groups.* All parties compute groups of at least k people from the distances, by the same function, and
   sign them. No party continues unless all have signed the same groups.
3. *Opening.* For each group and attribute, formulation 1 with the size of the group as threshold, so that a
   value opens if all people of the group have it. The form with a randomness server is used: the form of
   Wright's talk of 2005 sends quasi-identifiers in clear, and here these are the values to be hidden. Reports
   are sealed for the miner and reach it through the first key holder, which changes their order.

Disclosures: `partition_guarantee`. All parties learn the distances, by name: this is the cost of the talk's
solution. Comparing all pairs is slow: more than 300 people are refused unless the cost is accepted.

A crash ends the session, and nothing is done twice. The shares of key holders and the keys of the randomness
server are in memory only. A key holder that is restarted has a different share, which the board of keys
shows, and earlier ciphertexts stay closed. The ledgers of people and of the randomness server record durably
that a row was sent and which credential was evaluated: the row is sent to no second session unless its person
agrees.

The text of the paper (Zhong, Yang, Wright: Privacy-enhancing k-anonymization of customer data, PODS 2005) was
not at hand: this is a reconstruction from the talk's slides with the proofs that it needs.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
