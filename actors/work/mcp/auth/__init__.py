"""OAuth sign-in to MCP servers over HTTP.

metadata       documents that servers publish, and the checks that they must pass
discovery      search for these documents, and requests to addresses that servers have named
sign_in        the OAuth client, and the sign-in of a user or of the client itself
access         the tokens of a process, as links use them, and their files
"""
