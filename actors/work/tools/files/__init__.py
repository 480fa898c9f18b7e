"""Execution of tool files' functions, each call a supervised process.

`call.file_tool` makes a `Tool` of a declaration that `declare` has read, and `call.play` executes one call. It passes
the arguments in a memory file (`call_file`) and starts the runner of the language (`interpreters`, `runners/`) in the
documented `environment`. It answers the tool's questions (`questions`), bounds its resources (`limits`) and reads its
result (`output`). The package does not depend on agents and models.
"""
