"""The tests' cloud as a process of its own: for the benchmarks, and for use by hand.

    python -m tests.cloud [--folder FOLDER] [--no-machines]

Its first line is JSON: {"environment": {...}, "control": URL}. `control` takes POST {"call": "compute.preempt", "args":
[...], "kwargs": {...}} and responds with {"value": ...} or {"error": ...}. It ends when its standard input is closed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cloud.cloud import Cloud
from tests.cloud.web import Request, Response, WebServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cloud", description="A Google Cloud on loopback.")
    parser.add_argument("--folder", type=Path, help="where machines live; default: a temporary folder")
    parser.add_argument("--no-machines", action="store_true", help="VMs are RUNNING, but nothing boots")
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spot-cloud-") as made:
        serve(Cloud(None if wish.no_machines else wish.folder or Path(made)))
    return 0


def serve(cloud: Cloud) -> None:
    """Until standard input is closed; then the cloud is closed too."""
    with _controls(cloud) as control:
        told = {"environment": cloud.environment(), "control": control}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    cloud.close()


@contextmanager
def _controls(cloud: Cloud) -> Iterator[str]:
    def answer(request: Request) -> Response:
        body = request.json()
        try:
            return Response(200, {"value": _value(_call(cloud, body))})
        except Exception as error:  # noqa: BLE001 - the caller gets every error
            return Response(400, {"error": f"{type(error).__name__}: {error}"})

    server = WebServer(answer)
    try:
        yield server.url
    finally:
        server.close()


def _call(cloud: Cloud, body: dict[str, Any]) -> Any:
    """`compute.preempt` is cloud.compute.preempt; a name that is not a function is read."""
    found: Any = cloud
    for word in body["call"].split("."):
        if word.startswith("_"):
            raise ValueError(f"{word} is nobody's business")
        found = getattr(found, word)
    return found(*body.get("args", ()), **body.get("kwargs", {})) if callable(found) else found


def _value(value: Any) -> Any:
    try:
        json.dumps(value)
    except TypeError:
        return repr(value)
    return value


if __name__ == "__main__":
    sys.exit(main())
