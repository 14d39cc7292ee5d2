"""Information gain: how much a feature reveals about a target.

Pure functions of tables of counts with the feature's categories as rows and the target's as columns.
"""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats


def clip_counts(tables: Floats) -> Floats:
    """Set negative cells to zero and rescale every table (the last two axes) to its total.

    This equals `CountTable.nonnegative("clip")`, for many tables in one call. A table whose total is not
    positive becomes all zeros.
    """
    positive = np.maximum(tables, 0.0)
    kept = positive.sum(axis=(-2, -1), keepdims=True)
    total = np.maximum(tables.sum(axis=(-2, -1), keepdims=True), 0.0)
    return np.asarray(positive * np.divide(total, kept, out=np.zeros_like(kept), where=kept > 0))


def entropy(counts: Floats) -> Floats:
    """Return the entropy in bits along the last axis of nonnegative counts; all zeros give 0.

    >>> float(entropy(np.array([2.0, 2.0])))
    1.0
    """
    total = counts.sum(axis=-1, keepdims=True)
    shares = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(-(shares * logs).sum(axis=-1)) + 0.0  # no negative zero


def information_gain(tables: Floats) -> Floats:
    """Return the information in bits that the rows of each table give about its columns.

    Formula: H(target) − Σ_v P(v)·H(target | v), from tables without negative cells (see `clip_counts`).
    Reference: Quinlan, Induction of decision trees (1986); Ma (2006), chapter 7.
    Cost: a few passes over the cells of all tables.
    Error: estimation noise inflates it, by about df/(2·records·ln 2) for independent clear records, and more
    for disguised records.

    >>> float(information_gain(np.array([[3.0, 0.0], [0.0, 3.0]])))
    1.0
    """
    rows = tables.sum(axis=-1)
    total = rows.sum(axis=-1, keepdims=True)
    share = np.divide(rows, total, out=np.zeros_like(rows), where=total > 0)
    inside = (share * entropy(tables)).sum(axis=-1)
    return np.asarray(np.maximum(entropy(tables.sum(axis=-2)) - inside, 0.0))


def split_information(tables: Floats) -> Floats:
    """Return the entropy in bits of the rows, by which the gain ratio divides (Quinlan 1993)."""
    return entropy(tables.sum(axis=-1))
