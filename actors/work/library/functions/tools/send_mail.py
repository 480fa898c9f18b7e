"""Sends mail by SMTP.

Environment: `EMAIL_SMTP_ADDR` (`smtps://smtp.example.org:465`, or `smtp://...:587` for STARTTLS), `EMAIL_SMTP_USER`,
`EMAIL_SMTP_PASS`; `EMAIL_SENDER` and `EMAIL_SENDER_NAME` where the address is not the user's name.
"""

from __future__ import annotations

import os
import smtplib
import ssl
import sys
from email.message import EmailMessage
from email.utils import formataddr, getaddresses
from urllib.parse import SplitResult, urlsplit

RECIPIENTS = 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def run(recipient: str, subject: str, body: str) -> str:
    """Send an email.

    Args:
        recipient: The address; several with commas between them.
        subject: One line.
        body: The text.
    """
    message = EmailMessage()
    user = os.environ.get("EMAIL_SMTP_USER", "").strip()
    sender = os.environ.get("EMAIL_SENDER", "").strip() or user
    if not sender:
        sys.exit(
            "mail needs EMAIL_SMTP_USER or EMAIL_SENDER: set it in the environment, or in the config directory's .env"
        )
    to = [address for _, address in getaddresses([recipient]) if address]
    if not 0 < len(to) <= RECIPIENTS or not all("@" in address for address in to):
        sys.exit(f"{recipient!r} is no mail address, or more than {RECIPIENTS}")
    try:
        message["From"] = formataddr((os.environ.get("EMAIL_SENDER_NAME", ""), sender))
        message["To"] = ", ".join(to)
        message["Subject"] = subject
    except ValueError as error:  # a line break, by which further headers would be smuggled in
        sys.exit(f"the mail can't have such a header: {error}")
    message.set_content(body)
    _send(message, user)
    return f"sent to {', '.join(to)}"


def _send(message: EmailMessage, user: str) -> None:
    server, password = _server(), os.environ.get("EMAIL_SMTP_PASS", "")
    host, secure = server.hostname or "", server.scheme == "smtps"
    trusted = ssl.create_default_context()
    try:
        if secure:
            link: smtplib.SMTP = smtplib.SMTP_SSL(host, server.port or 465, timeout=30, context=trusted)
        else:
            link = smtplib.SMTP(host, server.port or 587, timeout=30)
        with link:
            if not secure and (host not in LOOPBACK or link.has_extn("starttls")):
                link.starttls(context=trusted)
            if user and password:
                link.login(user, password)
            link.send_message(message)
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        sys.exit(f"the mail server answered {error.smtp_code}: {said}")
    except smtplib.SMTPRecipientsRefused as error:
        sys.exit(f"the mail server does not take mail for {', '.join(error.recipients)}")
    except (OSError, smtplib.SMTPException) as error:
        sys.exit(f"the mail could not be sent: {error}")


def _server() -> SplitResult:
    text = os.environ.get("EMAIL_SMTP_ADDR", "").strip()
    if not text:
        sys.exit(
            "mail needs EMAIL_SMTP_ADDR (smtps://smtp.example.org:465): set it in the environment, or in the"
            " config directory's .env"
        )
    server = urlsplit(text)
    if server.scheme not in ("smtp", "smtps") or not server.hostname:
        sys.exit("EMAIL_SMTP_ADDR has to be smtps://HOST:PORT or smtp://HOST:PORT")
    return server
