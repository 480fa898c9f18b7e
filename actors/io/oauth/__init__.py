"""OAuth 2.1 for programs without a server of their own: sign-in of a user, and renewal of the token.

It is independent of its users, clients of models and MCP servers. An overview:

    server = AuthServer(                                    # `authorization`: authorization server and client
        client_id="...", authorization_url="https://id.example/authorize", token_url="https://id.example/token",
        scopes=("a", "b"), issuer="https://id.example", resource="https://mcp.example/mcp",
    )
    http = AuthHttp(environ)                                # `endpoint`: the few requests, within limits
    endpoint = TokenEndpoint(server, http)                  # `endpoint`: exchange, refresh, device flow, revoke
    file = TokenFile(state_dir(environ) / "oauth" / "mcp", "name of the server")    # `token`: on disk, 0600

A user signs in in one of three ways; each results in an `OAuthToken`, which is stored in the file:

    async with listening(server.redirect_uri) as redirect:  # `authorization`: the browser returns here
        request = authorization(server, redirect.uri)       # PKCE, state
        code = await redirect.answer(request)               # open `request.url`; OAuthRefused if the user refuses
        token = await endpoint.exchange(request, code)

    code = await code_from(ask, request, redirect, text)    # the same, or pasted by the user
    request = authorization(server, server.redirect_uri)    # without a browser on this machine: the user pastes
    code = request.code_in("the code, code#state, or the whole URL that the browser was sent to")

    device = await endpoint.device()                        # RFC 8628: show its `verification_uri`, `user_code`
    token = await endpoint.device_token(device)             # waits for the user, at the interval of the server

    await file.put(token, server)                           # under the lock between processes

A program that uses the token has a `TokenKeeper` for it (`token`), one per file in a process:

    keepers = Keepers(root)                                 # their actors are below /oauth-tokens
    keeper = keepers.keeper(endpoint, file, who="MCP server 'x'", remedy="callboard mcp login x")
    token = await keeper.token()                            # valid for a while; refreshed once for all callers
    ... headers={"authorization": f"Bearer {token.access_token}"} ...
    token = await keeper.other_than(token)                  # after a 401: another token, or SignInNeeded
    token.scopes                                            # granted scopes, for a step-up on 403

Errors: `SignInNeeded` (a user has to sign in; the text names `remedy`), `OAuthRefused` (the server refuses; `error` is
its code, such as `access_denied` or `invalid_client`), `UpstreamError` (may be temporary), `ConfigError` (an address or
a file is unusable), `NobodyToAsk` (the sign-in timed out). None of them, no `repr` and no actor message contains a
token.
"""
