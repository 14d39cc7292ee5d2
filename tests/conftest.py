"""What every test may use."""

import os

from hypothesis import settings

from masquerade.services.parties import example

# the same examples in every run; HYPOTHESIS=search looks for others
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("search")
settings.load_profile(os.environ.get("HYPOTHESIS", "same"))

# of several processes that run tests, each has ports of its own
worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
example.PORTS = range(10_000 + 2500 * worker, 12_500 + 2500 * worker)

pytest_plugins = ["tests.servers.fixtures"]
