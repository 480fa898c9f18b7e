"""Macros: `files` finds and stores them; the other module executes one through a function that handles chat lines.

`protocol.macro` defines the file format. Macros of the configuration directory (`macros/NAME.yaml`) take precedence
over the built-in ones in `library`.
"""
