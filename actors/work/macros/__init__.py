"""Macros: `files` finds and keeps them, `play` plays one by a function that knows what lines of the chat do.

What a file may say stands in `protocol.macro`. Macros of the configuration directory (`macros/NAME.yaml`) come before
those in `library`.
"""
