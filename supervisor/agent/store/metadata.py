"""What a rented machine may know of itself: Google's metadata server, reached without a name to be looked up.

GCE_METADATA_HOST takes its place, as it does for Google's own libraries.
"""

from __future__ import annotations

import json
import os
from typing import Mapping, Optional, Tuple
from urllib.parse import urlencode

from supervisor.agent.store.site import Site, Unreachable

HOST = "169.254.169.254"
TIMEOUT_S = 5.0
_FLAVOR = {"Metadata-Flavor": "Google"}
_NOTHING: Mapping[str, str] = {}


class MetadataServer:
    """Errors of every method: Unreachable."""

    def __init__(self, host: Optional[str] = None) -> None:
        self._site = Site("http://" + (host or os.environ.get("GCE_METADATA_HOST") or HOST), TIMEOUT_S)

    def close(self) -> None:
        """Idle connections, that is."""
        self._site.close()

    def text(
        self, path: str, query: Mapping[str, str] = _NOTHING, timeout_s: float = TIMEOUT_S
    ) -> Tuple[str, str]:
        """(value, ETag) of what lies at `path` below computeMetadata/v1."""
        where = "/computeMetadata/v1/%s%s" % (path, "?" + urlencode(query) if query else "")
        answer = self._site.call("GET", where, headers=_FLAVOR, timeout_s=timeout_s)
        if answer.status != 200:
            raise Unreachable("the metadata server answered %d to %s" % (answer.status, path))
        return answer.body.decode("utf-8", "replace").strip(), answer.headers.get("etag", "")

    def token(self) -> Tuple[str, float]:
        """(access token of the machine's account, seconds it is good for)."""
        text, _ = self.text("instance/service-accounts/default/token")
        try:
            found = json.loads(text)
            return str(found["access_token"]), float(found["expires_in"])
        except (ValueError, KeyError, TypeError):
            raise Unreachable("the metadata server's token cannot be understood") from None
