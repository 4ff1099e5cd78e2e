"""The server of the stand-ins: a request whose client is killed while it sends is none."""

from __future__ import annotations

import socket

import pytest

from tests.cloud.web import Request, Response, WebServer


@pytest.mark.parametrize(
    ("head", "halves"),
    [
        (b"Content-Length: 10", (b"01234", b"56789")),
        (b"Transfer-Encoding: chunked", (b"5\r\n01234\r\n", b"5\r\n56789\r\n0\r\n\r\n")),
    ],
)
def test_half_a_request_is_none(head: bytes, halves: tuple[bytes, bytes]) -> None:
    bodies: list[bytes] = []

    def answer(request: Request) -> Response:
        bodies.append(request.body)
        return Response(200, {})

    server = WebServer(answer)
    try:
        for parts in (halves[:1], halves):
            with socket.create_connection(tuple(server.host.split(":")), timeout=30) as client:  # type: ignore[arg-type]
                client.sendall(b"POST /x HTTP/1.1\r\n" + head + b"\r\n\r\n" + b"".join(parts))
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    continue
    finally:
        server.close()
    assert bodies == [b"0123456789"]
