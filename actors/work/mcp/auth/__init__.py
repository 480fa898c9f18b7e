"""OAuth sign-in to MCP servers over HTTP.

metadata       documents that servers publish, and the checks that they must pass
discovery      search for these documents
registration   the OAuth client: registered by hand, a metadata document, or dynamic registration
http           requests to addresses that servers have named
store          files of a sign-in
sign_in        the sign-in of a user, or of the client itself
access         the tokens of a process, as links use them
"""
