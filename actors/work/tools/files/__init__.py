"""Execution of tool files' functions, each call a supervised process.

`call.file_tool` makes a `Tool` of a declaration that `declare` has read, and `call.play` executes one call. It starts
the runner of the language (`runners/`) in the documented `environment`. `runner_protocol` passes the arguments in a
memory file and answers the tool's questions. `call_process` bounds the resources of the process and reads its result.
The package does not depend on agents and models.
"""
