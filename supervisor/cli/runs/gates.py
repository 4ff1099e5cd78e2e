"""gates: what each gate of a run says, and a waiver of one check.

Checks that passed share the line of their gate; every other one has its fact and its fix. -o json has them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.finding import choose_run
from supervisor.cli.options import check_waiver, not_empty, output_options, run_argument
from supervisor.cli.output import paragraph, safe
from supervisor.wording.figures import Look, plural
from supervisor.wording.gates import GATE_LOOKS, VERDICT_LOOKS, WAIVED_LOOK

STATE_COLUMNS = max(len(look.text) for look in GATE_LOOKS.values())


@click.command()
@run_argument
@click.option("--all", "everything", is_flag=True, help="The checks that passed, too.")
@click.option("--waive", "check", metavar="CHECK", callback=not_empty, help="Go on in spite of this check (G0 to G4).")
@click.option("--reason", metavar="TEXT", callback=not_empty, help="Why, for the history of the run; with --waive.")
@output_options
def gates(
    *, client: Client, form: str, run_id: str | None, everything: bool, check: str | None, reason: str | None
) -> None:
    """Show the gates of a run: what was checked, what is wrong, and how to fix it."""
    check_waiver(check is not None, reason)
    name = choose_run(client, run_id)
    if check is not None:
        client.post(run_path(name, "gates/waivers"), {"check": check, "reason": reason})
    shown = client.get(run_path(name, "gates"))
    if not output.emit(shown, shown["gates"], form, "gate"):
        output.show(gate_lines(shown, everything))


def gate_lines(shown: Json, everything: bool) -> Iterator[str]:
    yield f"{safe(shown['run_id'])} on {safe(shown['provider'])}"
    for gate in shown["gates"]:
        look = GATE_LOOKS.get(gate["state"]) or Look("·", "still", safe(gate["state"]))
        padding = " " * max(0, STATE_COLUMNS - len(look.text))
        mark = output.colored(f"{look.sign} {look.text}", look.tone)
        yield f"{safe(gate['gate'])}  {safe(gate['name']):<9}  {mark}{padding}  {_passed(gate)}".rstrip()
        for verdict in gate["verdicts"]:
            if everything or verdict["state"] != "pass":
                yield from _verdict_lines(verdict)
    for waiver in shown["waivers"]:
        text = f"{waiver['check']} waived by {waiver['actor']}, {output.when(waiver['at'])}: {waiver['reason']}"
        yield from paragraph(safe(text), "  ")


def _passed(gate: Json) -> str:
    """'12 of 15 checks passed'."""
    verdicts = gate["verdicts"]
    passed = sum(verdict["state"] == "pass" for verdict in verdicts)
    return f"{passed} of {plural(len(verdicts), 'check')} passed" if verdicts else ""


def _verdict_lines(verdict: Json) -> Iterator[str]:
    look = WAIVED_LOOK if verdict["waived"] else VERDICT_LOOKS.get(verdict["state"], output.UNKNOWN_LOOK)
    code = f" [{safe(verdict['code'])}]" if verdict["code"] else ""
    first, *rest = paragraph(f"    {look.sign} {safe(verdict['check'])}: {safe(verdict['fact'])}{code}", "      ")
    yield first.replace(look.sign, output.colored(look.sign, look.tone), 1)
    yield from rest
    if verdict["fix"] and verdict["state"] != "unknown" and not verdict["waived"]:
        yield f"      fix: {safe(verdict['fix'])}"
