"""The facts that a paper needs about one attempt, written to `instances/<n>.facts.json` soon after the command's start.

A thread of its own collects them at the lowest priority, so the training never waits for it. A missing fact is unknown,
and `absent` says why; null means that there is none.

The machine under the training (kernel, processor, memory, the graphics driver and its cards) is read from /proc, which
containers see too. Where the driver shows nothing there (in WSL, for example) nvidia-smi is used. The command's own
Python is the one that the command names, else the one on its PATH: it runs a probe (pythonprobe.py) that reports its
version and packages, imports nothing of the training, and is stopped after PROBE_TIMEOUT_S.

The first lines of the log are searched for the page of the experiment tracker, and the facts are written once more when
it appears. Only addresses that trackers themselves print count, not links to documentation. Parameters that look like
keys lose their value, including keys that are not ours.
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

from supervisor.agent.machine.folder import read_fields
from supervisor.agent.machine.gpus import gpu_names
from supervisor.agent.machine.job import Command, Job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.nvml import DRIVER, PROGRAM, driver_version, query
from supervisor.agent.watch.ends import EndReasons
from supervisor.agent.watch.output import LineTail
from supervisor.contract import runfiles
from supervisor.contract.stores.promise import ObjectStore, StoreUnavailable

VERSION = 1
MAX_BYTES = 131_072
COMMAND_CHARS = 16_384
URL_CHARS = 512
WATCHED_LINES, WATCHED_S = 500, 300.0
CHECK_S, RETRY_S = 1.0, 5.0
EARLY_S, LATER_CHECK_S = 30.0, 5.0  # trackers print their page soon
PROBE_TIMEOUT_S, SMI_TIMEOUT_S = 20.0, 15.0
KILLED = "the Python that was asked was killed"
NAMES = ("python", "python_executable", "python_prefix", "packages", "torch", "cuda", "cudnn")
_LOWEST = 19  # of nice(2)
_PYTHON = re.compile(r"(python|pypy)[0-9.]*$")
_SEED_WORD = re.compile(r"(?:--?|\+*)([\w.-]*seed)(?:=(.*))?$", re.IGNORECASE)
_SEED_ENV = re.compile(r"(PYTHONHASHSEED|SEED|\w+_SEED)$")
_SEED = re.compile(r"(-?[0-9]{1,20}|random)$")  # any other value of such a variable must not be published
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
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_KEY = re.compile(r"([?&#][^=&#]*(?:key|token|secret|passw|auth|sig)[^=&#]*=)[^&#]*", re.IGNORECASE)
_USER = re.compile(r"^(https?://)[^/@]*@")
_MASK = re.compile(r"\[secret (\w+)\]")
_log = logging.getLogger("agent")


class FactsDuty:
    """The step of the facts' thread: collect, write, watch the log for the tracker, write again."""

    def __init__(self, job: Job, store: ObjectStore, output: str, masker: Masker, end_reasons: EndReasons) -> None:
        self._job, self._store, self._masker, self._end_reasons = job, store, masker, end_reasons
        self._tail, self._lines = LineTail(output), 0
        self._workplace: Tuple[str, Mapping[str, str]] = ("/", {})
        self._facts: Optional[Dict[str, Any]] = None
        self._probes = 0
        self._unstored = True  # the facts as they are now
        self._began_at = 0.0
        self._last = False
        self.more: Mapping[str, Any] = {}  # facts that another part knows; before the first step

    def begin(self, cwd: str, env: Mapping[str, str]) -> None:
        """The folder and the environment of the command. Before the first step."""
        self._workplace = (cwd, env)
        self._began_at = time.monotonic()

    @property
    def has_tracker(self) -> bool:
        """The page of a tracker is known."""
        return "tracker_url" in (self._facts or {})

    def finish(self) -> None:
        """The command has ended: read the log once more, then stop."""
        self._last = True

    def step(self) -> Optional[float]:
        last = self._last
        if self._end_reasons.uploads_over():
            return None
        if self._facts is None:
            _lower_priority()
            facts = {**collect(self._job, *self._workplace), **self.more}
            self._probes += 1
            if facts["absent"].get("python") == KILLED and self._probes < 2:
                return CHECK_S  # killed with the command's leftovers: the command has just ended, finish() comes next
            self._facts = with_hash({name: self._masker.json(fact) for name, fact in facts.items()})
        watching = self._watch(self._facts, last)
        if self._unstored and not self._end_reasons.uploads_over():  # collecting takes time
            try:
                self._store.put(runfiles.facts(self._job.run_id, self._job.attempt), encode(self._facts))
            except (StoreUnavailable, OSError) as error:
                _log.info("the facts are not stored yet: %s", error)
                return RETRY_S
            self._unstored = False
        if last or not watching:
            return None
        return CHECK_S if time.monotonic() < self._began_at + EARLY_S else LATER_CHECK_S

    def _watch(self, facts: Dict[str, Any], last: bool) -> bool:
        """Read on in the log; False when the search is over."""
        if "tracker_url" in facts:
            return False
        while True:
            lines = self._tail.lines()
            for line in lines:
                self._lines += 1
                page = find_tracker(self._masker.text(line.decode("utf-8", "replace")))
                if page is not None:
                    facts["tracker_url"], self._unstored = page, True
                if page is not None or self._lines >= WATCHED_LINES:
                    return False
            if not (lines and last):
                return time.monotonic() < self._began_at + WATCHED_S


def collect(job: Job, cwd: str, env: Mapping[str, str]) -> Dict[str, Any]:
    """The facts, not yet masked. Takes as long as the command's Python takes to run the probe."""
    python, why_no_python = python_facts(job.command, cwd, env)
    cards, why_no_cards = gpu_facts(gpu_names(job))
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
    """With the sha256 of the packages, a line each: equal lists of two attempts have equal hashes."""
    if "packages" not in facts:
        return facts
    text = "".join(line + "\n" for line in facts["packages"])
    return {**facts, "packages_sha256": hashlib.sha256(text.encode()).hexdigest()}


def encode(facts: Mapping[str, Any]) -> bytes:
    """As JSON of at most MAX_BYTES: the last packages are left out, and a note says how many."""
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


def _lower_priority() -> None:
    """This thread and the processes that it starts run only when the CPU is idle."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST)
    except OSError as error:
        _log.info("the facts are collected at ordinary priority: %s", error)


# --- the command --------------------------------------------------------------------------------------------------


def _short(command: Command) -> Union[str, List[str]]:
    if sum(len(word) for word in command) <= COMMAND_CHARS:
        return command if isinstance(command, str) else list(command)
    text = command if isinstance(command, str) else " ".join(shlex.quote(word) for word in command)
    return text[:COMMAND_CHARS] + " … (cut)"


def words_of(command: Command) -> List[str]:
    if not isinstance(command, str):
        return list(command)
    try:
        return shlex.split(command)
    except ValueError:  # unclosed quotes
        return command.split()


def seeds(command: Command, env: Mapping[str, str]) -> Dict[str, str]:
    """Variables and options that fix random numbers: name -> value, as given."""
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


def names_python(command: Command) -> List[str]:
    """The word of the command that names a Python; empty where none does, as in `torchrun train.py`. In a shell command
    the first such word counts."""
    words = words_of(command)
    candidates = words if isinstance(command, str) else words[:1]
    return [word for word in candidates if _PYTHON.match(os.path.basename(word))][:1]


def python_of(command: Command, cwd: str, env: Mapping[str, str]) -> Optional[str]:
    """The path of the command's Python; None when there is none."""
    for word in (*names_python(command), "python3", "python"):
        path = os.path.join(cwd, word) if os.path.dirname(word) else word
        python = shutil.which(path, path=env.get("PATH", os.defpath))
        if python is not None:
            return python
    return None


def python_facts(
    command: Command, cwd: str, env: Mapping[str, str], timeout_s: float = PROBE_TIMEOUT_S
) -> Tuple[Dict[str, Any], str]:
    """(the values of NAMES, why the rest is unknown). A value of None: not installed."""
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
        output = json.loads(done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2])
        return {name: output[name] for name in NAMES}, ""
    except subprocess.TimeoutExpired:
        return {}, "%s did not answer within %g s" % (python, timeout_s)
    except OSError as error:
        return {}, "%s cannot be run: %s" % (python, error)
    except (ValueError, KeyError, TypeError):
        last_line = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return {}, "%s failed when it was asked: %s" % (python, last_line[:200] or "exit code %d" % done.returncode)


def find_tracker(line: str) -> Optional[str]:
    """The address of the tracker's page of this run; None when this line has none. The line is masked already: after a
    part of an address is cut off, the masker might not find a value in it."""
    plain = _MASK.sub(r"masked-\1", _COLOR.sub("", line))
    match = _PAGE.search(plain)
    if match is None and "wandb" in plain.lower():
        match = _OWN_SERVER.search(plain)
    if match is None:
        return None
    page = _KEY.sub(r"\1removed", _USER.sub(r"\1", match.group().rstrip(".,;:!")))
    return page[:URL_CHARS]


# --- the machine --------------------------------------------------------------------------------------------------


def host_facts() -> Dict[str, Any]:
    """kernel, cpu, cores (that this machine may use) and memory_bytes; unreadable ones are left out."""
    system = os.uname()
    facts: Dict[str, Any] = {
        "kernel": system.release,
        "cpu": read_fields("/proc/cpuinfo").get("model name") or system.machine,
        "cores": len(os.sched_getaffinity(0)),
    }
    total = read_fields("/proc/meminfo").get("MemTotal", "").split()
    if total and total[0].isdigit():
        facts["memory_bytes"] = int(total[0]) * 1024
    return facts


def gpu_facts(only: Optional[Sequence[str]], proc: str = DRIVER) -> Tuple[Dict[str, Any], str]:
    """(driver and gpus, why they are unknown). `only`: indexes or UUIDs of this machine's cards; None = all.

    driver None: no NVIDIA driver is loaded, and so there is no card.
    """
    path = os.path.join(proc, "version")
    if not os.path.exists(path) and shutil.which(PROGRAM) is None:
        return {"driver": None, "gpus": []}, ""
    version, cards = driver_version(path), _cards(proc)
    if version and cards:
        return {"driver": version, "gpus": _names(cards, only)}, ""
    try:
        rows = query(("index", "uuid", "name", "driver_version"), SMI_TIMEOUT_S)
        cards = [(index, uuid, name) for index, uuid, name, _ in rows]
        return {"driver": rows[0][3], "gpus": _names(cards, only)}, ""
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {}, "nvidia-smi did not tell of the driver: %s" % error


def _cards(proc: str) -> List[Tuple[str, str, str]]:
    """(index, uuid, name) in the order of the bus, as CUDA counts them."""
    cards = []
    for number, path in enumerate(sorted(glob.glob(os.path.join(proc, "gpus", "*", "information")))):
        fields = read_fields(path)
        cards.append((str(number), fields.get("GPU UUID", ""), fields.get("Model", "")))
    return cards


def _names(cards: Sequence[Tuple[str, str, str]], only: Optional[Sequence[str]]) -> List[str]:
    return [name for index, uuid, name in cards if only is None or index in only or uuid in only]
