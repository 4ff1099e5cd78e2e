"""Every exchange with the tests' Kaggle, checked against the request and response classes of Kaggle's own client.

A field that the client does not have would be ignored by it in silence, in both directions: here it fails the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import requests
from kagglesdk.kaggle_object import KaggleObject
from kagglesdk.kernels.services.kernels_api_service import KernelsApiClient
from kagglesdk.kernels.types import kernels_api_service as types
from requests.adapters import BaseAdapter
from urllib3 import HTTPResponse

from tests.cloud.web import Request, Response

SERVICE = "https://api.kaggle.com/v1/kernels.KernelsApiService/"


class NotInTheClient(AssertionError):
    """A field, a method or a value that kagglesdk does not have."""


class Refusal(Exception):
    """An answer that is none. `message`: in Kaggle's form of an error."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def check(cls: type[KaggleObject], value: Mapping[str, Any], where: str) -> None:
    """Each field of this JSON object is one of the class, with a value that the class can read."""
    names = {field.json_name: field for field in cls._fields}
    for name, part in value.items():
        if name not in names:
            raise NotInTheClient(f"{where}: {cls.__name__} has no field {name}")
        inner = names[name].field_type
        parts = part if isinstance(part, list) else [part]
        for each in parts:
            if isinstance(inner, type) and issubclass(inner, KaggleObject):
                check(inner, each, f"{where}.{name}")
    try:
        cls.from_dict(dict(value))
    except Exception as error:
        raise NotInTheClient(f"{where}: {cls.__name__} cannot read {value!r}: {error}") from error


def classes(method: str) -> tuple[type[KaggleObject], type[KaggleObject]]:
    """Of the request and the response of a method of the service."""
    request = getattr(types, f"Api{method}Request", None)
    response = getattr(types, f"Api{method}Response", None)
    client = "".join(f"_{char.lower()}" if char.isupper() else char for char in method).lstrip("_")
    if request is None or response is None or not hasattr(KernelsApiClient, client):
        raise NotInTheClient(f"the client has no method {method}")
    return request, response


Answer = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
File = Callable[[str, str], tuple[int, bytes, dict[str, str]]]  # (path, range) -> (status, bytes, headers)


class Exchanges:
    """`answer(method, body)`: a JSON object, or raises Refusal; the header Authorization is in the body too.
    `violations`: what was wrong with an exchange, also where the code under test has swallowed it. `file`: of an
    output."""

    def __init__(self, answer: Answer, violations: list[str], file: File) -> None:
        self._answer, self._violations, self.file = answer, violations, file

    def exchange(
        self, method: str, content: bytes, authorization: str
    ) -> tuple[int, Mapping[str, Any], dict[str, str]]:
        """(HTTP status, body, headers). Raises NotInTheClient."""
        try:
            of_request, of_response = classes(method)
            body = json.loads(content or b"{}")
            check(of_request, body, method)
            if not authorization:
                raise Refusal(401, "Unauthenticated")
            answer = self._answer(method, {**body, "authorization": authorization})
            check(of_response, answer, method)
        except NotInTheClient as violation:
            self._violations.append(str(violation))
            raise
        except Refusal as refusal:
            return refusal.status, {"code": refusal.status, "message": refusal.message}, refusal.headers
        return 200, answer, {}

    def web(self, request: Request) -> Response:
        """The same over HTTP."""
        if request.method == "GET":
            status, content, headers = self.file(request.path, request.headers["range"])
            return Response(status, content, headers)
        method = request.path.rpartition("/")[2]
        status, body, headers = self.exchange(method, request.body, request.headers.get("authorization", ""))
        return Response(status, body, {"Content-Type": "application/json", **headers})


class Wire(BaseAdapter):
    """The place of the network in a session of requests."""

    def __init__(self, exchanges: Exchanges) -> None:
        super().__init__()
        self._exchanges = exchanges

    def close(self) -> None:
        pass

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        assert request.url is not None
        if request.method == "GET":
            assert "Authorization" not in request.headers, "the address alone opens the file"
            path = urlsplit(request.url).path
            return self._answered(request, *self._exchanges.file(path, request.headers["Range"]))
        assert request.method == "POST"
        assert request.url.startswith(SERVICE)
        content = request.body.encode() if isinstance(request.body, str) else request.body or b""
        method, authorization = request.url.removeprefix(SERVICE), request.headers.get("Authorization", "")
        status, body, headers = self._exchanges.exchange(method, content, authorization)
        headers = {"Content-Type": "application/json", **headers}
        return self._answered(request, status, json.dumps(body).encode(), headers)

    @staticmethod
    def _answered(
        request: requests.PreparedRequest, status: int, content: bytes, headers: dict[str, str]
    ) -> requests.Response:
        response = requests.Response()
        response.status_code, response.request = status, request
        response.url = request.url or ""
        response.headers.update(headers)
        response.raw = HTTPResponse(BytesIO(content), preload_content=False)
        return response
