"""Linking vertical parties by key: which records they have in common, without showing the others."""
