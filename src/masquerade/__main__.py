"""`python -m masquerade` is the command line."""

import os
import sys

# `python -m` puts the working directory first on the import path: a received folder could replace any module
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109
    del sys.path[0]

from masquerade.cli import main

main()
