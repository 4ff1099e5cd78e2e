"""docs: documents that are generated from the code. completion: the script with which a shell completes `spot`.

The tables of statuses and causes in docs/rules.md and the list of checks in docs/providers/gates.md come from the
tables that the supervisor itself uses, and so do the pages of docs/causes. Tests compare the pages with the output of
`spot docs states`, `spot docs gates` and `spot docs causes`, so that no page can fall behind the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from supervisor.cli.exits import FAILED, CliError
from supervisor.domain.causes import CAUSES, Cause, CauseRule
from supervisor.domain.gates.checks import LASTING_S, Check, Gate, checks_of
from supervisor.domain.status import TERMINAL, TRANSITIONS, Status
from supervisor.wording.figures import age_text
from supervisor.wording.gates import GATE_NAMES

_MEANING = {
    Status.PENDING: "accepted; the first machine is being chosen",
    Status.WAITING: "no machine is available now (retried from time to time), or a person must decide; costs nothing",
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


_CAUSE_MEANING: Mapping[Cause, str] = {
    Cause.PREEMPTED: "The platform took its spot machine back.",
    Cause.HOST_ERROR: "The computer that carried the machine failed.",
    Cause.HOST_REBOOTED: "The computer was rebooted under the run.",
    Cause.EXPIRED: "The machine reached the lifetime that the supervisor gave it.",
    Cause.TIME_LIMIT: "A time limit of the platform or of the computer ended the command.",
    Cause.MACHINE_DELETED: "The machine was deleted from outside, without a stop of the run.",
    Cause.SUPERSEDED: "The agent stopped, because the run belongs to another attempt, or to none any more; or a run "
    "left a throttled GPU (`on_slow: move`), or changed between spot and on-demand for its deadline.",
    Cause.RACE_LOST: "Another zone gave its machine first (`race: 2`). Only a request for a machine ends so.",
    Cause.CUT_OFF: "The agent reached neither the object store nor the supervisor, and stopped itself.",
    Cause.YIELDED: "It gave its machine to a run of a higher priority, after a save.",
    Cause.NO_CAPACITY: "No machine was available.",
    Cause.QUOTA: "The quota of the account allows no such machine.",
    Cause.QUOTA_HOURS: "The hours that the platform lends are used up until the next week of its quota begins.",
    Cause.LAUNCH_REJECTED: "The platform refused the request for a machine.",
    Cause.QUEUED: "The capacity is used by other machines of this supervisor.",
    Cause.GROUP_LIMIT: "Other runs of the group come first.",
    Cause.MACHINE_LIMIT: "A limit of the settings is reached: other runs have as many machines as it allows.",
    Cause.DEPENDENCY: "Runs that come before this one are not completed yet.",
    Cause.DEPENDENCY_FAILED: "A run that comes before this one was not completed.",
    Cause.ORPHANED: "The machine is gone without a record of why, and its beats have stopped.",
    Cause.AGENT_LOST: "The machine is up, but its agent stopped responding.",
    Cause.GPU_FAULT: "A GPU failed: it is lost, or its error is one of the hardware.",
    Cause.GPU_UNAVAILABLE: "The machine does not have the GPUs that its shape promises.",
    Cause.BOOT_TIMEOUT: "The machine did not report within the time for its boot.",
    Cause.STALLED: "The training made no progress any more.",
    Cause.HOST_OOM: "The kernel killed a process of the run for main memory. GPU memory is another matter.",
    Cause.DISK_FULL: "A disk ran out of bytes or of inodes.",
    Cause.KILLED: "A signal from outside ended the command, and the supervisor did not send it.",
    Cause.UNKNOWN: "The attempt ended, and no rule explains it.",
    Cause.USER_ERROR: "The command failed by itself: the same code would fail again.",
    Cause.GPU_OOM: "The command asked for more GPU memory than the card had free.",
    Cause.IMAGE_ERROR: "The image could not be pulled or started.",
    Cause.SETUP_FAILED: "The commands of `setup` failed, so the command itself was not started.",
    Cause.COMMAND_NOT_FOUND: "The command does not exist on the machine, or cannot be run there.",
    Cause.RESUME_IGNORED: "The command started over beside the checkpoint that was restored for it, and was ended.",
    Cause.FINISHED: "The command did its work.",
    Cause.DEADLINE: "The deadline of the run has passed.",
    Cause.MAX_RUNTIME: "The training time of the run is used up.",
    Cause.BUDGET: "The budget of the run is spent.",
    Cause.LIMIT_REACHED: "The run reached its limit of attempts.",
    Cause.NO_PROGRESS: "Several attempts in a row ended without a newer checkpoint.",
    Cause.RESULTS_UNVERIFIED: "The command succeeded, but its results could not be verified in the object store.",
    Cause.STOP_REQUESTED: "A person or a program stopped the run.",
}
_NO_RULE = (
    "No rule of the diagnosis gives this cause: the supervisor knows it from its own actions, from the platform's "
    "answer to a request, or from missing beats ([rules](../rules.md))."
)
_COST_WORDS = "The first row that matches counts. [The rules](../rules.md#causes) explain the words of this table."
_RULES = (
    "Rules are tried from the top. A rule applies when all that it needs is in the evidence and nothing of the last "
    "column is. A rule that lacks a reading may apply as *likely*; evidence that was read and speaks against it never "
    "does."
)
_PAGE_END = (
    "`spot why RUN` shows the rule that applied, with its evidence ([more](../evidence.md#what-an-end-means)). "
    "`spot docs causes` writes this page from the tables of the code; do not edit it by hand."
)
_INTRO = "Every attempt and every run that ends has one of these causes. `spot why RUN` names it with its evidence."
_FINDINGS = (
    "`spot why RUN` shows these too. They are hints: by themselves they end, move and charge nothing. Two settings of "
    "a spec act on what they show: `on_slow: move`, and `watch` with `nan: stop`."
)
_FINDING_HEAD = ("rule", "what is noticed", "what helps")
_RULE_HEAD = ("rule", "how sure", "what it needs", "not if")
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
    "error of the command that is worth a retry; `ask` uses none, and a person decides what follows; `final` ends the "
    "run."
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


def causes_markdown(rules: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """File name -> text of each page of docs/causes. `rules`: by cause, as the services describe them."""
    pages = {f"{cause}.md": _cause_page(cause, rules.get(cause, ())) for cause in Cause}
    listed = _table(("cause", "what it means"), ((f"[{cause}]({cause}.md)", _CAUSE_MEANING[cause]) for cause in Cause))
    findings = _table(_FINDING_HEAD, map(_finding_row, rules.get("", ())))
    parts = ["# Causes", _INTRO, listed, "## Of an attempt that goes on", _FINDINGS, findings]
    return {**pages, "README.md": "\n\n".join(parts) + "\n"}


def _cause_page(cause: Cause, rules: Sequence[Mapping[str, Any]]) -> str:
    costs = (_cause_row(rule)[1:] for rule in CAUSES if cause in rule.causes)
    remedies = dict.fromkeys(text for rule in rules for text in rule["remedies"])
    parts = [
        f"# {cause}",
        _CAUSE_MEANING[cause],
        "## What follows",
        _table(_CAUSE_HEAD[1:], costs),
        _COST_WORDS,
        "## How it is recognized",
        *([_RULES, _table(_RULE_HEAD, map(_rule_row, rules))] if rules else [_NO_RULE]),
        *(["## What helps", "\n".join(f"- {text}" for text in remedies)] if remedies else []),
        _PAGE_END,
    ]
    return "\n\n".join(parts) + "\n"


def _rule_row(rule: Mapping[str, Any]) -> tuple[str, ...]:
    needs, excludes = ("; ".join(map(_statement, rule[name])) for name in ("requires", "excludes"))
    return f"`{rule['rule']}`", rule["certainty"], needs, excludes


def _finding_row(rule: Mapping[str, Any]) -> tuple[str, ...]:
    return f"`{rule['rule']}`", _statement(rule["sentence"]), "; ".join(rule["remedies"])


def _statement(template: str) -> str:
    """A value that an evidence fills in is "…"; a part in brackets, which may be left out, is left out."""
    text = re.sub(r"\[[^\[\]]*\]", "", template)
    return re.sub(r"{\w+(?::([^{}]*))?}", lambda match: match[1] or "…", text).replace("|", "\\|")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def llms_text() -> str:
    """docs/llms.txt: what a program that reads texts needs to use `spot`, with every command and its line of help."""
    from supervisor.cli.main import SECTIONS, cli

    lines = [
        "# Spot Supervisor",
        "",
        "> Keeps trainings alive on machines that can be preempted: submit, preempted, recovered, completed.",
        "",
        "Each command has `--help`; most print JSON with `--json` or `-o json`. An error has a stable code, which",
        "docs/errors.md explains. Before a submit, `spot submit --dry-run` shows what it would do and cost, and the",
        "id of the plan for `--plan`. The HTTP API does the same; it describes itself at /openapi.json.",
    ]
    for title, commands in SECTIONS.items():
        rows = [f"- `spot {name}`: {text}" for name, (_, text) in commands.items()]
        lines += ["", f"## {title}", "", *rows]
    lines += ["", "## Exit codes", "", str(cli.help).split("Exit codes: ")[1].replace("\n", " ")]
    return "\n".join(" ".join(line.split()) for line in lines) + "\n"


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


@docs.command()
def llms() -> None:
    """Print llms.txt: all commands, for programs that read texts."""
    click.echo(llms_text(), nl=False)


@docs.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def causes(folder: Path) -> None:
    """Write one page for each cause into DIR, as in docs/causes."""
    from supervisor.cli.server.server import rules_of_causes

    pages = causes_markdown(rules_of_causes())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{error.filename or folder}: {error.strerror}.", FAILED, "FILE_UNWRITABLE") from None
    click.echo(f"{len(pages)} pages in {folder}")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell. In bash: eval "$(spot completion bash)"."""
    from click.shell_completion import get_completion_class

    from supervisor.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None  # for each of the choices
    click.echo(kind(cli, {}, "spot", "_SPOT_COMPLETE").source())
