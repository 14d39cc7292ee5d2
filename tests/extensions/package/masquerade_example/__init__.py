"""A package of somebody else: what it adds to masquerade stands in `pyproject.toml`, a module for each."""
