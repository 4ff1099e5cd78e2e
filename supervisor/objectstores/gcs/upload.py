"""A large object's way to Cloud Storage: a resumable upload in pieces, gone on with from where the store has got to.

Not the client's own one: after a break that sends a piece again without asking what has arrived, and when checksums
differ it deletes the object by name, whoever wrote it meanwhile. Here the checksum is told before the first byte, so
the store itself refuses content that is not what was announced, and no object ever appears from it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from supervisor.objectstores.gcs.asking import Answered, Patience, Refused, Timeout, checked

# A multiple of 256 KiB, and what a slow line (0.4 MB/s) can send within CONNECT_S, which limits a write as a whole.
PIECE_BYTES = 4 << 20
STUCK = 5  # pieces in a row of which nothing arrived


def crc32c(stream: BinaryIO) -> tuple[str, int]:
    """Checksum as Cloud Storage writes it, and length, of all that the stream still holds."""
    import google_crc32c

    crc, size = google_crc32c.Checksum(), 0
    while block := stream.read(1 << 20):
        crc.update(block)
        size += len(block)
    return base64.b64encode(crc.digest()).decode(), size


@dataclass
class ResumableUpload:
    """`about`: the resource that the object is to have, name and crc32c among it."""

    patience: Patience
    session: Any  # requests.Session
    url: str  # .../upload/storage/v1/b/BUCKET/o
    about: Mapping[str, Any]
    generation: int | None  # the condition

    def send(self, stream: BinaryIO, size: int) -> Mapping[str, Any]:
        """The object's resource. Refused as asking ends; patience begins anew with every piece that arrived."""
        try:
            place = self.patience.ask(self._begin)
        except Refused as refused:  # nothing was sent yet, so nothing can have been written
            raise Refused(refused.status, refused.text, doubtful=False) from refused
        at, unsure = 0, False  # unsure: how much has arrived must be asked first

        def step(timeout: Timeout) -> Any:
            nonlocal unsure
            piece = b""
            if not unsure:
                stream.seek(at)
                piece = stream.read(PIECE_BYTES)
            span = f"{at}-{at + len(piece) - 1}" if piece else "*"
            unsure = True
            headers = {"Content-Range": f"bytes {span}/{size}"}
            response = checked(self.session.put(place, data=piece, headers=headers, timeout=timeout))
            unsure = False
            return response

        stuck = 0
        while stuck < STUCK:
            try:
                response = self.patience.ask(step)
            except Refused as refused:
                if refused.status not in {404, 410}:
                    raise
                raise Refused(None, "the upload's session has ended", refused.doubtful) from refused
            if response.status_code != 308:
                found: Mapping[str, Any] = json.loads(response.content)
                return found
            stuck = 0 if _arrived(response) > at else stuck + 1
            at = _arrived(response)
        raise Refused(
            None, f"of {size} bytes the store takes only {at}; has the file changed?", doubtful=False
        )

    def _begin(self, timeout: Timeout) -> str:
        query = {"uploadType": "resumable", "name": self.about["name"]}
        if self.generation is not None:
            query["ifGenerationMatch"] = str(self.generation)
        response = checked(self.session.post(self.url, params=query, json=self.about, timeout=timeout))
        try:
            return str(response.headers["Location"])
        except KeyError:
            raise Answered(502, "an upload was begun without an address") from None


def _arrived(response: Any) -> int:
    """How many bytes of it the store has."""
    found = re.fullmatch(r"bytes=0-(\d+)", response.headers.get("Range", ""))
    return int(found[1]) + 1 if found else 0
