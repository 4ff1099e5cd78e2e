"""`agent.pyz host`: one operation on the machines of this computer, asked for through SSH.

The request is a JSON object on standard input, the response one JSON object on standard output, on a line of its own
after a mark: a login shell may print a banner first. A refusal is a response too; only an error of this program itself
ends with another exit code than 0. Each operation is safe to repeat.

All machines of a user on this computer are in one folder, so supervisors that share the computer see each other's
machines, share one lock, and never give one card to two machines.

Each operation is a process of its own, and imports are most of its time: what only some operations need is imported
late.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from supervisor.contract.cards import Card, card_values
from supervisor.host import processes, refusals
from supervisor.host.cards import Cards
from supervisor.host.files import Unreadable
from supervisor.host.folders import Folders
from supervisor.host.inspector import ASKED, ENDED, Inspection, Survey, boottime_s, machine_values
from supervisor.host.machines import Admission, Machines
from supervisor.host.nvidia_smi import CardsUnread, NvidiaSmi
from supervisor.host.relaunching import RELAUNCH, BootLine, relaunch
from supervisor.host.starting import Agents, Start

if TYPE_CHECKING:
    from supervisor.host.stays import Stays

ANSWER = "spot-host:"  # begins the line of the response
STAYS = "stays"  # the folder of stays.py
OWN = "host"  # the folder of this program's own files
SYSTEMD_RUN = ("systemd-run", "--user", "--scope", "--quiet", "--collect")
SYSTEMD_WAIT_S = 5.0
REFUSALS = {
    refusals.Refused: "refused",
    refusals.NoCapacity: "no_capacity",
    refusals.InUse: "in_use",
    refusals.Missing: "missing",
    refusals.Unfinished: "unfinished",
    Unreadable: "unreadable",
}

Request = Dict[str, Any]


class Host:
    """`root`: the folder of all machines, in the user's home. `promised`: shape -> cards of each of its machines."""

    def __init__(self, request: Request) -> None:
        self._request = request
        root = Path(os.path.expanduser(request["root"]))
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folders, agents = Folders(root.resolve(), OWN), Agents(sys.executable)
        self._root, self._agents = root, agents
        self._stays_root = Path(os.path.abspath(root))  # its links are those of the nodes that share the folder
        self._cards = Cards(
            request.get("promised") or {},
            folders,
            started=agents.lives,
            smi=NvidiaSmi(),
            setting=str(request.get("setting") or "the settings"),
        )
        self._machines = Machines(folders, agents, time.time, keep=self._cards.quarantine.keep)

    def probe(self) -> Dict[str, Any]:
        """Everything that a tick asks of this computer. `store`: a folder that may be the object store; `with_cuda`:
        the driver is asked for its version too."""
        survey = self._machines.survey()
        self._machines.archive_old(survey.over)
        self._drop_boot_line()
        cards, cuda = None, None
        with suppress(CardsUnread):  # then a launch says why, and the capacity is not known
            cards = self._cards.refresh(survey)
        if cards and self._request.get("with_cuda"):
            with suppress(CardsUnread):
                cuda = NvidiaSmi().cuda()
        left = self._cards.left(survey)
        folder = self._request.get("store")
        return {
            "cards": None if cards is None else [card_values(card) for card in cards],
            "cuda": cuda,
            "store": None if not folder else store_folder(str(folder)),
            "machines": [machine_values(machine) for machine in survey.machines],
            "unreadable": survey.unreadable,
            "cards_left": left[0],
            "all_cards": left[1],
            "others": left[2],
            "beats": self._beats(),
            **computer(self._root),
        }

    def cards(self) -> Dict[str, Any]:
        return {"cards": [card_values(card) for card in self._states(self._machines.survey())]}

    def start_again(self) -> Dict[str, Any]:
        """As `launch`, on a machine of an earlier launch of the run that is off."""
        return self.launch(self._machines.start_again)

    def switch_off(self) -> Dict[str, Any]:
        self._machines.switch_off(*self._ref())
        return {}

    def launch(self, begin: Optional[Callable[..., Inspection]] = None) -> Dict[str, Any]:
        """`launch`: the agent's job with name, zone, supervisor_id, run_id and launch_id. `shape`; `most`: machines at
        once, null = no limit. `secrets`: name -> value; null: they cannot be read, so nothing is started."""
        request, shape = self._request, self._request["shape"]
        admission = Admission(
            lambda: self._admit(request.get("most"), shape), lambda folder, job: self._renew(folder, job, shape)
        )
        _check_store(str(request["launch"].get("store_url") or ""))
        archive = Path(sys.argv[0]).resolve()
        relaunches = request["launch"].get("on_reboot") == RELAUNCH
        if relaunches:  # a host that cannot do it refuses the launch
            self._boot_line().install()
        machine = (begin or self._machines.launch)(request["launch"], archive, admission, lambda: _start(request))
        if relaunches:  # a probe beside this launch may have removed the line, because no machine wanted it yet
            self._boot_line().install()
        return {"machine": machine_values(machine)}

    def relaunch(self) -> Dict[str, Any]:
        """After a reboot, and before each request that looks at machines."""
        return {"started": relaunch(self._machines.folders, self._agents, detaching_prefix, time.time())}

    def _drop_boot_line(self) -> None:
        """Where no machine wants it any more. What cannot be removed, or not be known, stays until the next probe."""
        with suppress(refusals.Refused, Unreadable, OSError):
            self._boot_line().remove_unneeded(self._machines.folders)

    def _boot_line(self) -> BootLine:
        root = self._root.resolve()
        return BootLine(root, Path(sys.argv[0]).resolve(), lingers(), root / OWN / "boot_line")

    def find(self) -> Dict[str, Any]:
        machine = self._machines.find(*self._ref())
        return {"machine": None if machine is None else machine_values(machine)}

    def release(self) -> Dict[str, Any]:
        self._machines.release(*self._ref())
        self._drop_boot_line()
        return {}

    def stop(self) -> Dict[str, Any]:
        self._machines.ask_to_stop(*self._ref())
        return {}

    def console(self) -> Dict[str, Any]:
        """`start` null: the tail, also of a machine that was released."""
        start, max_bytes = self._request.get("start"), int(self._request["max_bytes"])
        if start is None:
            content, first = self._machines.folders.console(self._request["name"], max_bytes), 0
        else:
            content, first = self._machines.existing(*self._ref()).console_after(int(start), max_bytes)
        return {"content": content.decode("utf-8", "surrogateescape"), "start": first}

    def bring_back(self) -> Dict[str, Any]:
        return {"back": self._cards.quarantine.bring_back(self._request["uuid"])}

    def preempt(self) -> Dict[str, Any]:
        folder = self._machines.existing(*self._ref())
        self._machines.notice(folder, float(self._request["notice_s"]))
        self._machines.inspect(folder)
        return {}

    def kill(self) -> Dict[str, Any]:
        self._machines.kill(*self._ref())
        return {}

    def freeze(self) -> Dict[str, Any]:
        self._machines.freeze(*self._ref())
        return {}

    def stay(self) -> Dict[str, Any]:
        """One method of an object store on this computer (stays.py)."""
        return self._stays().respond(self._request, self._owners)

    def jobs(self, request: Optional[Request] = None) -> Dict[str, Any]:
        """One method of the folders of a scheduler's jobs (jobfolders.py)."""
        from supervisor.host.jobfolders import JobFolders

        archive = Path(sys.argv[0]).resolve()
        folders = JobFolders(self._machines.folders, lambda: archive, locks=True, checks_store=True, beats=self._beats)
        return folders.respond(request or self._request)

    def command(self) -> Dict[str, Any]:
        """A program of this computer, without a shell. `environment`: variables that it gets beside those of the login,
        without those whose name begins with one of `without` and is not in `keeping`. `then`: `jobs` after it."""
        import subprocess

        request, then = self._request, self._request["then"]
        foreign, keeping = tuple(request["without"]), request["keeping"]
        kept = {name: text for name, text in os.environ.items() if name in keeping or not name.startswith(foreign)}
        try:
            done = subprocess.run(
                request["words"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=float(request["timeout_s"]),
                env={**kept, **request["environment"]},
                check=False,
            )
        except subprocess.TimeoutExpired:
            text = "%s did not answer within %g s" % (request["words"][0], request["timeout_s"])
            raise refusals.Unfinished(text) from None
        except OSError as error:
            raise refusals.Unfinished("%s cannot be started: %s" % (request["words"][0], error)) from None
        output, errors = (each.decode("utf-8", "replace") for each in (done.stdout, done.stderr))
        return {"exit_code": done.returncode, "output": output, "errors": errors, "then": then and self.jobs(then)}

    def _stays(self) -> Stays:
        from supervisor.host.stays import Stays

        return Stays(self._stays_root)

    def _beats(self) -> List[Dict[str, Any]]:
        return self._stays().beats() if (self._stays_root / STAYS).is_dir() else []

    def _owners(self) -> List[Any]:
        """(supervisor id, run id) of each machine that is not known gone."""
        jobs = [folder.job() for folder in self._machines.folders.all() if folder.gone_at() is None]
        return [(job.supervisor_id, job.run_id) for job in jobs if job is not None]

    def _ref(self) -> Any:
        return self._request["name"], self._request.get("machine_id")

    def _states(self, survey: Survey) -> List[Card]:
        return list(self._cards.states(survey))

    def _admit(self, most: Optional[int], shape: str) -> Any:
        living = sum(machine.state not in (ASKED, ENDED) for machine in self._machines.survey().machines)
        if most is not None and living >= most:
            raise refusals.InUse(f"{living} of {most} machines run on this computer")
        return self._cards.choose(shape, self._machines.survey)

    def _renew(self, folder: Any, job: Any, shape: str) -> None:
        chosen = self._cards.choose(shape, self._machines.survey, job.gpu_ids or ())
        if chosen is not None and chosen != job.gpu_ids:
            folder.write_cards(chosen)


OPERATIONS = {
    name: getattr(Host, name)
    for name in (
        "probe", "cards", "launch", "find", "release", "stop", "console", "bring_back", "preempt", "kill", "freeze",
        "stay", "relaunch", "jobs", "command", "start_again", "switch_off",
    )
}  # type: Dict[str, Callable[[Host], Dict[str, Any]]]  # fmt: skip


LOOKS = (Host.probe, Host.find, Host.launch, Host.start_again)  # they may see a machine whose agent a reboot has ended


def main() -> int:
    """Exit code 0: there is a response; 2: the request is not understood."""
    try:
        words = sys.argv[2:]  # from the line that runs after a reboot
        request = {"operation": words[0], "root": words[1]} if words else json.load(sys.stdin)
        operation = OPERATIONS[request["operation"]]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        sys.stderr.write("spot: not a request: %r\n" % error)
        return 2
    response = respond(lambda: _responded(Host(request), operation))
    sys.stdout.write("\n%s%s\n" % (ANSWER, json.dumps(response)))
    return 0


def _responded(host: Host, operation: Callable[[Host], Dict[str, Any]]) -> Dict[str, Any]:
    if operation in LOOKS:
        with suppress(OSError, Unreadable):  # then the machines are as any others after a reboot
            host.relaunch()
    return operation(host)


def respond(operation: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    """Its result, or `{"refusal": kind, "text": reason}`."""
    try:
        return operation()
    except tuple(REFUSALS) as error:
        kind = next(name for kind_of_error, name in REFUSALS.items() if issubclass(type(error), kind_of_error))
        return {"refusal": kind, "text": str(error)}
    except OSError as error:
        return {"refusal": "unreadable", "text": str(error)}


def _check_store(url: str) -> None:
    """Raises Refused: an agent on another computer would wait for a folder that never comes."""
    from supervisor.contract.stores.durable import MARKER

    path = url[len("file://") :]
    if url.startswith("file://") and not os.path.exists(os.path.join(path, MARKER)):
        raise refusals.Refused(
            "the object store %s is not on this host: use a folder that both have, or a bucket, or "
            "ssh_store = relay: then the supervisor copies everything" % url
        )


def store_folder(path: str) -> Dict[str, Any]:
    """The object store in this folder. `marked_at`: whole seconds, as everywhere where the same folder is mounted;
    null = there is none. `writable`; `system`: the type of its file system, "" = not known."""
    from supervisor.contract.stores.durable import MARKER

    try:
        marked_at = int(os.stat(os.path.join(path, MARKER)).st_mtime)
    except OSError:
        return {"marked_at": None, "writable": False, "system": ""}
    writable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
    return {"marked_at": marked_at, "writable": writable, "system": file_system(os.path.realpath(path))}


def file_system(path: str) -> str:
    """Its type, by the longest mount point above the path; of two at the same point the last one counts."""
    best, system = -1, ""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for words in (line.split(" ") for line in lines):
        point = words[1].replace("\\040", " ") if len(words) > 2 else ""
        if point and (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= best:
            best, system = len(point), words[2]
    return system


def computer(root: Path) -> Dict[str, Any]:
    """What this computer is and has now; null: could not be read."""
    disk = os.statvfs(root)
    return {
        "boot_id": processes.boot_id(),
        "uptime_s": boottime_s(),
        "at": time.time(),
        "python": sys.version.split()[0],
        "host": os.uname().nodename,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_max_bytes": _memory_max(),
        "disk_free_bytes": disk.f_bavail * disk.f_frsize,
        "disk_bytes": disk.f_blocks * disk.f_frsize,
        "inodes_free": disk.f_favail,
        "inodes": disk.f_files,
        "tmux": shutil.which("tmux") is not None,
        "lingers": lingers(),
    }


def _memory_max() -> Optional[int]:
    """Of this process's control group; null = no limit."""
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def lingers() -> bool:
    """systemd keeps the processes of this user when the last session ends."""
    return os.path.exists("/var/lib/systemd/linger/%s" % _user())


def _user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        return ""


def _start(request: Request) -> Start:
    """The environment of the login without our settings, and the secrets of the request."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    for name in ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK"):
        environment.pop(name, None)  # the connection ends, and the training must not use the user's keys
    if request["secrets"] is None:
        raise refusals.Refused("the secrets of the run cannot be read")
    return Start(environment, request["secrets"], detaching_prefix())


def detaching_prefix() -> List[str]:
    """With a scope of its own under systemd, a logout that kills the processes of the session spares the agent. It
    helps only where the user's own systemd outlives the session; else a session of its own is enough (setsid)."""
    if not lingers() or shutil.which(SYSTEMD_RUN[0]) is None:
        return []
    import subprocess

    try:
        tried = subprocess.run(
            [*SYSTEMD_RUN, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=SYSTEMD_WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return list(SYSTEMD_RUN) if tried.returncode == 0 else []
