"""`python -m callboard` is the same program as `callboard`."""

from .cli.start import main

main()
