"""Write openapi/openapi.json from the routes: `make openapi`. With --release clients may rely on it from now on:
`make release-openapi`."""

import sys

from supervisor.api.document.build import document
from supervisor.api.server import create_app
from tools.checks.openapi import DOCUMENT, release
from tools.project_files import ROOT

if __name__ == "__main__":
    (ROOT / DOCUMENT).write_text(document(create_app(None)), encoding="utf-8")
    print(f"wrote {DOCUMENT}")
    if sys.argv[1:] == ["--release"]:
        release(ROOT)
