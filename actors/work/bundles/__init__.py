"""Bundles: agents, roles, macros, tools, workflows and MCP servers shared as git repositories.

`manage` is the entry point: install, update, remove, list. A bundle has the layout of a configuration directory. The
other modules, in the order of an install:

    source     parses the URL or path of a bundle
    git        fetches a repository, and lists its files as a `tree` before any of them is on disk
    folder     lists a directory as a `tree`
    layout     selects the files to install, and refuses unsafe ones
    abilities  describes the capabilities of each item
    plan       decides on each file: write, keep, or remove
    carry_out  changes the files, so that a kill leaves either the old or the new state
    record     stores the installed bundles

Code of a bundle is never run during an install, and no tree of it is checked out.
"""
