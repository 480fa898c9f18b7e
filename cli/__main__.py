"""`python -m callboard.cli` is the same program as `callboard`."""

from .main import main

main()
