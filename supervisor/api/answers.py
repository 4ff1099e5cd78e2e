"""JSON answers from values made by hand: no model is validated on the way out."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Response

from supervisor.services.run_view import dumps


def json_answer(answer: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(answer), status, headers, "application/json")
