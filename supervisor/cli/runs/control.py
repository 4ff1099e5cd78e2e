"""stop, resume, retry, drill, approve, purge: the commands that end a run, restart it or give up what it holds.

stop and resume also take filters instead of a run. They first ask the supervisor which runs match, then the user, and
then send page after page. The first page carries the number of matches that the user saw: where it differs by then, the
supervisor does nothing.
"""

from __future__ import annotations

import sys
import time

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import CONFLICT, FAILED, USAGE, CliError, Problem, Unreachable
from supervisor.cli.files.local_inputs import machines_here, settle_code, settle_environment
from supervisor.cli.finding import choose_run
from supervisor.cli.options import not_empty, output_options, run_argument, run_filters, yes_option
from supervisor.cli.output import confirm, note, safe, show_run, suggest
from supervisor.cli.runs.cost import stored_line
from supervisor.cli.runs.specfile import in_words_of_file, read_spec
from supervisor.cli.views.profile import teardown_lines
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import count, money, plural

NAMES_SHOWN = 5
POLL_S = 0.5  # while a run is stopping
DRILL_POLL_S = 2.0
PURGE_POLL_S = 5.0
PURGE_STUCK_S = 60.0  # a purge that deletes no file for so long was cut off


@click.command()
@run_argument
@click.option("--all", "everything", is_flag=True, help="Every active run of this supervisor.")
@run_filters
@yes_option()
@output_options
def stop(*, client: Client, form: str, yes: bool, everything: bool, query: Json, run_id: str | None) -> None:
    """Stop a run, or every run that the filters match: the last checkpoint is saved, the machine is released."""
    if _filtered(query, run_id):
        _change_matching(client, "stop", query, form, yes)
        return
    if everything:
        if run_id is not None:
            raise click.UsageError(f"Name {run_id} or use --all, not both.")
        _stop_all(client, form, yes)
        return
    name = choose_run(client, run_id)
    if run_id is None:
        confirm(f"Stop {name}?", yes)
    run = client.post(run_path(name, "stop"), {})
    show_run(run, form)
    suggest(f"spot resume {name}" if run["status"] in TERMINAL else f"spot watch {name}")


def _filtered(query: Json, run_id: str | None) -> bool:
    """Whether filters were given. An empty one counts: it comes from an unset variable and must not select another
    run."""
    filtered = any(value is not None for value in query.values())
    if filtered and run_id is not None:
        raise click.UsageError(f"Name {run_id} or use filters, not both.")
    return filtered


def _change_matching(client: Client, action: str, query: Json, form: str, yes: bool) -> None:
    """`action`: stop or resume. Raises Abort at a no, Exit where a run refuses."""
    plan = _pages(client, action, query, {"dry_run": True})
    if plan["changed"]:
        confirm(_question(action, plan), yes)
        done = _pages(client, action, query, {"expect": plan["matched"]})
    else:
        done = plan
        note(f"{_matching(plan['matched'], 'run')}; there is nothing to {action}.")
    if not output.emit(done, [{"run_id": name} for name in done["runs"]], form, "run_id") and plan["changed"]:
        click.echo(f"{action}: {plural(done['changed'], 'run')}, {done['unchanged']} unchanged.")
    for refusal in done["refused"]:
        note(f"{safe(refusal['run_id'])}: {safe(refusal['detail'])}     ({safe(refusal['code'])})")
    if done["refused"]:
        raise click.exceptions.Exit(FAILED)


def _question(action: str, plan: Json) -> str:
    names, more = plan["runs"][:NAMES_SHOWN], plan["changed"] - NAMES_SHOWN
    listed = ", ".join(map(safe, names)) + (f" and {more} more" if more > 0 else "")
    others = plan["matched"] - plan["changed"]
    rest = f"; {_matching(others, 'other')} and {'stays' if others == 1 else 'stay'} unchanged" if others else ""
    return f"{action.capitalize()} {plural(plan['changed'], 'run')} ({listed}{rest})?"


def _matching(count: int, noun: str) -> str:
    return f"{plural(count, noun)} {'matches' if count == 1 else 'match'}"


def _pages(client: Client, action: str, query: Json, body: Json) -> Json:
    """All pages as one response; the first page says how many runs match, and it alone gets `expect`."""
    result: Json = {}
    cursor: str | None = None
    while True:
        page = client.send("POST", f"/v1/runs/{action}", {**query, "cursor": cursor}, body).json()
        if not result:
            result = {name: page[name] for name in ("dry_run", "matched", "changed", "unchanged", "refused", "runs")}
            body = {name: value for name, value in body.items() if name != "expect"}
        else:
            for name in ("changed", "unchanged", "refused", "runs"):
                result[name] += page[name]
        cursor = page["next_cursor"]
        if not page["more"]:
            return result


def _stop_all(client: Client, form: str, yes: bool) -> None:
    from supervisor.cli.runs import fleet

    runs = fleet.active(client)
    for line in fleet.run_lines(runs):
        note(line)
    if runs:
        confirm(f"Stop {plural(len(runs), 'run')} ({fleet.cost_of(runs)})?", yes)
    else:
        note("No run is active.")
    stopped = fleet.stop_each(client, runs)
    if not output.emit({"runs": stopped}, stopped, form, "run_id"):
        output.show(map(output.run_line, stopped))
    suggest("spot ls --machines")


@click.command()
@run_argument
@click.option("--spec", "file", metavar="FILE", help="Continue with this spec (YAML).")
@click.option("--replace-spec", is_flag=True, help="Accept a spec that differs from the run's.")
@click.option("--rerun", is_flag=True, help="Start over, a completed run too, without its checkpoint.")
@click.option("--no-wait", is_flag=True, help="Refuse (exit 6) while the run is still stopping.")
@run_filters
@yes_option()
@output_options
def resume(
    *,
    client: Client,
    form: str,
    yes: bool,
    query: Json,
    run_id: str | None,
    file: str | None,
    no_wait: bool,
    **changes: bool,
) -> None:
    """Restart an ended run, or every run that the filters match, from its checkpoint.

    A run that is stopping is resumed when it has stopped; a live run is left alone.
    """
    if _filtered(query, run_id):
        if file is not None or any(changes.values()):
            raise click.UsageError("With filters each run keeps its own spec: leave out the other options.")
        _change_matching(client, "resume", query, form, yes)
        return
    name = choose_run(client, run_id)
    body: Json = {**changes}  # replace_spec, rerun
    if file is not None:
        is_local = machines_here(client)
        body["spec"] = read_spec(file, is_local=is_local)[1]
        settle_environment(body["spec"], None, client.url, is_local)
        settle_code(client, body["spec"])
    try:
        run = _resumed(client, name, body, no_wait)
    except Problem as error:
        raise in_words_of_file(error, file) from None
    show_run(run, form)
    suggest(f"spot watch {name}")


def _resumed(client: Client, name: str, body: Json, no_wait: bool) -> Json:
    path = run_path(name, "resume")
    try:
        return dict(client.post(path, body))
    except Problem as error:
        if no_wait or error.code != "RUN_STOPPING":
            raise
    note(f"{name} is still stopping and is resumed when it has stopped. Ctrl-C leaves.")
    with output.detaching(f"Left; {name} continues to stop. Then resume it: spot resume {name}"):
        while True:
            time.sleep(POLL_S)
            try:  # a repeated resume of a live run changes nothing
                return dict(client.patiently(lambda: client.post(path, body)))
            except Problem as error:
                if error.code != "RUN_STOPPING":
                    raise


@click.command()
@run_argument
@output_options
def retry(client: Client, form: str, run_id: str | None) -> None:
    """Request the machine of a waiting run now, without waiting for the end of its backoff.

    A run that waits for your answer, such as one that was killed again, goes on.
    """
    name = choose_run(client, run_id)
    show_run(client.post(run_path(name, "retry"), {}), form)
    suggest(f"spot watch {name}")


@click.command()
@run_argument
@click.option("--wait", is_flag=True, help="Wait for the verdict; exit 1 unless the run survives a notice.")
@output_options
def drill(*, client: Client, form: str, run_id: str | None, wait: bool) -> None:
    """Prove that a training survives a preemption notice, before the first one.

    It is asked to leave as at a real notice, in each phase that it knows and twice in a row; its save is uploaded,
    restored on the same machine and measured. No machine is requested, and no attempt ends.
    """
    name = choose_run(client, run_id)
    run = client.post(run_path(name, "drill"), {})
    before = run["drill"]["drilled_at"]
    if not wait:
        show_run(run, form)
        suggest(f"spot show {name}")
        return
    note(f"A drill of {name} goes on. Ctrl-C leaves; the drill continues.")
    with output.detaching(f"Left; the drill of {name} continues: spot show {name}"):
        while run["drill"]["going_on"] and run["status"] not in TERMINAL:
            time.sleep(DRILL_POLL_S)
            run = client.patiently(lambda: client.get(run_path(name)))
    show_run(run, form)
    is_judged = run["drill"]["drilled_at"] != before  # else the verdict is that of an earlier drill
    note(safe(run["drill"]["text"]) if is_judged else f"This drill came to nothing; spot events {name} says why.")
    if not is_judged or run["drill"]["verdict"] != "survives":
        raise click.exceptions.Exit(FAILED)


@click.command()
@run_argument
@click.option("--verb", metavar="VERB", callback=not_empty, help="How the machine is given back; the list is shown.")
@click.option("--meter-stopped", is_flag=True, help="You have seen that the host is billed no more.")
@click.option("--accept-loss", metavar="REASON", help="Give up unverified results; REASON is recorded.")
@click.option("--write-off", metavar="REASON", help="Its host is lost for good: go on from what is here.")
@yes_option()
@output_options
def approve(
    *,
    client: Client,
    form: str,
    run_id: str | None,
    verb: str | None,
    meter_stopped: bool,
    accept_loss: str | None,
    write_off: str | None,
    yes: bool,
) -> None:
    """Give back the machine of a finished run, after you have checked that its results are safe.

    A host is billed until somebody stops it: the run waits until a later read, or you, confirm that.
    """
    name = choose_run(client, run_id)
    if write_off is not None:
        _write_off(client, form, name, write_off, yes)
        return
    run = client.get(run_path(name))
    machine_id, manifest = run.get("machine_id"), run.get("results_manifest_sha256")
    if not machine_id:
        text = f"{name} is {run['status']} and has no machine: nothing to approve."
        raise CliError(text, FAILED, "NOTHING_TO_APPROVE")
    note(safe(run["status_text"]))
    usd_per_h = run.get("price_usd_per_h")
    price = "it costs nothing" if usd_per_h == 0 else f"{money(usd_per_h)}/h"
    note(f"machine {safe(machine_id)}, {price}, results manifest {safe(manifest or 'none')}")
    body: Json = {"machine_id": machine_id, "results_sha256": manifest}
    question = f"Give up the results of {name} and release it?"
    if accept_loss:
        body["accept_loss"] = accept_loss
    else:
        teardown = client.get(run_path(name, "teardown"))
        for line in teardown_lines(teardown):
            note(line)
        question = _teardown_question(teardown, machine_id, verb, meter_stopped)
        body |= {"verb": verb} if verb else {}
        body |= {"meter_stopped": True} if meter_stopped else {}
    confirm(question, yes)
    show_run(client.post(run_path(name, "approve"), body), form)
    suggest(f"spot show {name}")


def _write_off(client: Client, form: str, name: str, reason: str, yes: bool) -> None:
    run = client.get(run_path(name))
    note(safe(run["status_text"]))
    step = run["checkpoint_step"]
    note(
        "What is on its host only is given up." + ("" if step is None else f" Newest known checkpoint: {count(step)}.")
    )
    confirm(f"Write off the machine of {name}?", yes)
    show_run(client.post(run_path(name, "write-off"), {"machine_id": run.get("machine_id"), "reason": reason}), form)
    suggest(f"spot watch {name}")


def _teardown_question(teardown: Json, machine_id: str, verb: str | None, meter_stopped: bool) -> str:
    host = teardown["host"]
    if meter_stopped:
        return f"Have you seen that {safe(host or machine_id)} is billed no more?"
    usual = next((each["verb"] for each in teardown["verbs"] if each["usual"]), "release")
    return f"{safe(verb or usual).capitalize()} {safe(host)}?" if host else f"Release {safe(machine_id)}?"


@click.command()
@click.argument("run_id", metavar="RUN", callback=not_empty)
@click.option("--confirm", "typed", metavar="RUN", help="The id of the run again, instead of the question.")
@output_options
def purge(client: Client, form: str, run_id: str, typed: str | None) -> None:
    """Delete all files of an ended run: results, checkpoints, logs. Its history and shared code stay.

    Its machines must be gone. The same command finishes a purge that was cut off.
    """
    run, cost = client.get(run_path(run_id)), client.get(run_path(run_id, "cost"))
    if typed is None and run["status"] not in TERMINAL:
        text = f"Nothing of {run_id} was deleted, because it is {run['status']}. Stop it first, and wait for its end."
        raise CliError(text, CONFLICT, "PURGE_REFUSED", (f"spot stop {run_id}",))
    results = run.get("results")
    files = "none verified" if results is None else f"{count(results['files'])} verified"
    note(safe(run["status_text"]))
    note(stored_line(cost))
    note(f"Newest checkpoint: {count(run['checkpoint_step'])}. Results: {files}. All of it is deleted for good.")
    if typed is None:
        typed = _typed(run_id)
    if typed != run_id:
        raise CliError(f"Nothing was deleted: {typed!r} is not {run_id}.", USAGE, "INVALID_REQUEST")
    show_run(_purged(client, run_id), form)
    suggest(f"spot events {run_id}")


def _typed(run_id: str) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError(f"Add --confirm {run_id}: there is no terminal to ask on.")
    return str(click.prompt(f"Type {run_id} to delete all of its files", err=True)).strip()


def _purged(client: Client, run_id: str) -> Json:
    """One request. Where its response takes longer than the client waits, the run shows whether the purge is over, and
    the number of its files whether it still proceeds."""
    try:
        return dict(client.post(run_path(run_id, "purge"), {"confirm": run_id}))
    except Unreachable as error:
        if not error.sent:
            raise
        lost = error
    run = client.get(run_path(run_id))
    if not run["purging"] and run["purged_at"] is None:
        raise lost
    note("The purge takes longer than one request. Ctrl-C leaves; the purge continues.")
    left, since = 0, time.monotonic()
    while run["purging"]:
        time.sleep(PURGE_POLL_S)
        files = client.get(run_path(run_id, "cost"))["files"]
        if files != left:
            left, since = files, time.monotonic()
        elif time.monotonic() - since > PURGE_STUCK_S:
            text = f"The purge of {run_id} was cut off. Repeat it: it continues where it stopped."
            raise CliError(text, FAILED, "UNAVAILABLE", (f"spot purge {run_id}",))
        run = client.get(run_path(run_id))
    return dict(run)
