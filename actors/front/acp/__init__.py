"""Agent Client Protocol on a connection: editors talk to agents, and the conversations are stored as sessions.

`agent.AcpAgent` implements the methods and executes prompts as runs of the hub; start there. `updates` maps the run's
events and earlier messages to ACP's. The package imports the hub and `sessions`; only modules that open connections
import it.
"""
