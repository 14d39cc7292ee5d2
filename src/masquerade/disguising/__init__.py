"""Disguising records: frames and files, fresh or memoised; and the simulation of it, kept apart."""
