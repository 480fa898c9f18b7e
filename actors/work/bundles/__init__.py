"""Bundles: agents, roles, macros, tools, workflows and MCP servers shared as git repositories.

`manage` is the entry point: install, update, remove, list. A bundle has the layout of a configuration directory. The
other modules, in the order of an install:

    source        parses the URL or path of a bundle, defines the `SourceTree`, and lists a directory as one
    git           fetches a repository, and lists its files as a `SourceTree` before any of them is on disk
    layout        selects the files to install, and refuses unsafe ones
    capabilities  describes the capabilities of each item
    candidate     the selected items of a source, with their contents and capabilities
    plan          decides on each file (write, keep, or remove), and shows the result to the user
    install_flow  plans, shows, asks, checks that nothing has changed since, and applies
    transaction   changes the files, so that a kill leaves either the old or the new state
    manifest      stores the installed bundles

The package may import `protocol`, `io` and the parsers of `work/tools/declare`. Code of a bundle is never run during an
install, and no tree of it is checked out.
"""
