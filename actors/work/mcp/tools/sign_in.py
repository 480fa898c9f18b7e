"""A run meets a server that wants a person to sign in: the person at the terminal is asked, and the call made again.

Only where the process is the person's own: a server's callers must not give it accounts of theirs, so in `callboard
serve` and the like the error names the command instead. However many agents wait, one question is put; a person who
says no is not asked again by this process. No browser is opened: the person opens the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import CallboardError, McpSignInNeeded
from .....protocol.events import Warned
from .....supervisors import Actor
from ....io.oauth.person import code_from
from ..auth.sign_in import sign_in

if TYPE_CHECKING:
    from .....protocol.mcp.config import Server
    from ....io.oauth.authorization import Authorization
    from ....io.oauth.loopback import Redirect
    from ..auth.access import Access

FAILED = "mcp_sign_in"
"""Code of the warning that a person could not sign in."""


async def signed_in(me: Actor, server: Server, access: Access, needed: McpSignInNeeded, began: float) -> bool:
    """Have a person sign in; whether one has, so that what was refused is worth another try.

    Args:
        me: asks.
        server: its entry, with all values put in.
        began: when what was refused was begun, by trio's clock.
    """
    async with access.turn:
        if access.signed_in_at > began:
            return True
        if access.declined:
            return False

        async def person(request: Authorization, redirect: Redirect) -> str:
            more = f", for what was not granted yet: {' '.join(needed.scopes)}" if needed.scopes else ""
            text = (
                f"MCP server '{server.name}' wants you to sign in{more}. Open this page in a browser of this machine;"
                f" it comes back here by itself:\n{request.url}\nIf it can't, paste the address that it ended at."
            )
            return await code_from(me.ask_person, request, redirect, text)

        try:
            await sign_in(server, access.store, access.environ, person, scopes=needed.scopes)
        except CallboardError as error:
            access.declined = True
            me.emit(Warned(code=FAILED, message=f"no sign-in to MCP server '{server.name}': {error}"))
            return False
        access.admitted()
        return True
