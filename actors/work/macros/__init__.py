"""Macros: `files` finds and keeps them, `play` plays one through whoever knows what a line of the chat does.

What a file may say stands in `protocol.macro`. Macros of the configuration directory (`macros/NAME.yaml`) come before
those in `library`.
"""
