"""Signed addresses of the fake Cloud Storage (V4): a GET of one object that needs no account.

The signature is computed again from the request as it came, by Google's documented canonical form
(cloud.google.com/storage/docs/authentication/canonical-requests), and not with the client's own code. Accounts of tests
sign with an HMAC in place of RSA.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import quote

from google.auth.credentials import AnonymousCredentials, Signing

from tests.cloud.storage_objects import Refusal
from tests.cloud.web import Request

SIGNATURE = "X-Goog-Signature"


class SigningAccount(AnonymousCredentials, Signing):
    """Credentials whose account can sign."""

    signer_email = "supervisor@project-one.iam.gserviceaccount.com"
    signer = None

    def sign_bytes(self, message: bytes) -> bytes:
        return hmac.digest(self.signer_email.encode(), message, "sha256")


def is_signed(request: Request) -> bool:
    return request.one("X-Goog-Algorithm") is not None


def check(request: Request, now: float) -> None:
    """Refusal, also for an address whose time is over."""
    try:
        begun = calendar.timegm(time.strptime(request.one("X-Goog-Date") or "", "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise Refusal(400, "MalformedSecurityHeader", "Your request has a malformed header.") from None
    if not begun - 900 <= now < begun + int(request.one("X-Goog-Expires") or 0):
        raise Refusal(400, "ExpiredToken", "The provided token has expired.")
    email, _, scope = (request.one("X-Goog-Credential") or "").partition("/")
    lines = ("GOOG4-RSA-SHA256", request.one("X-Goog-Date") or "", scope, _digest(request))
    wanted = hmac.digest(email.encode(), "\n".join(lines).encode(), "sha256").hex()
    if request.method != "GET" or not hmac.compare_digest(wanted, request.one(SIGNATURE) or ""):
        raise Refusal(403, "SignatureDoesNotMatch", "The request signature does not match the provided signature.")


def _digest(request: Request) -> str:
    given: Mapping[str, list[str]] = request.query
    pairs = sorted((name, value) for name, values in given.items() for value in values if name != SIGNATURE)
    query = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
    names = (request.one("X-Goog-SignedHeaders") or "").split(";")
    headers = "".join(f"{name}:{request.headers.get(name, '')}\n" for name in names)
    parts = (request.method, request.raw_path, query, headers, ";".join(names), "UNSIGNED-PAYLOAD")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
