"""Vertical parties, exact counts: sums of products of indicator columns that no two of them ever show."""
