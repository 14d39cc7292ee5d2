"""What every test may use."""

import os

from hypothesis import settings

# the same examples in every run; HYPOTHESIS=search looks for others
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("search")
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))

pytest_plugins = ["tests.servers.fixtures"]
