"""Bundles: agents, roles, macros, tools, workflows and MCP servers that people share as git repositories.

`manage` is the way in: install, update, remove, list. A bundle is laid out as a configuration directory is. `source`
reads where one comes from; `git` and `folder` list what is in it as a `tree`, before anything of it is on the disk;
`layout` says which of its files are taken, and refuses the others; `abilities` what they will be able to do; `plan`
what becomes of each file; `carry_out` does that, so that a kill leaves either state, and `record` remembers it.

Nothing of a bundle is run, and no tree of it is checked out.
"""
