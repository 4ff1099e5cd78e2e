"""Write openapi/openapi.json from the routes, and what is made of it: `make openapi`. With --release clients may rely
on it from now on: `make release-openapi`."""

import json
import sys

from supervisor.api.document.build import document
from supervisor.api.server import create_app
from supervisor.cli.mcp.tools import SCHEMAS
from tools import mcp_schemas
from tools.checks.openapi import DOCUMENT, release
from tools.project_files import ROOT

if __name__ == "__main__":
    text = document(create_app(None))
    (ROOT / DOCUMENT).write_text(text, encoding="utf-8")
    SCHEMAS.write_text(mcp_schemas.schemas(json.loads(text)), encoding="utf-8")
    print(f"wrote {DOCUMENT} and {SCHEMAS.relative_to(ROOT)}")
    if sys.argv[1:] == ["--release"]:
        release(ROOT)
