"""Protocols between people and parties: roles as small state machines, bytes in and bytes out."""
