"""The labeled corpus: `corpus/<family>/<case>/` with what was seen, what the verdict must be, and where it comes from.

- `evidence.json`: the document of the attempt as the supervisor composes it. Its `log_tail` is left out where it equals
  the last lines of `log`, and a value where it is the one of `usual.json`; the loader puts them back. Its `cause` and
  `detail` are empty where the supervisor concludes them from the exit or the record: a verdict must not read its own
  answer.
- `log`: the output of the command, byte for byte.
- `steps` (optional): a line `offset step up_s` for each step that was reported: at this size of the log, at this time
  of the agent. Only where the order of lines and steps matters.
- `expected.json`: what a person who knows the whole story says. `rule` names the gotcha. `certainty` is the strongest
  word that the evidence supports. `negative`: the case looks like the rules in `looks_like` and is none of them.
- `provenance`: lines `key: value`; `kind` is real, recorded or composed.

The makers draw variations by seed. Seeds with `seed % 5 == 4` are kept apart: rules are not tuned on them. The family
`apart` was written without a look at the rules, and measured before anyone could tune on it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
USUAL = Path(__file__).parent / "usual.json"
REAL, RECORDED, COMPOSED = KINDS = ("real", "recorded", "composed")
LOG_LINES, LINE_CHARS = 200, 1000  # of `log_tail`, as supervisor/lifecycle/evidence cuts it
MAX_LOG_BYTES = 64 << 10
EVERY, KEPT_APART, APART = 5, 4, "apart"  # seeds, and a family

Json = dict[str, Any]


@dataclass(frozen=True)
class Expected:
    """`cause` None: nothing ended, or the end is no failure. `rule` "": none may match. `remedies`: words of which the
    verdict must contain one. `hints`: ids of slow or living findings that may be shown."""

    cause: str | None
    rule: str
    certainty: str
    retry: str
    where: str = "unknown"
    remedies: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    negative: bool = False
    looks_like: tuple[str, ...] = ()

    def to_json(self) -> Json:
        parts = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {name: value for name, value in parts.items() if value not in ([], False) or name == "negative"}


@dataclass(frozen=True)
class Case:
    family: str
    name: str
    folder: Path = field(repr=False)

    @property
    def id(self) -> str:
        return f"{self.family}/{self.name}"

    @cached_property
    def log(self) -> bytes:
        return (self.folder / "log").read_bytes()

    @cached_property
    def document(self) -> Json:
        document = _whole(json.loads((self.folder / "evidence.json").read_bytes()))
        document.setdefault("log_tail", log_tail(self.log))
        return document

    @cached_property
    def steps(self) -> tuple[tuple[int, int, float], ...]:
        path = self.folder / "steps"
        lines = path.read_text().splitlines() if path.exists() else []
        return tuple((int(a), int(b), float(c)) for a, b, c in map(str.split, lines))

    @cached_property
    def expected(self) -> Expected:
        raw = json.loads((self.folder / "expected.json").read_bytes())
        return Expected(**{name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()})

    @cached_property
    def provenance(self) -> dict[str, str]:
        lines = (self.folder / "provenance").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    @property
    def kept_apart(self) -> bool:
        seed = self.provenance.get("seed", "")
        return self.family == APART or (seed.isdigit() and int(seed) % EVERY == KEPT_APART)


def load(family: str | None = None, root: Path = CORPUS) -> list[Case]:
    """Every case, or those of one family, in the order of their names."""
    folders = sorted(path.parent for path in root.glob(f"{family or '*'}/*/expected.json"))
    return [Case(folder.parent.name, folder.name, folder) for folder in folders]


def families(root: Path = CORPUS) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def write(case_folder: Path, document: Json, log: bytes, expected: Expected, provenance: dict[str, str]) -> None:
    """One new case. A `steps` file is written by `write_steps`."""
    case_folder.mkdir(parents=True, exist_ok=True)
    if document.get("log_tail") == log_tail(log):
        document = {name: value for name, value in document.items() if name != "log_tail"}
    _write_document(case_folder, document)
    (case_folder / "log").write_bytes(log)
    write_answer(case_folder, expected)
    (case_folder / "provenance").write_text("".join(f"{key}: {value}\n" for key, value in provenance.items()))


def _write_document(case_folder: Path, document: Json) -> None:
    short = _short(document)
    assert _whole(short) == document, "a document lacks a value that every other one has"
    text = json.dumps(short, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    (case_folder / "evidence.json").write_text(text + "\n", encoding="utf-8")


@cache
def _usual() -> Json:
    """What stands in most documents. Each of its names, and of those within a value, stands in all of them."""
    usual: Json = json.loads(USUAL.read_bytes())
    return usual


def _short(document: Json) -> Json:
    """Without the usual values."""
    usual, short = _usual(), Json()
    for name, value in document.items():
        common: Any = usual.get(name)
        if isinstance(value, dict) and isinstance(common, dict):
            short[name] = {key: part for key, part in value.items() if key not in common or part != common[key]}
        elif name not in usual or value != common:
            short[name] = value
    return short


def _whole(short: Json) -> Json:
    document = {name: value for name, value in _usual().items() if not isinstance(value, dict)}
    for name, value in short.items():
        common: Any = _usual().get(name)
        both = isinstance(value, dict) and isinstance(common, dict)
        document[name] = {**common, **value} if both else value
    return document


def write_answer(case_folder: Path, expected: Expected) -> None:
    (case_folder / "expected.json").write_text(json.dumps(expected.to_json(), ensure_ascii=False) + "\n")


def write_steps(case_folder: Path, steps: list[tuple[int, int, float]]) -> None:
    text = "".join(f"{offset} {step} {up_s:.0f}\n" for offset, step, up_s in steps)
    (case_folder / "steps").write_text(text)


def log_tail(log: bytes) -> list[str]:
    """The last lines, as the agent and the supervisor keep them."""
    return [line[:LINE_CHARS] for line in log.decode("utf-8", "replace").splitlines()[-LOG_LINES:]]
