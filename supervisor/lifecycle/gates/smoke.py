"""G2, the smoke: does the code arrive unchanged, and does the command run and resume before anything is rented?"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.domain.gates.verdicts import State
from supervisor.lifecycle.gates.rules import NONE, Judged, Known, Rule, Rules, judged, listed, short_hash
from supervisor.wording.figures import clip, step_text

LINE_MAX = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """None = not read. `crlf_files`: scripts of the bundle with Windows line ends. `machine_code`: the hash of the code
    as it lies on the machine. `values_missing`: of the platform's own folders and settings. `first_step`: the step that
    the first start of the smoke reached; `second_from`: the step at which the second began, -1 = from nothing.
    `writers`: other runs that write to the same output. `ran_first`: on the user's computer, before anything was
    rented. `last_line`: of its output; `traceback`: it has one."""

    crlf_files: Known[tuple[str, ...]] = None
    code: Known[str] = None
    machine_code: Known[str] = None
    values_missing: Known[tuple[str, ...]] = None
    first_step: Known[int] = None
    second_from: Known[int] = None
    writers: Known[tuple[str, ...]] = None
    ran_first: Known[bool] = None
    exit_code: Known[int] = None
    traceback: Known[bool] = None
    last_line: Known[str] = None


def _line_ends(files: tuple[str, ...]) -> Judged:
    return judged(not files, files=listed(files))


def _bundle_hash(code: str, machine_code: str) -> Judged:
    return judged(code == machine_code, bundle=short_hash(code), machine=short_hash(machine_code))


def _profile_values(missing: tuple[str, ...]) -> Judged:
    return judged(not missing, State.WARN, missing=listed(missing))


def _resumes(reached: int, second_from: int) -> Judged:
    """Equal is right: the second start goes on where the first one ended."""
    good = reached > 0 and second_from >= reached
    return judged(good, reached=step_text(reached), resumed=step_text(None if second_from < 0 else second_from))


def _own_output(writers: tuple[str, ...]) -> Judged:
    return judged(not writers, writers=listed(writers))


def _smoke_first(ran_first: bool) -> Judged:
    text = "the smoke ran before anything was rented" if ran_first else "no smoke ran before the machine was rented"
    return judged(ran_first, State.WARN, when=text)


def _smoke(exit_code: int, traceback: bool, last_line: str) -> Judged:
    text = clip(last_line, LINE_MAX)
    said = f" and a traceback: {text or NONE}" if traceback else f": {text}" if text and exit_code else ""
    return judged(exit_code == 0 and not traceback, exit=str(exit_code), last_line=said)


RULES: Rules = {
    "line_ends": Rule(("crlf_files",), _line_ends),
    "bundle_hash": Rule(("code", "machine_code"), _bundle_hash),
    "profile_values": Rule(("values_missing",), _profile_values),
    "resumes": Rule(("first_step", "second_from"), _resumes),
    "own_output": Rule(("writers",), _own_output),
    "smoke_first": Rule(("ran_first",), _smoke_first),
    "smoke": Rule(("exit_code", "traceback", "last_line"), _smoke),
}
