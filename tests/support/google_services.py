"""Google's side of a conversation, small: keys of service accounts, token endpoint, metadata, answers of models.

The shapes are those of Google's own documentation (RFC 7523 and 6749 answers of oauth2.googleapis.com, the metadata
server's `v1`, `generateContent`, `rawPredict`, `predict`).
"""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from support.fake_models import FakeModels, Reply, Request

Json = Any
EMAIL = "agent@my-project.iam.gserviceaccount.com"


@cache
def private_key() -> str:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def service_account(directory: Path, url: str, **more: Json) -> Path:
    """The key file of a service account whose tokens come from `url`."""
    info = {
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": "k1",
        "private_key": private_key(),
        "client_email": EMAIL,
        "client_id": "1",
        "token_uri": f"{url}/token",
        **more,
    }
    return _written(directory / "key.json", info)


def signed_in(directory: Path, url: str, **more: Json) -> Path:
    """What `gcloud auth application-default login` writes."""
    info = {
        "type": "authorized_user",
        "client_id": "c.apps.googleusercontent.com",
        "client_secret": "s",
        "refresh_token": "1//r",
        "quota_project_id": "billed-project",
        "token_uri": f"{url}/token",
        **more,
    }
    return _written(directory / "application_default_credentials.json", info)


def _written(file: Path, info: Json) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(info))
    return file


def token(number: int = 1, life: float = 3599) -> Reply:
    return answer({"access_token": f"ya29.{number}", "expires_in": life, "token_type": "Bearer"})


def answer(body: Json, status: int = 200, **headers: str) -> Reply:
    return Reply(status=status, raw=json.dumps(body).encode(), headers=headers)


def refused(status: int, code: str, text: str) -> Reply:
    return answer({"error": code, "error_description": text}, status)


def form(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(request.body.decode()).items()}


def claims(assertion: str) -> Json:
    part = assertion.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


class Google:
    """Answers every request on a `FakeModels`: tokens at `/token` and as metadata, `replies` at all other paths.

    Attributes:
        tokens: how many were given out; `life` is theirs.
        asked: requests that were for models.
    """

    def __init__(self, server: FakeModels, *replies: Reply) -> None:
        self.server = server
        self.replies = list(replies)
        self.tokens = 0
        self.life = 3599.0
        self.asked: list[Request] = []
        server.answer_with(self.answer)

    def answer(self, request: Request) -> Reply:
        if request.path == "/token":
            self.tokens += 1
            return token(self.tokens, self.life)
        if request.path.startswith("/computeMetadata/v1/"):
            if request.headers.get("metadata-flavor") != "Google":
                return Reply(status=403, raw=b"Missing Metadata-Flavor:Google header.")
            if request.path.endswith("/project/project-id"):
                return Reply(
                    raw=b"machine-project", headers={"metadata-flavor": "Google", "content-type": "text/plain"}
                )
            self.tokens += 1
            given = {"access_token": f"ya29.{self.tokens}", "expires_in": self.life, "token_type": "Bearer"}
            return answer(given, **{"metadata-flavor": "Google"})
        self.asked.append(request)
        return self.replies.pop(0) if self.replies else answer(gemini("ok"))


def gemini(text: str, **more: Json) -> Json:
    """An answer of `generateContent`."""
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
    usage = {"promptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 6, "trafficType": "ON_DEMAND"}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash", **more}


def events(*bodies: Json) -> Reply:
    """A streamed answer."""
    raw = "".join(f"data: {json.dumps(body)}\r\n\r\n" for body in bodies).encode()
    return Reply(raw=raw, headers={"content-type": "text/event-stream"})


def minutes_from_now(minutes: float) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60 * minutes))
