"""Roles: system prompt, examples and options for a model without an agent.

`files.FILES` finds and stores roles; a role in the configuration directory (`roles/NAME.md`) takes precedence over the
built-in one of its name in `library`. `apply_role` makes an agent of one (`agent_in_role`). `protocol.role` defines the
file format. The two are separate because lists and completion import only `files`, which is fast.
"""
