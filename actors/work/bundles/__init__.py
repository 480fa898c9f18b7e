"""Bundles: agents, roles, macros, tools, workflows and MCP servers shared as git repositories.

`manage` is the entry point: install, update, remove, list. A bundle has the layout of a configuration directory. The
other modules, in the order of an install:

    source        parses the URL or path of a bundle, and lists a directory or a git repository as a `SourceTree`
    layout        selects the files to install, and refuses unsafe ones
    candidate     the selected items of a source, with their contents and capabilities
    plan          decides on each file (write, keep, or remove), and shows the result to the user
    transaction   changes the files, so that a kill leaves either the old or the new state; stores the installed bundles

The package may import `protocol`, `io` and the parsers of `work/tools/declare`. Code of a bundle is never run during an
install, and no tree of it is checked out.
"""
