"""The official command-line client of Colab (program `colab`), in the account of its user.

The client prints for people, not for programs: one line for each session, after banners. Every call has a deadline, no
input, and a bounded output. It keeps the sessions that it made in a file of ours, apart from the sessions that the
user makes. Facts of its version 0.6:

    colab --config FILE new -s NAME [--gpu T4 | --tpu v5e1]    makes a session, and keeps it alive for a day
    colab --config FILE exec -s NAME --timeout S               runs the code on its standard input
    colab --config FILE sessions                               [NAME] ENDPOINT | Hardware: T4 | Variant: GPU
    colab --config FILE stop -s NAME                           ends it

`new` with a name that exists makes a second session, and forgets the first. With an empty FILE the client answers "no
active sessions" also where it is not signed in, so that answer alone proves nothing (`complete`).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.machinefolder.observer import as_unavailable
from supervisor.ports.provider import LaunchFailed, LaunchRejected, NoCapacity, ProviderUnavailable, QuotaExceeded
from supervisor.providers.colab.settings import HARDWARE, ColabSettings

PACKAGE = "google-colab-cli"
LIST_S, STOP_S, NEW_S, EXEC_S = 20.0, 30.0, 30.0, 25.0
CELL_S = 15.0  # for the code of an exec: it starts a process and returns
MOST_BYTES = 64 * 1024
STARTED = "spot: its notebook has begun"
SIGN_IN = "sign in once as the user of the supervisor: `colab new`, then `colab stop`"
_LINE = re.compile(
    r"\[(?P<name>[^\]\s]+)\] (?P<endpoint>\S+) \| Hardware: (?P<hardware>\S+) \| Variant: (?P<variant>\S+)"
)
_NONE = "No active sessions found on server."
_PRUNED = re.compile(r"Pruned \d+ stale local session")
_NOT_FOUND = re.compile(r"Session '[^']*' not found")
_NOT_SIGNED_IN = re.compile(
    r"oauth config|authorization code|credential|re-?authenticat|\bEOFError\b|\bAborted\b|\b401\b|unauthorized",
    re.IGNORECASE,
)


class NotSignedIn(ProviderUnavailable):
    """The client has no login, or it was refused; nothing was requested of Colab."""


@dataclass(frozen=True, slots=True)
class Listing:
    """`sessions`: name -> what Colab calls it; of this client's file alone. `complete`: one that is not here does not
    exist. `gone`: an earlier complete answer has shown that they do not."""

    sessions: Mapping[str, str]
    complete: bool
    gone: frozenset[str] = frozenset()

    def has(self, name: str) -> bool | None:
        """None: it does not say."""
        if name in self.sessions:
            return True
        return False if self.complete or name in self.gone else None


@dataclass(frozen=True, slots=True)
class Done:
    exit_code: int
    text: str

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return (lines[-1] if lines else f"it ended with {self.exit_code} and said nothing")[:240]


Run = Callable[[Sequence[str], float, str], Done]  # (words, deadline in seconds, standard input); ProviderUnavailable


class Client:
    """`folder`: of its file of sessions. `run`: how a program is run."""

    def __init__(self, s: ColabSettings, folder: Path, run: Run | None = None) -> None:
        self._program, self._auth, self._file = s.colab_client, s.colab_auth, folder / "sessions.json"
        self._run_program = run_program if run is None else run
        self._lock = threading.Lock()  # one at a time: its file is rewritten as a whole
        self._named_last: frozenset[str] = frozenset()  # sessions that the last answer has named
        self._gone: frozenset[str] = frozenset()  # those that have ended since: later answers prove nothing

    def sessions(self) -> Listing:
        """Raises ProviderUnavailable, NotSignedIn."""
        with self._lock:
            done = self._run("sessions", within_s=LIST_S)
            if done.exit_code != 0:
                raise self._trouble("sessions", done)
            entries = {line["name"]: line["endpoint"] for line in map(_LINE.match, done.text.splitlines()) if line}
            if not entries and _NONE not in done.text:
                raise ProviderUnavailable(f"the client's list of sessions cannot be understood: {done.last_line}")
            # With sessions in its file the client must ask Colab; without any, a missing login reads like none.
            complete = bool(entries) or bool(self._named_last) or _PRUNED.search(done.text) is not None
            own = {name: endpoint for name, endpoint in entries.items() if name != "?"}
            self._gone = (self._gone | (self._named_last if complete else frozenset())) - own.keys()
            self._named_last = frozenset(own)
            return Listing(own, complete, self._gone)

    def new(self, name: str, shape: str) -> None:
        """Only where no session has this name. Raises LaunchFailed, ProviderUnavailable: it may have been made."""
        with self._lock:
            done = self._run("new", "-s", name, *HARDWARE[shape], within_s=NEW_S)
            if done.exit_code != 0:
                raise refusal(done) or self._trouble("new", done)
            self._named_last, self._gone = self._named_last | {name}, self._gone - {name}

    def execute(self, name: str, code: str) -> None:
        """Run this code there, which prints STARTED. Raises ProviderUnavailable: it may run."""
        with self._lock:
            done = self._run("exec", "-s", name, "--timeout", f"{CELL_S:g}", within_s=EXEC_S, code=code)
        if STARTED not in done.text:
            raise self._trouble("exec", done)

    def stop(self, name: str) -> None:
        """A session that it does not know is success. Raises ProviderUnavailable."""
        with self._lock:
            done = self._run("stop", "-s", name, within_s=STOP_S)
            if done.exit_code != 0 and _NOT_FOUND.search(done.text) is None:
                raise self._trouble("stop", done)
            self._named_last, self._gone = self._named_last - {name}, self._gone - {name}

    def version(self) -> str:
        """Raises ProviderUnavailable."""
        done = self._run("version", within_s=LIST_S)
        if done.exit_code != 0:
            raise self._trouble("version", done)
        return done.last_line

    def keep_alive(self, name: str) -> str:
        """The last that the client's own history says about keeping this session alive; "" = nothing. Raises
        ProviderUnavailable."""
        done = self._run("log", "-s", name, "-n", "50", within_s=LIST_S)
        lines = [line.strip() for line in done.text.splitlines() if "keep_alive" in line or "KEEP:" in line]
        return lines[-1][:240] if lines else ""

    def _run(self, *words: str, within_s: float, code: str = "") -> Done:
        """Raises ProviderUnavailable."""
        with as_unavailable("the folder of the client's sessions"):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        auth = [f"--auth={self._auth}"] if self._auth else []
        argv: Sequence[str] = [str(Path(self._program).expanduser()), *auth, "--config", str(self._file), *words]
        return self._run_program(argv, within_s, code)

    def _trouble(self, word: str, done: Done) -> ProviderUnavailable:
        text = f"{self._program} {word}: {done.last_line}"
        return NotSignedIn(f"{text}; {SIGN_IN}") if _NOT_SIGNED_IN.search(done.text) else ProviderUnavailable(text)


def run_program(argv: Sequence[str], within_s: float, code: str) -> Done:
    """Raises ProviderUnavailable."""
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                argv,
                input=code.encode(),  # none: an empty input, so that a question for a code ends at once
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=within_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProviderUnavailable(f"{argv[0]} did not end within {within_s:g} s") from None
        except OSError as error:
            text = f"{argv[0]} cannot be started: {error.strerror or error}; set colab_client"
            raise ProviderUnavailable(text) from None
        output.seek(0)
        return Done(done.returncode, output.read(MOST_BYTES).decode(errors="replace"))


def refusal(done: Done) -> LaunchFailed | None:
    """What a failed `new` says for certain: no session was made. None = nothing is certain."""
    if "Backend rejected accelerator" in done.text:
        return QuotaExceeded(
            "the account has no right or quota for this hardware: choose another shape, or a paid plan"
        )
    if "TooManyAssignments" in done.text:
        return NoCapacity("the account has as many sessions as its plan allows")
    if "Keep-alive pre-flight failed" in done.text:
        return LaunchRejected(
            f"the client's login may not keep sessions alive: {SIGN_IN} and allow all that it asks for"
        )
    if "Service Unavailable" in done.text:
        return NoCapacity("Colab has no such session to give now")
    return None
