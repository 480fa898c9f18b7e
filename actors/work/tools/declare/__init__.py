"""Parsers of tool files: name, parameters and description of each function, without running or rewriting the file.

`read.read_tools` turns a `.sh`, `.py` or `.ts` file into a `declaration.ToolFile`, with every problem found. `bash`
reads argc comments, `python` reads signatures with `ast`, `typescript` with tree-sitter. No function here starts a
process or imports a user's module. The sibling package `files` executes tools. Start with `declaration`, then `read`.
"""
