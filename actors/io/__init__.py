"""Access to the outside world, independent of agents: HTTP, files, secrets, output to slow readers.

The lowest layer of `actors`: it may import `protocol` and `supervisors`, and knows neither models nor runs. Names to
know: `http.transport.TrioTransport` (every HTTP request), `secret_redaction.hidden` (every output), `directories`
(locations of configuration, cache, state and data), `atomic_write.write_whole` (every file that others read), and
`temporary.directory`. Start with `http/transport` for requests, and with `directories` for files.
"""
