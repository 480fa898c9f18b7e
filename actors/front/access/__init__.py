"""Authentication, authorisation, limits and the audit log, for the websocket and HTTP alike.

Start reading at `access_control`, which every connection and request passes: static keys (`keys`), signed tokens
(`signed`) or the token of the server's own user say who comes. `scopes` has the rules, and says which method asks for
which, `limits` says how much, `origins` keeps foreign web pages out, `audit` writes it down, and `configuration` reads
the settings again on SIGHUP. Of the house this room knows the settings, events and actors.
"""
