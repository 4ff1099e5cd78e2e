"""What `spot show` tells below the attempts: the machines they had, the last beat, where the files lie; and the spec.

The older runner's summary told the same three: manifest, heartbeat, instance history.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.cli.client import Json
from supervisor.cli.words import clock, safe
from supervisor.domain.access.plaintext import HIDDEN
from supervisor.wording.figures import plural
from supervisor.wording.optional_figures import count, duration

SHOWN = 5


def machine_lines(attempts: Sequence[Json]) -> list[str]:
    """`machines: 1 spot-…-a1-t1 (g2-standard-8) in us-east1-c, gone 02:14:02 · 2 …`: the newest few, by attempt. Their
    shape stands here where the table of attempts names the GPU instead."""
    named = [one for one in attempts if one.get("machine")]
    if not named:
        return []
    left_out = len(named) - SHOWN
    told = [f"{plural(left_out, 'earlier one')} in instances/"] if left_out > 0 else []
    return ["machines: " + " · ".join([*told, *map(_machine, named[-SHOWN:])])]


def _machine(attempt: Json) -> str:
    place = attempt.get("placement") or {}
    zone, shape = safe(place.get("zone") or "?"), f" ({safe(place['shape'])})" if place.get("gpu") else ""
    if attempt.get("gone_at"):
        ended = f", gone {clock(attempt['gone_at'])}"
    else:
        ended = ", not known gone yet" if attempt.get("ended_at") else ""
    return f"{attempt['number']} {safe(attempt['machine'])}{shape} in {zone}{ended}"


def account_lines(run: Json) -> list[str]:
    """Whose machines these are, by name and number, and how to see the same ones: gcloud and the Cloud Console show
    those of whatever project they were last told."""
    account = run.get("account") or {}
    if not account.get("console_url"):
        return []
    name, number = safe(account["name"]), account.get("number")
    whose = f"project {name}" + (f" (number {safe(number)})" if number else "")
    return [f"in {whose}: {safe(account['console_url'])} · gcloud: --project={name}"]


def beat_lines(run: Json) -> list[str]:
    """`last beat 8 s ago, phase training, step 12,300 of 50,000, checkpoint 12,000`; nothing where no attempt lives."""
    beat, progress = run.get("beat"), run.get("progress") or {}
    if not beat:
        return []
    told = [f"last beat {duration(beat.get('age_s'))} ago", f"phase {safe(beat.get('phase') or '?')}"]
    if progress.get("step") is not None:
        total = f" of {count(progress['total'])}" if progress.get("total") else ""
        told.append(f"step {count(progress['step'])}{total}")
    if run.get("checkpoint_step") is not None:
        told.append(f"checkpoint {count(run['checkpoint_step'])}")
    return [", ".join(told)]


def files_lines(run: Json) -> list[str]:
    """Where the manifest and the instance history are, or will be."""
    return [f"files {safe(run['files_url'])}"] if run.get("files_url") else []


def spec_text(spec: Json) -> str:
    """The spec as a file that `spot submit FILE` takes."""
    import yaml

    def text(allow_unicode: bool) -> str:
        form = yaml.safe_dump(spec, sort_keys=False, allow_unicode=allow_unicode, default_flow_style=False)
        return str(form)

    return (
        text(False) if HIDDEN.search(text(True)) else text(True)
    )  # YAML's own escapes: it can be submitted again
