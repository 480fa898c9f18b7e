"""Running the functions of tool files, each call a supervised process.

`call.file_tool` makes a `Tool` of what `declare` has read, and `call.play` plays one call of it: it hands the arguments
over in a memory file (`call_file`), starts the runner of the language (`interpreters`, `runners/`) in the `environment`
that tools are promised, answers what the tool asks (`questions`), bounds what it may use (`limits`) and reads what it
wrote (`output`). Knows nothing of agents and models.
"""
