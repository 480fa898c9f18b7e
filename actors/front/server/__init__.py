"""The process that serves: one port for websocket and HTTP, from `READY` to the end of the last run.

`serving` is the whole life of a server; `listener` has the port and says who speaks on a connection; `front/http` is
what HTTP is answered with, `front/access` who may come in. It knows the hub of `front/control` and everything below;
nobody knows it but the command line. Start with `serving`.
"""
