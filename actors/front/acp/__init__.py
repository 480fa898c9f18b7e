"""Agent Client Protocol on a connection: editors talk to agents, and the conversations are stored as sessions.

`agent.AcpAgent` implements the methods; start there. `prompting` has an open session with the client's settings,
directories and servers, and executes one prompt of it as a run of the hub. `updates` maps the run's events and earlier
messages to ACP's. The package imports the hub and `sessions`; only modules that open connections import it.
"""
