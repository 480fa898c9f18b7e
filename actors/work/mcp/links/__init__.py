"""Transports of messages: the pipes of a process, and two kinds of HTTP."""
