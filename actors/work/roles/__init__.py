"""Roles: system prompt, examples and options for a model without an agent.

`files` finds and stores roles, `apply_role` applies one to an agent. `protocol.role` defines the file format. The
built-in roles are in `library`; a role of the same name in the configuration directory (`roles/NAME.md`) takes
precedence.
"""
