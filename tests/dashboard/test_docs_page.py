"""The API for people: every operation has its line and its page, and a setting shows them without a sign-in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from supervisor.api.wire.deps import Services
from supervisor.dashboard.pages.docs import operations_of, prose, type_text
from tests.dashboard.looking import Looking

DOCUMENT = json.loads((Path(__file__).parents[2] / "openapi" / "openapi.json").read_text(encoding="utf-8"))


def unmarked(text: str) -> str:
    """Without blanks and Markdown: marks become elements, and elements have blanks around them here."""
    return "".join(text.replace("`", "").replace("**", "").split())


def test_every_operation_has_a_line_and_a_page(looking: Looking) -> None:
    listed = looking.page("/ui/docs")
    text = listed.text
    assert "GET /v1/runs List runs, newest first, with counts by status under the same filter. runs:read" in text
    for operation in operations_of(DOCUMENT):
        link = listed.one("a", href=f"/ui/docs/{operation.name}")
        assert link.text == f"{operation.method} {operation.path}"
        page = looking.page(f"/ui/docs/{operation.name}").text
        assert "\n\n".join(operation.description) == operation.raw["description"]
        for paragraph in operation.description:
            assert unmarked(paragraph) in unmarked(page)
        for parameter in operation.raw.get("parameters", ()):
            assert parameter["name"] in page


def test_an_operation_shows_its_example_and_the_shapes_that_it_uses(looking: Looking) -> None:
    page = looking.page("/ui/docs/submit_run").text
    for text in (
        "Idempotency-Key (header)",
        '"run_id": "digits-7"',
        "SubmitBody",
        "RunSpec",
        "runs:write",
        "RUN_ACTIVE",
    ):
        assert text in page
    assert looking.get("/ui/docs/no_such_operation").status_code == 404


def test_the_document_is_there_for_a_browser_and_the_short_address_leads_to_the_page(looking: Looking) -> None:
    assert looking.get("/ui/docs/openapi.json").json() == DOCUMENT
    assert looking.get("/docs").headers["location"] == "/ui/docs"


def test_it_asks_for_a_sign_in_unless_a_setting_shows_it(asked: Services) -> None:
    assert Looking(asked).get("/ui/docs").headers["location"].startswith("/ui/sign-in")
    shown = Looking(replace(asked, open_operations=frozenset({"show_document"})))
    assert "POST /v1/runs" in shown.page("/ui/docs").text
    assert shown.get("/ui/runs").headers["location"].startswith("/ui/sign-in"), "nothing else is shown"


def test_a_type_is_told_in_a_few_words() -> None:
    assert type_text({"anyOf": [{"type": "string"}, {"type": "null"}]}) == "string or null"
    assert type_text({"type": "array", "items": {"$ref": "#/components/schemas/Offer"}}) == "list of Offer"
    assert type_text({"type": "object", "additionalProperties": {"type": "number"}}) == "object of number"
    assert type_text({"enum": ["a", "b"]}) == 'one of "a", "b"'
    assert type_text({}) == "any value"


def test_markdown_of_the_document_is_marked_up_and_nothing_else_is() -> None:
    assert prose("`a<b>` and **c**") == "<code>a&lt;b&gt;</code> and <strong>c</strong>"
