"""JWT client assertions: a client proves possession of a private key (RFC 7523, section 2.2).

The audience is the issuer of the authorization server, as the drafts that followed RFC 7523 demand: an assertion for
one server is useless at another. If the issuer is unknown, it is the token endpoint. The algorithm depends on the key:
RS256 for RSA, ES256, ES384 or ES512 for elliptic curves, EdDSA for Ed25519.
"""

from __future__ import annotations

import secrets

from ....protocol.errors import ConfigError
from ....supervisors.installation import install_command
from .server import AuthServer

LIFETIME = 120
"""Lifetime of an assertion in seconds; it is used at once."""


def assertion(server: AuthServer, now: float) -> str:
    """Return a signed assertion for one request.

    Args:
        now: seconds since 1970.

    Raises:
        ConfigError: the key is unusable, or the signing libraries are not installed.
    """
    try:
        import jwt
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError(f"signing with a private key needs PyJWT; run: {install_command('server')}") from error
    try:
        key = load_pem_private_key(server.private_key.encode(), None)
        algorithm = _algorithm(key)
    except (ValueError, TypeError) as error:  # not PEM, or with a passphrase
        raise ConfigError(
            f"the private key of the client {server.client_id!r} can't be used ({error}); expected a PEM text without a"
            " passphrase that begins with -----BEGIN PRIVATE KEY-----"
        ) from error
    claims = {
        "iss": server.client_id,
        "sub": server.client_id,
        "aud": server.issuer or server.token_url,
        "iat": int(now),
        "exp": int(now) + LIFETIME,
        "jti": secrets.token_urlsafe(16),
    }
    return jwt.encode(claims, server.private_key, algorithm=algorithm)


def _algorithm(key: object) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    if isinstance(key, ec.EllipticCurvePrivateKey):
        found = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}.get(key.curve.name)
        if found is not None:
            return found
    raise ValueError("it is neither RSA, nor Ed25519, nor on one of the curves P-256, P-384, P-521")
