"""Organisations as services: each keeps its records and answers for the sessions it consented to."""
