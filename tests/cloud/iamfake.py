"""IAM's one method that the doctor asks: what may the caller do with this service account?

`projects/-/serviceAccounts/EMAIL:testIamPermissions`: 404 for an account that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.cloud.resourcemanager import held
from tests.cloud.secretmanager import refusal
from tests.cloud.web import Request, Response, Watch, WebServer

_TEST = re.compile(r"/v1/projects/([^/]+)/serviceAccounts/([^/:]+):testIamPermissions")


class IamFake:
    """`accounts`: those that exist; None = every requested one. `holds`: whether the caller has a permission on
    them. `trouble`: the response instead."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.accounts: set[str] | None = None
        self.holds: Callable[[str], bool] = lambda _: True
        self.authorize: Callable[[str | None], bool] | None = None
        self.trouble: Response | Exception | None = None
        self.server = WebServer(self._answer, watch)

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.server.close()

    def _answer(self, request: Request) -> Response:
        if isinstance(self.trouble, Exception):
            raise self.trouble
        if self.trouble is not None:
            return self.trouble
        header = request.headers.get("authorization")
        if not header or (self.authorize is not None and not self.authorize(header)):
            return refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        found = _TEST.fullmatch(request.path)
        if found is None or request.method != "POST":
            return Response(404, b"<title>Error 404 (Not Found)!!1</title>", {"Content-Type": "text/html"})
        if self.accounts is not None and found[2] not in self.accounts:
            return refusal(404, "NOT_FOUND", f"Unknown service account: {found[2]}")
        return held(list(request.json()["permissions"]), self.holds)
