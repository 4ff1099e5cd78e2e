"""Parts of files that Kaggle keeps at an address of their own: an unclear end is never the end of a file.

The address alone opens the file, so our token is not sent there, and the address belongs into no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from supervisor.ports.provider import ProviderUnavailable, Responded

PIECE_BYTES = 1 << 20


def part(transport: Callable[[], Any], url: str, offset: int, length: int) -> tuple[int | None, Iterator[bytes]]:
    """(size of the whole file, None = not said; these bytes of it). Raises ProviderUnavailable, the bytes too: also
    where fewer come."""
    import requests

    if not _is_safe(url):
        raise Responded("Kaggle gives an address of an output that is not encrypted")
    session = requests.Session()
    session.trust_env = False
    for scheme in ("https://", "http://"):
        session.mount(scheme, transport())
    wanted = {"Range": f"bytes={offset}-{offset + length - 1}", "Accept-Encoding": "identity"}
    try:
        response = session.get(url, headers=wanted, stream=True)
    except (requests.RequestException, OSError) as error:
        raise ProviderUnavailable(f"the output cannot be read: {type(error).__name__}") from error
    if response.status_code not in (200, 206):
        response.close()
        raise ProviderUnavailable(f"the output cannot be read: the response is {response.status_code}")
    skipped = 0 if response.status_code == 206 else offset
    return _whole_size(response.status_code, response.headers), _pieces(response, skipped, length)


def _is_safe(url: str) -> bool:
    """An encrypted one, or one of this computer."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost"))


def _whole_size(status: int, headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Range", "").rpartition("/")[2] if status == 206 else headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _pieces(response: Any, skipped: int, length: int) -> Iterator[bytes]:
    """`length` bytes of the body, after `skipped` ones."""
    import requests

    left = length
    try:
        with response:
            for piece in response.iter_content(PIECE_BYTES):
                content = piece[skipped:][:left]
                skipped = max(0, skipped - len(piece))
                left -= len(content)
                if content:
                    yield content
                if not left:
                    return
    except (requests.RequestException, OSError) as error:
        raise ProviderUnavailable(f"the output cannot be read: {type(error).__name__}") from error
    if left:
        raise ProviderUnavailable("the output was not read to its end")
