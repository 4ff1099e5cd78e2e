"""`spot docs`: documents that are drawn from the code, and `spot completion`.

The tables of statuses and causes in docs/rules.md are drawn from the tables that the supervisor itself works by: a test
compares them with what `spot docs states` prints, so the page cannot fall behind the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from supervisor.domain.causes import CAUSES, CauseRule
from supervisor.domain.status import TERMINAL, TRANSITIONS, Status

_MEANING = {
    Status.PENDING: "accepted; the first machine is being chosen",
    Status.WAITING: "no machine can be had now; tried again from time to time, costs nothing",
    Status.LAUNCHING: "a machine is asked for, or boots",
    Status.RUNNING: "the command runs, or its checkpoint is being restored",
    Status.RECOVERING: "an attempt ended; the next one is being placed",
    Status.FINISHING: "the command has done its work; its results are saved and verified",
    Status.STOPPING: "a stop was asked for; the last checkpoint is saved, then the machine goes",
    Status.AWAITING_TEARDOWN: "results verified; the machine waits for an approval or for a pull of the results",
    Status.COMPLETED: "done, results verified",
    Status.PARTIAL: "done and verified, but something that was promised is missing",
    Status.FAILED: "ended for good; the cause says why",
    Status.STOPPED: "stopped on request; can be resumed",
}


_MADE = (
    "Every status that a run can have, every move from one to another, and every cause of an end, with what it costs "
    "and what follows. `spot docs states` prints this section from the tables in `supervisor/domain/status.py` and "
    "`supervisor/domain/causes.py`. Do not edit it by hand: put there what the command prints."
)
_CAUSES = (
    "Every attempt, every try to get a machine and every run ends with exactly one cause. The first row that "
    "matches decides what the end costs and what follows. *Counts*: spends one of `limits.max_attempts`. *No "
    "progress*: three such ends in a row without a newer checkpoint end the run. *Avoids the zone*: the next attempt "
    "begins elsewhere while another zone is good. Programs that read causes must accept words that are not in this "
    "table."
)
_KINDS = (
    "The kinds: `free` is nobody's fault and spends nothing; `paced` means that no machine was had, which spends "
    "nothing either; `infra` is the platform's fault but costs; `paid` costs and may come again; `user` is the "
    "command's own error, worth a repeat; `final` ends the run."
)
_CAUSE_HEAD = ("cause", "only if", "kind", "counts", "no progress", "avoids the zone", "then")


def states_markdown() -> str:
    """Section 9 of docs/rules.md without its heading, ending in a line break."""
    moves = ((f"`{before}`", f"`{after}`", why) for (before, after), why in TRANSITIONS.items())
    parts = [
        _MADE,
        "### The drawing",
        _drawing(),
        "### Statuses",
        _table(("status", "what it means"), ((f"`{status}`", _meaning(status)) for status in Status)),
        "### Moves",
        "No other move is possible. From any status a run may also stay where it is.",
        _table(("from", "to", "when"), moves),
        "### Causes",
        _CAUSES,
        _table(_CAUSE_HEAD, map(_cause_row, CAUSES)),
        _KINDS,
    ]
    return "\n\n".join(parts) + "\n"


def _meaning(status: Status) -> str:
    return _MEANING[status] + (" (final)" if status in TERMINAL else "")


def _drawing() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> pending: submit"]
    for (before, after), why in TRANSITIONS.items():
        # A colon or semicolon would end the label.
        lines.append(f"    {before} --> {after}: {why.replace(';', ' -').replace(':', ' -')}")
    lines += [f"    {status} --> [*]" for status in Status if status in TERMINAL]
    return "\n".join([*lines, "```"])


def _cause_row(rule: CauseRule) -> tuple[str, ...]:
    causes = ", ".join(f"`{cause}`" for cause in rule.causes)
    marks = (_yes(rule.counts), _yes(rule.no_progress), _yes(rule.avoid_zone))
    return (causes, rule.only_if, f"`{rule.kind}`", *marks, rule.then)


def _yes(held: bool) -> str:
    return "yes" if held else "no"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


@click.group()
def docs() -> None:
    """Print documents that are drawn from the code."""


@docs.command()
def states() -> None:
    """The statuses, who may move what to what, and the table of causes, as Markdown."""

    click.echo(states_markdown(), nl=False)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell; for bash: eval "$(spot completion bash)"."""
    from click.shell_completion import get_completion_class

    from supervisor.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(kind(cli, {}, "spot", "_SPOT_COMPLETE").source())
