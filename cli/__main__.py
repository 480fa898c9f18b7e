"""`python -m callboard.cli` is the same program as `callboard`."""

from .start import main

main()
