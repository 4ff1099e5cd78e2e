"""Cloud Resource Manager's one method that the doctor asks: which of these permissions does the caller hold?

`projects/P:testIamPermissions` of version 1: the held ones come back, none = an empty object; a project that is not
there is 403, as one that may not be seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.cloud.secretmanager import refusal
from tests.cloud.web import Request, Response, Watch, WebServer

_TEST = re.compile(r"/v1/projects/([^/:]+):testIamPermissions")


class ResourceManagerFake:
    """`holds`: whether the caller has a permission on the project. `trouble`: the response instead."""

    def __init__(self, project: str, watch: Watch | None = None) -> None:
        self.project = project
        self.holds: Callable[[str], bool] = lambda _: True
        self.authorize: Callable[[str | None], bool] | None = None
        self.trouble: Response | Exception | None = None
        self.asked: list[str] = []
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
        if found[1] != self.project:
            return refusal(403, "PERMISSION_DENIED", "The caller does not have permission")
        names = list(request.json()["permissions"])
        self.asked += names
        return held(names, self.holds)


def held(names: list[str], holds: Callable[[str], bool]) -> Response:
    kept = [name for name in names if holds(name)]
    body: dict[str, Any] = {"permissions": kept} if kept else {}
    return Response(200, body)


def switched_off(api: str, project: str) -> Response:
    """What every service of Google's says where its API is not enabled in the project."""
    text = (
        f"{api} has not been used in project {project} before or it is disabled. Enable it by visiting "
        f"https://console.developers.google.com/apis/api/{api}/overview?project={project} then retry."
    )
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "SERVICE_DISABLED",
        "domain": "googleapis.com",
    }
    error = {"code": 403, "message": text, "status": "PERMISSION_DENIED", "details": [detail]}
    return Response(403, {"error": error})
