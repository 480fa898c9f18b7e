"""Signed tokens (JWT) of an issuer that the configuration names.

The algorithm is never the token's choice: it has to be one of those configured, all of which are asymmetric, and the
one that the named key is for. Times are checked here, against a clock that can be given, since a jump of the machine's
clock decides about every token at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, final

from ....protocol.control.caller import Caller
from ....protocol.errors import Unauthorized
from ....protocol.settings.api import ALGORITHMS, Jwt
from .jwks import KeySet

LONGEST = 16_384
"""Characters of a token."""

MOST_SCOPES = 200


class SignedCaller(Caller, frozen=True):
    """Who comes with a signed token. `until`: when it expires, by the wall clock."""

    until: float = 0.0


def looks_signed(token: str) -> bool:
    """Whether a token is of this kind, rather than a key."""
    return token.count(".") == 2 and token.startswith("ey")


@final
class SignedTokens:
    """Says who comes with a token.

    Args:
        now: the wall clock.
    """

    def __init__(self, settings: Jwt, keys: KeySet, now: Callable[[], float] = time.time) -> None:
        self.keys = keys
        self._settings = settings
        self._now = now

    def knows_key_of(self, token: str) -> bool:
        """Whether the key that a token names is here, so that it can be checked at once."""
        header = _header(token)
        return header is not None and self.keys.has(str(header.get("kid", "")))

    async def check(self, token: str) -> SignedCaller:
        """Who comes with this token.

        Raises:
            Unauthorized: it does not count; the text says why, as far as that helps its owner only.
        """
        header = _header(token)
        if header is None:
            raise Unauthorized("this is no signed token")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS or algorithm not in self._settings.algorithms:
            raise Unauthorized(f"the token's algorithm must be one of {', '.join(self._settings.algorithms)}")
        if "crit" in header:  # extensions that must be understood, and none is understood here
            raise Unauthorized("the token wants something understood (`crit`) that is not understood here")
        if not isinstance(kid, str) or not kid:
            raise Unauthorized("the token does not say which key it was signed with (`kid`)")
        if not self.keys.has(kid):
            await self.keys.look_for(kid)
        return self._caller(self._claims(token, kid, algorithm))

    def _claims(self, token: str, kid: str, algorithm: str) -> Mapping[str, Any]:
        import jwt

        key = self.keys.get(kid, algorithm)
        if key is None:
            raise Unauthorized("the token was signed with a key that is not known here")
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Unauthorized(f"the token does not count: {error}") from None
        self._check_times(claims)
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now, leeway = self._now(), self._settings.leeway_seconds
        times = {name: claims[name] for name in ("exp", "nbf", "iat") if claims.get(name) is not None}
        for name, value in times.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Unauthorized(f"the token's `{name}` is no number")
        if not now < times["exp"] + leeway:
            raise Unauthorized("the token has expired")
        if max(times.get("nbf", 0), times.get("iat", 0)) > now + leeway:
            raise Unauthorized("the token is not valid yet")

    def _caller(self, claims: Mapping[str, Any]) -> SignedCaller:
        subject = claims.get(self._settings.subject_claim)
        if not isinstance(subject, str) or not subject or len(subject) > 256 or not subject.isprintable():
            raise Unauthorized(f"the token's `{self._settings.subject_claim}` names no subject")
        if subject == "local":
            raise Unauthorized("the token's subject is 'local', which is whoever runs this server")
        found = claims.get(self._settings.scopes_claim, ())
        scopes = found.split() if isinstance(found, str) else found if isinstance(found, list | tuple) else ()
        texts = [scope for scope in scopes if isinstance(scope, str)][:MOST_SCOPES]
        id = claims.get("jti")
        return SignedCaller(
            subject=subject,
            scopes=frozenset(texts),
            key=id[:64] if isinstance(id, str) else None,
            name=subject,
            until=claims["exp"] + self._settings.leeway_seconds,
        )


def _header(token: str) -> Mapping[str, Any] | None:
    import jwt

    if len(token) > LONGEST:
        return None
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError):
        return None
    return header
