"""Authentication, authorisation, limits and the audit log, for the websocket and HTTP alike.

Start reading at `access_control`, which every connection and request passes. Static keys (`keys`), signed tokens
(`signed`) or the local user's token identify the caller. `scopes` has the rule of each method, `limits` bounds the
load, `origins` rejects foreign web pages, `audit` logs actions, and `configuration` reloads the settings on SIGHUP. The
package depends only on settings, events and actors.
"""
