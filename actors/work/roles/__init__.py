"""Roles: how a model answers where no agent does. `files` finds and keeps them, `cast` makes an agent of one.

What a file may say stands in `protocol.role`. The built-in roles are in `library`; one of the same name in the
configuration directory (`roles/NAME.md`) comes first.
"""
