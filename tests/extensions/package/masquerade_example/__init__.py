"""A third-party package: `pyproject.toml` lists its plug-ins for masquerade, one module each."""
