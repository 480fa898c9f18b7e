"""Running the functions of tool files, each call a supervised process.

`tools.file_tool` makes a `Tool` of what `declare` has read. One call is `call.play`: it hands the arguments over in a
memory file (`handing`), starts the runner of the language (`interpreters`, `runners/`), answers what the tool asks
(`asking`), bounds what it may use (`limits`) and reads what it wrote (`output`). `home` is the environment that tools
are promised, `dotenv` reads `.env` files. Knows nothing of agents and models. Start with `tools`, then `call`.
"""
