"""The processes of this machine as evidence: who was there, in which state, with how much memory."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from supervisor.agent.facts.threaddump import command_of
from supervisor.agent.machine.leftovers import leftovers

SHOWN, COMMAND_CHARS = 200, 300


def tree(group: Optional[int], marker: str, mask: Callable[[str], str]) -> List[Dict[str, Any]]:
    """The command and all that it started, except the agent, those with the most memory first; SHOWN at most. `mask`
    takes secrets out of a command line before it is cut."""
    seen = (_process(pid, mask) for pid in leftovers(group, marker))
    found = [process for process in seen if process is not None]
    return sorted(found, key=lambda process: -(process["rss_bytes"] or 0))[:SHOWN]


def _process(pid: int, mask: Callable[[str], str]) -> Optional[Dict[str, Any]]:
    """None when it has ended meanwhile."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as source:
            fields = dict(line.partition(":")[::2] for line in source)
    except OSError:
        return None
    rss_kib = _number(fields, "VmRSS")
    return {
        "pid": pid,
        "parent": _number(fields, "PPid"),
        "name": fields.get("Name", "").strip(),
        "state": fields.get("State", "").strip(),
        "threads": _number(fields, "Threads"),
        "rss_bytes": None if rss_kib is None else 1024 * rss_kib,
        "command": mask(command_of(pid))[:COMMAND_CHARS],
    }


def _number(fields: Dict[str, str], name: str) -> Optional[int]:
    words = fields.get(name, "").split()
    return int(words[0]) if words and words[0].isdigit() else None
