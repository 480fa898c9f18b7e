"""Sign-in during a run: the user at the terminal is asked, and the refused request is repeated.

Only a process of the user's own asks. A server's callers must not lend it their accounts, so in `callboard serve` and
similar processes the error names the command. However many agents wait, one question is asked. After a refusal this
process does not ask again. No browser is opened: the user opens the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import CallboardError, McpSignInNeeded
from .....protocol.events import Warned
from .....supervisors import Actor
from ....io.oauth.loopback import code_from
from ..auth.sign_in import sign_in

if TYPE_CHECKING:
    from .....protocol.mcp.config import Server
    from ....io.oauth.authorization import Authorization
    from ....io.oauth.loopback import Redirect
    from ..auth.access import ServerAccess

FAILED = "mcp_sign_in"
"""Code of the warning that a sign-in failed."""


async def signed_in(me: Actor, server: Server, access: ServerAccess, needed: McpSignInNeeded, began: float) -> bool:
    """Ask the user to sign in; return True if the refused request is worth repeating.

    Args:
        me: asks.
        server: its entry, with resolved values.
        began: start of the refused request, by trio's clock.
    """
    async with access.turn:
        # Another agent's question was answered while this one waited for the lock.
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
