"""Names that never collide, are never truncated and are never random.

Shared with the agent: Python 3.8, standard library only. Every name is a pure function of what it names. A repeated
create call therefore carries the same name and the same request id, and finds its own earlier work (RULES section 6).
"""

from __future__ import annotations

import re
from typing import Tuple

RUN_ID_RULE = "2 to 63 of a-z, 0-9 and -, beginning with a letter, ending with a letter or digit"
_RUN_ID = re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]\Z")
_LAUNCH_ID = re.compile(r"([1-9][0-9]{0,8})\.([1-9][0-9]{0,8})\.([1-9][0-9]{0,8})\Z")


def is_run_id(text: str) -> bool:
    """True when `text` can be the public id of a run (see RUN_ID_RULE)."""
    return bool(_RUN_ID.match(text))


def launch_id(generation: int, attempt: int, try_number: int) -> str:
    """`<generation>.<attempt>.<try>`: one per create call, compared as integers by `parse_launch_id`."""
    return "%d.%d.%d" % (generation, attempt, try_number)


def parse_launch_id(text: str) -> Tuple[int, int, int]:
    """(generation, attempt, try) of a launch id; ValueError for anything else."""
    match = _LAUNCH_ID.match(text)
    if match is None:
        raise ValueError("not a launch id: %r" % text[:40])
    return int(match.group(1)), int(match.group(2)), int(match.group(3))


def machine_name(prefix: str, supervisor_id: str, run_id: str, attempt: int, try_number: int) -> str:
    """The machine's name. It hashes the run id and truncates nothing, so no two attempts share a name."""
    import hashlib  # late, as in stores/durable.py

    digest = hashlib.sha256((supervisor_id + run_id).encode()).hexdigest()[:8]
    return "%s-%s-a%d-t%d" % (prefix, digest, attempt, try_number)


def request_id(supervisor_id: str, run_id: str, generation: int, attempt: int, try_number: int) -> str:
    """The id by which a provider recognizes a repeated create call."""
    import uuid  # late: an agent makes no request id

    namespace = uuid.uuid5(uuid.NAMESPACE_URL, supervisor_id)
    return str(uuid.uuid5(namespace, "%s/%s" % (run_id, launch_id(generation, attempt, try_number))))


def process_machine_id(boot_id: str, pid: int, start_ticks: int) -> str:
    """The id of a machine that is a process and has no name from a platform. A process id alone can repeat; together
    with the boot and the start (clock ticks since boot, which no change of the wall clock moves) it never does. Agent
    and supervisor each compute it."""
    return "local:%s:%d:%d" % (boot_id[:8], pid, start_ticks)


def label_value(text: str) -> str:
    """`text` as a cloud label value: lower case, `[a-z0-9_-]`, at most 63 characters."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


def nonce_hash(nonce: str) -> str:
    """What the database keeps of a try's nonce: enough to check a nonce, not enough to forge one."""
    import hashlib  # late, as in stores/durable.py

    return hashlib.sha256(nonce.encode()).hexdigest()
