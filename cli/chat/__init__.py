"""The conversation at the terminal: `callboard` without a command, and `callboard chat`.

It is a client like any other. What a line means is decided by the chat behind the control channel (`_chat/*`); what
runs do it hears as events (`_run/subscribe`), what they ask as questions (`_question/*`). So the same code leads a
conversation in this process and one behind a websocket (`--url`).

Two threads. Trio stays in the main thread: the root, its hub, the connection (`local`, `remote`), signals. The screen
(`screen/`) has a thread of its own with prompt_toolkit and asyncio's loop, and with it all that the person sees and
does: `conversation` leads it, `client` speaks, `seen` is what stands in the scrollback, `story` what a run looks like,
`following` has the runs that are shown, `joining` gets into a chat, `presence` is what others see, too. The two
exchange frames, and nothing else (`bridge`). `program` starts both, ends both, and gives the terminal back; the first
prompt is shown before the server's half is imported.
"""
