"""How MCP servers over HTTP are signed in to: who gives out tokens for one, as whom we ask, and who may have them.

metadata       what servers publish of it, and what has to be true of that
discovery      finds it
registration   as whom we ask: a client registered by hand, a document, or dynamic registration
http           requests to addresses that servers have named
store          what a sign-in leaves behind on disk
sign_in        a person signs in
access         the tokens of a process, as links use them
"""
