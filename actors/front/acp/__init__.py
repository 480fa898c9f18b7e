"""Agent Client Protocol on a connection: editors talk to agents, and the conversations are stored as sessions.

`agent` implements the methods. `session` is an open session with the client's settings, directories and servers.
`prompting` executes one prompt as a run of the hub. `updates` maps the run's events and earlier messages to ACP's. The
package imports the hub and `sessions`; only modules that open connections import it.
"""
