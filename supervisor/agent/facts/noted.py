"""What a paper must tell of one attempt, noted once in `instances/<n>.facts.json` soon after the command's start.

Its own thread at the lowest priority collects it, so the training never waits for it. A fact that is missing here was
not found out, and `absent` says why; null was found out: there is none.

The machine under the training (kernel, processor, memory, the graphics driver and its cards) is read from /proc, which
containers see too. Where the driver shows nothing there (WSL, say) nvidia-smi is asked. The command's own Python is the
one that the command names, else the one that its PATH finds: it is asked once which it is and what is installed there.
The probe (pythonprobe.py) imports nothing of the training; after TIMEOUT_S it is given up.

The page of the experiment tracker is looked for in the first lines of the log, and the facts are written once more when
it is found. Only addresses that trackers themselves print are taken; a link to some documentation is none. Parameters
that look like keys lose their value, whoever's they are.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from supervisor.agent.machine.folder import Job
from supervisor.agent.machine.gpus import names_of
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.nvml import PROGRAM, query
from supervisor.agent.watch.ends import Attention
from supervisor.agent.watch.output import LineTail
from supervisor.contract import runfiles
from supervisor.contract.stores.promise import ObjectStore, StoreUnavailable

TIMEOUT_S = 20.0
KILLED = "the Python that was asked was killed"
NAMES = ("python", "python_executable", "python_prefix", "packages", "torch", "cuda", "cudnn")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*$")
_REST = r"[^\s\"'<>)\]}]*"
_PAGE = re.compile(
    "|".join(
        (
            r"https?://(?:[\w-]+\.)*wandb\.ai/[\w.%@-]+/[\w.%@-]+/runs/" + _REST,
            r"https?://[^\s/]+(?:/[\w.%-]+)*/#/experiments/\d+/runs/" + _REST,  # MLflow
            r"https?://[^\s/]+/ml/experiments/\d+/runs/" + _REST,  # MLflow on Databricks
            r"https?://(?:www\.)?comet\.(?:com|ml)/[\w.%-]+/[\w.%-]+/[0-9a-f]{32}" + _REST,
            r"https?://(?:app|scale)\.neptune\.ai/[\w.%-]+/[\w.%-]+/(?:e|runs|-/run)/" + _REST,
            r"https?://huggingface\.co/spaces/[\w.%-]+/" + _REST,  # Trackio
            r"https?://[\w-]+\.hf\.space" + _REST,  # the same
        )
    )
)
_OWN_SERVER = re.compile(r"https?://[^\s/]+/[\w.%@-]+/[\w.%@-]+/runs/" + _REST)  # Weights & Biases
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_KEY = re.compile(r"([?&#][^=&#]*(?:key|token|secret|passw|auth|sig)[^=&#]*=)[^&#]*", re.IGNORECASE)
_USER = re.compile(r"^(https?://)[^/@]*@")
_MASK = re.compile(r"\[secret (\w+)\]")
MAX_CHARS = 512


def python_of(command: Union[str, Tuple[str, ...]], cwd: str, env: Mapping[str, str]) -> Optional[str]:
    """Its path; None when there is none. In a shell command the first word that names a Python counts."""
    for word in (*names_python(command), "python3", "python"):
        path = os.path.join(cwd, word) if os.path.dirname(word) else word
        python = shutil.which(path, path=env.get("PATH", os.defpath))
        if python is not None:
            return python
    return None


def names_python(command: Union[str, Tuple[str, ...]]) -> List[str]:
    """The word of the command that names a Python; empty where none does, as in `torchrun train.py`."""
    words = words_of(command)
    return [
        word for word in (words if isinstance(command, str) else words[:1]) if _PYTHON.match(os.path.basename(word))
    ][:1]


def python_facts(
    command: Union[str, Tuple[str, ...]], cwd: str, env: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> Tuple[Dict[str, Any], str]:
    """(what is known of NAMES, why the rest is not). A value of None: looked for and not installed."""
    python = python_of(command, cwd, env)
    if python is None:
        return {}, "no python is on the command's PATH"
    script = pkgutil.get_data("supervisor.agent.facts", "pythonprobe.py") or b""
    try:
        done = subprocess.run(
            [python, "-c", script.decode()],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode == -signal.SIGKILL:
            return {}, KILLED
        answer = json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
        return {name: answer[name] for name in NAMES}, ""
    except subprocess.TimeoutExpired:
        return {}, "%s did not answer within %g s" % (python, timeout_s)
    except OSError as error:
        return {}, "%s cannot be run: %s" % (python, error)
    except (ValueError, KeyError, TypeError):
        return {}, "%s failed when it was asked: %s" % (python, _last_words(done))


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return said[:200] or "exit code %d" % done.returncode


def words_of(command: Union[str, Tuple[str, ...]]) -> List[str]:
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError:  # quotes that do not end
        return command.split()


def find_tracker(line: str) -> Optional[str]:
    """The address of the tracker's page of this run; None when this line tells none. The line is masked already:
    what is cut off an address could keep a value in it from being found."""
    plain = _MASK.sub(r"masked-\1", _COLOUR.sub("", line))
    found = _PAGE.search(plain)
    if found is None and "wandb" in plain.lower():
        found = _OWN_SERVER.search(plain)
    if found is None:
        return None
    page = _KEY.sub(r"\1removed", _USER.sub(r"\1", found.group().rstrip(".,;:!")))
    return page[:MAX_CHARS]


NVIDIA = "/proc/driver/nvidia"
SMI_TIMEOUT_S = 15.0
_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")


def host_facts() -> Dict[str, Any]:
    """kernel, cpu, cores (that this machine may use) and memory_bytes; what cannot be read is left out."""
    system = os.uname()
    facts: Dict[str, Any] = {
        "kernel": system.release,
        "cpu": _field("/proc/cpuinfo", "model name") or system.machine,
        "cores": len(os.sched_getaffinity(0)),
    }
    total = _field("/proc/meminfo", "MemTotal").split()
    if total and total[0].isdigit():
        facts["memory_bytes"] = int(total[0]) * 1024
    return facts


def gpu_facts(only: Optional[Sequence[str]], proc: str = NVIDIA) -> Tuple[Dict[str, Any], str]:
    """(driver and gpus, why they are not known). `only`: indexes or UUIDs of this machine's cards; None = all.

    driver None: no NVIDIA driver is loaded, and so there is no card.
    """
    version = None
    try:
        with open(os.path.join(proc, "version"), encoding="utf-8") as source:
            version = _VERSION.search(source.read())
    except FileNotFoundError:
        if shutil.which(PROGRAM) is None:
            return {"driver": None, "gpus": []}, ""
    except OSError as error:
        return {}, "the driver cannot be read: %s" % error
    cards = _cards(proc)
    if version is not None and cards:
        return {"driver": version.group(1), "gpus": _names(cards, only)}, ""
    return _ask_smi(only)


def _cards(proc: str) -> List[Tuple[str, str, str]]:
    """(index, uuid, name) in the order of the bus, as CUDA counts them."""
    cards = []
    for number, path in enumerate(sorted(glob.glob(os.path.join(proc, "gpus", "*", "information")))):
        cards.append((str(number), _field(path, "GPU UUID"), _field(path, "Model")))
    return cards


def _ask_smi(only: Optional[Sequence[str]]) -> Tuple[Dict[str, Any], str]:
    try:
        rows = query(("index", "uuid", "name", "driver_version"), SMI_TIMEOUT_S)
        cards = [(index, uuid, name) for index, uuid, name, _ in rows]
        return {"driver": rows[0][3], "gpus": _names(cards, only)}, ""
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {}, "nvidia-smi did not tell of the driver: %s" % error


def _names(cards: Sequence[Tuple[str, str, str]], only: Optional[Sequence[str]]) -> List[str]:
    return [name for index, uuid, name in cards if only is None or index in only or uuid in only]


def _field(path: str, name: str) -> str:
    """The first value of `name: value` in this file; "" when there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            for line in source:
                key, colon, value = line.partition(":")
                if colon and key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return ""


VERSION = 1
MAX_BYTES = 131_072
COMMAND_CHARS = 16_384
WATCHED_LINES, WATCHED_S = 500, 300.0
LOOK_S, RETRY_S = 1.0, 5.0
_LOWEST = 19  # of nice(2)
_SEED_WORD = re.compile(r"(?:--?|\+*)([\w.-]*seed)(?:=(.*))?$", re.IGNORECASE)
_SEED_ENV = re.compile(r"(PYTHONHASHSEED|SEED|\w+_SEED)$")
_SEED = re.compile(r"(-?[0-9]{1,20}|random)$")  # anything else in such a variable is no seed of ours to publish
_log = logging.getLogger("agent")


class FactsDuty:
    """The step of the facts' thread: collect, write, watch the log for the tracker, write again."""

    def __init__(self, job: Job, store: ObjectStore, output: str, masker: Masker, attention: Attention) -> None:
        self._job, self._store, self._masker, self._attention = job, store, masker, attention
        self._tail, self._lines = LineTail(output), 0
        self._place: Tuple[str, Mapping[str, str]] = ("/", {})
        self._facts: Optional[Dict[str, Any]] = None
        self._asked = 0
        self._written: Optional[bytes] = None
        self._watched_until = 0.0
        self._last = False

    def of(self, cwd: str, env: Mapping[str, str]) -> None:
        """Where and with what environment the command was started. Before the first step."""
        self._place = (cwd, env)
        self._watched_until = time.monotonic() + WATCHED_S

    def finish(self) -> None:
        """The command has ended: one more look, and no further ones."""
        self._last = True

    def step(self) -> Optional[float]:
        last = self._last
        if self._attention.writing_over():
            return None
        if self._facts is None:
            _yield_to_everybody()
            facts = collect(self._job, *self._place)
            self._asked += 1
            if facts["absent"].get("python") == KILLED and self._asked < 2:
                return LOOK_S  # with what the command left behind: it has just ended, and finish() comes
            self._facts = with_hash({name: self._masker.json(fact) for name, fact in facts.items()})
        watching = self._watch(self._facts, last)
        data = encode(self._facts)
        if data != self._written and not self._attention.writing_over():  # collecting takes its time
            try:
                self._store.put(runfiles.facts(self._job.run_id, self._job.attempt), data)
            except (StoreUnavailable, OSError) as error:
                _log.info("the facts wait: %s", error)
                return RETRY_S
            self._written = data
        return LOOK_S if watching and not last else None

    def _watch(self, facts: Dict[str, Any], last: bool) -> bool:
        """Read on in the log; False when there is nothing left to look for."""
        if "tracker_url" in facts:
            return False
        while True:
            lines = self._tail.lines()
            for line in lines:
                self._lines += 1
                page = find_tracker(self._masker.text(line.decode("utf-8", "replace")))
                if page is not None:
                    facts["tracker_url"] = page
                if page is not None or self._lines >= WATCHED_LINES:
                    return False
            if not (lines and last):
                return time.monotonic() < self._watched_until


def collect(job: Job, cwd: str, env: Mapping[str, str]) -> Dict[str, Any]:
    """The facts, not yet masked. Takes as long as the command's Python takes to answer."""
    python, why_no_python = python_facts(job.command, cwd, env)
    cards, why_no_cards = gpu_facts(names_of(job))
    absent = {name: why_no_python for name in (*NAMES, "packages_sha256") if why_no_python}
    absent.update({name: why_no_cards for name in ("driver", "gpus") if why_no_cards})
    facts: Dict[str, Any] = {
        "version": VERSION,
        "run_id": job.run_id,
        "attempt": job.attempt,
        "launch_id": job.launch_id,
        "command": _short(job.command),
        "code": job.code,
        "image_digest": job.image_digest,
        "conda_env": env.get("CONDA_PREFIX") or None,
        "virtual_env": env.get("VIRTUAL_ENV") or None,
        "seeds": seeds(job.command, env),
        **host_facts(),
        **cards,
        **python,
    }
    if job.tracker_url:
        facts["tracker_url"] = job.tracker_url
    facts["absent"] = absent
    return facts


def with_hash(facts: Dict[str, Any]) -> Dict[str, Any]:
    """With the sha256 of the packages, a line each: two attempts with the same list have the same one."""
    if "packages" not in facts:
        return facts
    text = "".join(line + "\n" for line in facts["packages"])
    return {**facts, "packages_sha256": hashlib.sha256(text.encode()).hexdigest()}


def seeds(command: Union[str, Tuple[str, ...]], env: Mapping[str, str]) -> Dict[str, str]:
    """Variables and options that fix random numbers: name -> value, as they were given."""
    values = {name: value for name, value in sorted(env.items()) if _SEED_ENV.match(name) and _SEED.match(value)}
    words = words_of(command)
    for word, following in zip(words, [*words[1:], ""]):
        option = _SEED_WORD.match(word)
        if option is None:
            continue
        value = following if option.group(2) is None and word.startswith("-") else option.group(2)
        if value:
            values[word.partition("=")[0]] = value[:80]
    return values


def encode(facts: Mapping[str, Any]) -> bytes:
    """As JSON of MAX_BYTES at most: the last packages are left out, and a note says how many."""
    data = _json(facts)
    packages: List[str] = list(facts.get("packages") or ())
    kept = len(packages)
    while len(data) > MAX_BYTES and kept:
        kept = kept * 9 // 10
        note = "the first %d of %d packages; the hash is that of all" % (kept, len(packages))
        data = _json({**facts, "packages": packages[:kept], "packages_note": note})
    return data


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, indent=1, sort_keys=True).encode()


def _short(command: Union[str, Tuple[str, ...]]) -> Union[str, List[str]]:
    if sum(len(word) for word in command) <= COMMAND_CHARS:
        return command if isinstance(command, str) else list(command)
    text = command if isinstance(command, str) else " ".join(shlex.quote(word) for word in command)
    return text[:COMMAND_CHARS] + " … (cut)"


def _yield_to_everybody() -> None:
    """This thread and what it starts run only where nobody else wants to."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
    except OSError as error:
        _log.info("the facts are collected at ordinary priority: %s", error)
