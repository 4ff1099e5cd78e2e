"""stop and resume of every run that filters name: first what it would be, then the question, then page after page.

The question names the number that was seen, and the supervisor is told that number: where it is another one by then,
nothing is done.
"""

from __future__ import annotations

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.exits import FAILED
from supervisor.cli.words import safe
from supervisor.wording.figures import plural

NAMED = 5


def each(client: Client, deed: str, query: Json, form: str, yes: bool) -> None:
    """`deed`: stop or resume. Raises click.Abort where the person says no, Exit where a run refuses."""
    seen = _pages(client, deed, query, {"dry_run": True})
    if not seen["changed"]:
        output.note(
            f"{plural(seen['matched'], 'run')} {_match(seen['matched'])}; there is nothing to {deed}."
        )
    elif not output.confirmed(_question(deed, seen), yes):
        raise click.Abort
    done = _pages(client, deed, query, {"expect": seen["matched"]}) if seen["changed"] else seen
    if not output.emit(done, [{"run_id": name} for name in done["runs"]], form, "run_id") and seen["changed"]:
        click.echo(f"{deed}: {plural(done['changed'], 'run')}, {done['unchanged']} left as they are.")
    for one in done["refused"]:
        output.note(f"{safe(one['run_id'])}: {safe(one['detail'])}     ({safe(one['code'])})")
    if done["refused"]:
        raise click.exceptions.Exit(FAILED)


def _question(deed: str, seen: Json) -> str:
    names, more = seen["runs"][:NAMED], seen["changed"] - NAMED
    listed = ", ".join(safe(name) for name in names) + (f" and {more} more" if more > 0 else "")
    others = seen["matched"] - seen["changed"]
    rest = (
        f"; {plural(others, 'other')} that {_match(others)} {'stay as they are' if others > 1 else 'stays as it is'}"
        if others
        else ""
    )
    return f"{deed.capitalize()} {plural(seen['changed'], 'run')} ({listed}{rest})?"


def _match(count: int) -> str:
    return "matches" if count == 1 else "match"


def _pages(client: Client, deed: str, query: Json, body: Json) -> Json:
    """All pages as one answer; how many match is what the first one says."""
    told: Json = {}
    cursor: str | None = None
    while True:
        page = client.send(
            "POST",
            f"/v1/runs/{deed}",
            {**query, "cursor": cursor},
            body if cursor is None else _going_on(body),
        ).json()
        if not told:
            told = {
                name: page[name] for name in ("dry_run", "matched", "changed", "unchanged", "refused", "runs")
            }
        else:
            for name in ("changed", "unchanged", "refused", "runs"):
                told[name] += page[name]
        cursor = page["next_cursor"]
        if not page["more"]:
            return told


def _going_on(body: Json) -> Json:
    return {name: value for name, value in body.items() if name != "expect"}
