"""Invalid credentials, with the errors of Google's own library: none found, revoked, or an expired session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError

from tests.doctor.setup import Setup

NONE = DefaultCredentialsError("Your default credentials were not found.")
REVOKED = RefreshError(
    "invalid_grant: Token has been expired or revoked.",
    {"error": "invalid_grant", "error_description": "Token has been expired or revoked."},
)
# google.oauth2.reauth, where an organisation lets sessions end after some hours
SESSION_OVER = RefreshError(
    "Reauthentication is needed. Please run `gcloud auth application-default login` to reauthenticate."
)


class Outlived(Credentials):  # type: ignore[no-untyped-call]
    """Found on this computer, but Google issues no token for them any more, with this text."""

    def __init__(self, error: GoogleAuthError) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.error = error

    def refresh(self, request: object) -> None:
        raise self.error


def credentials_that(error: GoogleAuthError) -> Callable[[Setup, pytest.MonkeyPatch], None]:
    """Raised when they are loaded, or when a token is requested."""

    def plant(_: Setup, patch: pytest.MonkeyPatch) -> None:
        def find() -> Any:
            if isinstance(error, DefaultCredentialsError):
                raise error
            return Outlived(error)

        patch.setattr("supervisor.providers.gce.calls.clients._default_credentials", find)

    return plant


__all__ = ["NONE", "REVOKED", "SESSION_OVER", "credentials_that"]
