"""Horizontal parties: each counts its own records, and only the sums over all parties are ever seen."""
