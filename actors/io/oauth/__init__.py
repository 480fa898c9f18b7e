"""OAuth 2.1 for programs without a server of their own: how a person signs in, and how the token stays good.

It serves clients of models and MCP servers alike, and knows neither. What it says, from top to bottom:

    server = AuthServer(                                    # `server`: who gives out tokens, and as whom we ask
        client_id="...", authorization_url="https://id.example/authorize", token_url="https://id.example/token",
        scopes=("a", "b"), issuer="https://id.example", resource="https://mcp.example/mcp",
    )
    http = AuthHttp(environ)                                # `http`: the few requests, within bounds
    endpoint = TokenEndpoint(server, http)                  # `endpoint`: exchange, refresh, device flow, revoke
    file = TokenFile(state_dir(environ) / "oauth" / "mcp", "name of the server")    # `token_file`: on disk, 0600

A person signs in, in one of three ways; each ends with a `Token`, which goes into the file:

    async with listening(server.redirect_uri) as redirect:  # `loopback`: the browser comes back to this machine
        request = authorization(server, redirect.uri)       # `authorization`: PKCE, state
        code = await redirect.answer(request)               # open `request.url`; OAuthRefused is the person's no
        token = await endpoint.exchange(request, code)

        code = await code_from(ask, request, redirect, text)    # `person`: the same, or what a person pastes

    request = authorization(server, server.redirect_uri)    # without a browser here: the person pastes
    code = request.code_in("the code, code#state, or the whole URL that the browser was sent to")

    device = await endpoint.device()                        # RFC 8628: show its `verification_uri`, `user_code`
    token = await endpoint.device_token(device)             # waits for the person, as slowly as the server asks

    await file.put(token, server)                           # under the lock between processes

A program that uses the token has a `Keeper` for it (`keeper`), one per file in a process:

    keepers = Keepers(root)                                 # their actors live below /oauth-tokens
    keeper = keepers.keeper(endpoint, file, who="MCP server 'x'", remedy="callboard mcp login x")
    token = await keeper.token()                            # good for a while yet; refreshed if need be, once for all
    ... headers={"authorization": f"Bearer {token.access_token}"} ...
    token = await keeper.other_than(token)                  # after a 401: another token, or SignInNeeded
    token.scopes                                            # what was granted, for a step-up on 403

What goes wrong is one of these: `SignInNeeded` (a person has to sign in; the text names `remedy`), `OAuthRefused` (the
server said no; `error` is its code, such as `access_denied` or `invalid_client`), `UpstreamError` (it may pass),
`ConfigError` (an address or a file can't be used), `NobodyToAsk` (the person did not come in time). None of them, no
`repr` and no message of an actor holds a token.
"""
