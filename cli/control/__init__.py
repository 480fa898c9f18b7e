"""Control channel commands: `ps`, `top`, `attach`, `answer`, `stop` and `logs`, as clients of a server.

`servers` finds the server, and `connection` is one websocket to it. `client` reconnects, finds a run by the start of
its id, runs a command, and has the streams of changes. The commands are in `commands`; `figures` formats times and
amounts.

The package imports `protocol.control`, `..render`, and little of `actors` (token files, logs on disk): a client needs
no engine. Names to know: `Where` and `ControlServer` in `servers`, `ControlConnection`, `ControlClient`, `with_client`.
Start with `client`.
"""
