"""`python -m masquerade` is the command line."""

from masquerade.cli import main

main()
