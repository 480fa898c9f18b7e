"""Tool files, read without running or rewriting them: what each function is called, takes and means.

`read.read_tools` turns a `.sh`, `.py` or `.ts` file into a `declaration.ToolFile`, with every problem it found. `bash`
reads argc comments, `python` reads signatures with `ast`, `typescript` with tree-sitter. Nothing here starts a process,
imports a user's module or knows how a tool is run: that is the room `files`. Start with `declaration`, then `read`.
"""
