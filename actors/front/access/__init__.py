"""Authentication, authorisation, limits and the audit log, for the websocket and HTTP alike.

Start reading at `gate`, which lets callers in: with static keys (`keys`), signed tokens (`signed`, `jwks`) or the
token of the server's own user. `scopes` is the table of what each route and method asks for; `rates` and `places` say
how much; `origins` keeps web pages out that have no business here; `audit` writes it down (`lines`: in a thread).
Of the house this room knows the settings, events and actors.
"""
