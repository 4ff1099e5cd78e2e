"""Style, scripts and icons: read once, named by their content, so that a browser may keep them for ever.

Ours lie in `static/`. Those of others (htmx and its event streams, uPlot) are pinned in package.json, fetched by
`make env` into build/vendor or, in a wheel, laid beside the package. Without them the pages work as they do without
JavaScript, and the System page says so.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
OURS = HERE / "static"
VENDOR = (HERE / "_vendor", HERE.parent.parent / "build" / "vendor")  # in a wheel, in a checkout
NEEDED = ("htmx.min.js", "sse.min.js", "uPlot.iife.min.js", "uPlot.min.css")  # of others
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True, slots=True)
class Asset:
    name: str  # with its hash
    media_type: str
    content: bytes
    packed: bytes  # gzip


@dataclass(frozen=True, slots=True)
class Assets:
    """`urls`: plain name -> address; `by_name`: hashed name -> asset."""

    urls: Mapping[str, str]
    by_name: Mapping[str, Asset]

    @property
    def missing(self) -> tuple[str, ...]:
        """Scripts of others that this installation lacks."""
        return tuple(name for name in NEEDED if name not in self.urls)


@cache
def assets() -> Assets:
    urls: dict[str, str] = {}
    by_name: dict[str, Asset] = {}
    vendor = next((folder for folder in VENDOR if folder.is_dir()), None)
    for folder in (OURS, vendor):
        for path in sorted(folder.iterdir()) if folder is not None else ():
            if path.suffix not in TYPES:
                continue
            content = path.read_bytes()
            name = f"{path.stem}.{hashlib.sha256(content).hexdigest()[:12]}{path.suffix}"
            by_name[name] = Asset(name, TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0))
            urls[path.name] = f"/ui/static/{name}"
    return Assets(urls, by_name)
