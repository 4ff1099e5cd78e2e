"""Write openapi/openapi.json again from the routes: `make openapi`."""

from __future__ import annotations

from pathlib import Path

from supervisor.api.document.build import document
from supervisor.api.server import create_app

TARGET = Path(__file__).resolve().parent.parent / "openapi" / "openapi.json"


def main() -> None:
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(document(create_app(None)), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(TARGET.parent.parent)}")


if __name__ == "__main__":
    main()
