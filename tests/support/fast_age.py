"""Files of age that a passphrase opens in no time: its scrypt takes a second by design, which it writes into the file.

The product seals with as much work as takes a second; one test in each room has it do so, the others open these.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

WORK = 1
"""The logarithm of scrypt's N; it is about 18 where a person's passphrase is to be guarded."""


def sealed(data: bytes, passphrase: str) -> bytes:
    """As https://age-encryption.org/v1 has it: one scrypt recipient, one chunk."""
    key, salt, nonce = os.urandom(16), os.urandom(16), os.urandom(16)
    wrapping = hashlib.scrypt(
        passphrase.encode(), salt=b"age-encryption.org/v1/scrypt" + salt, n=2**WORK, r=8, p=1, dklen=32
    )
    wrapped = ChaCha20Poly1305(wrapping).encrypt(bytes(12), key, None)
    head = f"age-encryption.org/v1\n-> scrypt {_text(salt)} {WORK}\n{_text(wrapped)}\n---".encode()
    code = hmac.new(_derived(key, b"", b"header"), head, "sha256").digest()
    body = ChaCha20Poly1305(_derived(key, nonce, b"payload")).encrypt(bytes(11) + b"\x01", data, None)
    return head + f" {_text(code)}\n".encode() + nonce + body


def keep(file: Path, passphrase: str, **secrets: str) -> None:
    """Writes a vault that a passphrase opens."""
    file.write_bytes(sealed(json.dumps({"version": 1, "secrets": secrets}).encode(), passphrase))
    file.chmod(0o600)


def _derived(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt or None, info).derive(key)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
