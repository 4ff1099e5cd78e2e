"""The agent's HTTP client: a response or `Unreachable`, over connections that are kept, torn, refused or encrypted."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from supervisor.agent.store.httpclient import PIECE_BYTES, HttpClient, Request, Unreachable
from tests.cloud import web
from tests.cloud.web import Hang, Reset, Response, WebServer


class Server(WebServer):
    """Returns the prepared responses in order, then 200 with the body of the request; counts connections."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.responses: list[Response | Exception] = []
        super().__init__(self._respond, tls=tls)

    def _respond(self, request: web.Request) -> Response:
        answer = self.responses.pop(0) if self.responses else Response(200, request.body, {"X-Method": request.method})
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def open(self) -> int:
        return len(self._server.connections)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def site(server: Server) -> Iterator[HttpClient]:
    made = HttpClient(server.url, timeout_s=30.0)
    yield made
    made.close()


def test_one_connection_serves_one_call_after_the_other(server: Server, site: HttpClient) -> None:
    for n in range(5):
        answer = site.call(Request("PUT", "/x", b"%d" % n))
        assert (answer.status, answer.body, answer.headers["x-method"]) == (200, b"%d" % n, "PUT")
    assert site.call(Request("HEAD", "/x")).body == b""
    assert server.open == 1


def test_a_large_body_arrives_whole_in_several_pieces(site: HttpClient) -> None:
    body = bytes(range(256)) * (PIECE_BYTES // 64) + b"end"
    assert site.call(Request("PUT", "/x", body)).body == body
    pieces = iter([b"a", b"bc", b"def"])
    assert site.call(Request("PUT", "/x", pieces, {"Content-Length": "6"})).body == b"abcdef"


@pytest.mark.parametrize("trouble", [Reset(), Response(200, b"x" * 1000, cut_after=10)])
def test_a_torn_response_does_not_count_and_its_connection_is_not_kept(
    server: Server, site: HttpClient, trouble: Response | Exception
) -> None:
    server.responses = [trouble]
    with pytest.raises(Unreachable):
        site.call(Request("GET", "/x"))
    assert site.call(Request("GET", "/x")).status == 200


def test_silence_ends_after_the_given_time(server: Server, site: HttpClient) -> None:
    server.responses = [Hang()]
    with pytest.raises(Unreachable, match=r"[Tt]ime"):
        site.call(Request("GET", "/x"), timeout_s=0.05)
    assert site.call(Request("GET", "/x")).status == 200


def test_an_unfinished_response_costs_its_connection(server: Server, site: HttpClient) -> None:
    server.responses = [Response(200, b"x" * (4 * PIECE_BYTES))]
    with site.open(Request("GET", "/x")) as stream:
        assert len(next(stream.pieces())) <= PIECE_BYTES
    assert site.call(Request("GET", "/x", b"")).body == b""


def test_a_response_before_the_end_of_the_body_counts() -> None:
    """A server that refuses at once and closes, while the body is still being sent. It names two hashes in two lines,
    as Cloud Storage does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(
                    b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n"
                    b"X-Goog-Hash: crc32c=AA==\r\nX-Goog-Hash: md5=BB==\r\n\r\nno"
                )
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass

        refusing = threading.Thread(target=refuse)
        refusing.start()
        site = HttpClient("http://127.0.0.1:%d" % listening.getsockname()[1], timeout_s=30.0)
        answer = site.call(Request("PUT", "/x", bytes(1 << 20)))
        site.close()
        refusing.join(30)
    assert (answer.status, answer.body) == (403, b"no")
    assert answer.headers["x-goog-hash"] == "crc32c=AA==, md5=BB=="


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://x", "file:///x", "https://"])
def test_a_url_without_a_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="web server"):
        HttpClient(url)


# --- certificates ---------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """(certificate, key) of a 127.0.0.1 that no authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "spot test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = tmp_path / "ca-certificates.crt", tmp_path / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def test_a_server_is_trusted_by_the_hosts_certificates(certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = Server(context)
    url = "https://" + server.host
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        HttpClient(url).call(Request("GET", "/x"))
    trusting = HttpClient(url, authorities=str(certificate[0]))
    assert trusting.call(Request("PUT", "/x", b"secret")).body == b"secret"
    trusting.close()
    server.close()
