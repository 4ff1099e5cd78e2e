"""docs: documents that are generated from the code. completion: the script with which a shell completes `spot`.

The tables of statuses and causes in docs/rules.md and the list of checks in docs/providers/gates.md come from the
tables that the supervisor itself uses. Tests compare the pages with the output of `spot docs states` and
`spot docs gates`, so that no page can fall behind the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click

from supervisor.domain.causes import CAUSES, CauseRule
from supervisor.domain.gates.checks import LASTING_S, Check, Gate, checks_of
from supervisor.domain.status import TERMINAL, TRANSITIONS, Status
from supervisor.wording.figures import age_text
from supervisor.wording.gates import GATE_NAMES

_MEANING = {
    Status.PENDING: "accepted; the first machine is being chosen",
    Status.WAITING: "no machine is available now; retried from time to time, costs nothing",
    Status.LAUNCHING: "a machine is requested, or boots",
    Status.RUNNING: "the command runs, or its checkpoint is being restored",
    Status.RECOVERING: "an attempt ended; the next one is being placed",
    Status.FINISHING: "the command has done its work; its results are being saved and verified",
    Status.STOPPING: "a stop was requested; the last checkpoint is saved, then the machine is released",
    Status.AWAITING_TEARDOWN: "results verified; the machine waits for an approval or for a pull of the results",
    Status.COMPLETED: "done, results verified",
    Status.PARTIAL: "done and verified, but a promised result or step is missing",
    Status.FAILED: "ended for good; the cause says why",
    Status.STOPPED: "stopped on request; can be resumed",
}


_MADE = (
    "Every status that a run can have, every move from one to another, and every cause of an end, with its cost and "
    "what follows. `spot docs states` prints this section from the tables in `supervisor/domain/status.py` and "
    "`supervisor/domain/causes.py`. Do not edit it by hand: replace it with the output of the command."
)
_CAUSES = (
    "Every attempt, every try to get a machine and every run ends with exactly one cause. The first row that "
    "matches decides what the end costs and what follows. *Counts*: uses one of `limits.max_attempts`. *No "
    "progress*: three such ends in a row without a newer checkpoint end the run. *Avoids the zone*: the next attempt "
    "starts elsewhere while another zone is good. Programs that read causes must accept words that are not in this "
    "table."
)
_KINDS = (
    "The kinds: `free` is no fault of the run and uses no attempt; `paced` means that no machine was available, which "
    "uses none either; `infra` is the platform's fault but counts; `paid` counts and may happen again; `user` is an "
    "error of the command that is worth a retry; `final` ends the run."
)
_CHECK_HEAD = ("check", "what is read", "fix", "code of a fail", "counts for")
_CAUSE_HEAD = ("cause", "only if", "kind", "counts", "no progress", "avoids the zone", "then")


def states_markdown() -> str:
    """Section 9 of docs/rules.md without its heading, ending in a line break."""
    moves = ((f"`{before}`", f"`{after}`", why) for (before, after), why in TRANSITIONS.items())
    parts = [
        _MADE,
        "### The diagram",
        _diagram(),
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


def _diagram() -> str:
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


def gates_markdown() -> str:
    """The list of checks of docs/providers/gates.md without its heading, ending in a line break."""
    parts = []
    for gate in Gate:
        parts += [f"### {gate} {GATE_NAMES[gate]}", _table(_CHECK_HEAD, map(_check_row, checks_of(gate)))]
    return "\n\n".join(parts) + "\n"


def _check_row(check: Check) -> tuple[str, ...]:
    """Values that a verdict fills in are in capitals."""
    fix = re.sub(r"{(\w+)}", lambda match: match[1].upper(), check.fix)
    kept = "for good" if check.young_s == LASTING_S else age_text(check.young_s)
    return (f"`{check.id}`", check.what, fix, f"`{check.code}`" if check.code else "", kept)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


@click.group()
def docs() -> None:
    """Print documents that are generated from the code."""


@docs.command()
def states() -> None:
    """Print statuses, moves and causes as Markdown."""
    click.echo(states_markdown(), nl=False)


@docs.command()
def gates() -> None:
    """Print the checks of all gates as Markdown."""
    click.echo(gates_markdown(), nl=False)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell. In bash: eval "$(spot completion bash)"."""
    from click.shell_completion import get_completion_class

    from supervisor.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None  # for each of the choices
    click.echo(kind(cli, {}, "spot", "_SPOT_COMPLETE").source())
