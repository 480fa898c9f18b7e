"""Authentication, authorisation, limits and the audit log, for the websocket and HTTP alike.

Start reading at `access_control`, which every connection and request passes. Static keys and signed tokens
(`credentials`) or the local user's token identify the caller. `scopes` has the rule of each method, `limits` bounds the
load, `origins` rejects foreign web pages, `audit` logs actions. The package depends only on settings, events and
actors.
"""
