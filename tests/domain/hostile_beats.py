"""Beats by chance: valid ones, ones with a wrong value, and bytes that are no beat at all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from supervisor.contract import heartbeat, signs
from tests.benchmarks.machine_told import full

TEXTS = (
    "",
    "m",
    "x" * 300,
    "x" * 301,
    "a\x00b",
    "\u00fc",
    "\ud800",
    "\U0001f680",
    "1.1.1",
    "0",
    " ",
    "\n",
    None,
    7,
    [],
)
NUMBERS = (
    0, 1, -1, 0.0, -0.0, 1.0, 1.5, -1.5, 10**15, 10**15 + 1, 10**18 - 1, 10**18, 1e18, -1e18, 1e17, 2**63, 2**64,
    10**400, True, False, None, "1", [1], {"a": 1}, float("nan"), float("inf"), -float("inf"),
)  # fmt: skip
METRICS = (
    {}, None, [], {"loss": 0.5}, {"loss": 1}, {"a": None}, {"a": True}, {"a": "1"}, {"x" * 64: 1.0}, {"x" * 65: 1.0},
    {"\n": 1.0}, {"\x00": 1.0}, {"\u00fc": 1.0}, {"": 1.0}, {"\ud800": 2.0}, {"a": 1e18}, {"a": float("nan")},
    {f"m{n}": n / 7 for n in range(16)}, {f"m{n}": n for n in range(17)}, {"a" * 60 + str(n): n / 3 for n in range(16)},
)  # fmt: skip
FULL = heartbeat.beat_telemetry.encode(full(2))
SIGNS = signs.encode(
    signs.Signs((signs.Hit("gpu_oom", signs.CAUSE, 3, "CUDA out of memory", 1.0, 2.0, 0),), "KeyError")
)
LONG = (
    "", "{}", "{", FULL, "x" * 2000, "x" * 2001, "x" * 2048, "x" * 2049, "\u00fc", "\x00", "[" * 1500, None, 3,
    {"uptime_s": 5}, {"gpus": {"util_pct": [1, None]}}, {"a": "x" * 3000}, {"a": float("nan")}, ["a"],
)  # fmt: skip
EXITS = (None, {}, {"code": 0}, {"code": 1, "ran_s": 2.5, "last_line": "Killed"}, {"code": -1}, [], "0", {"code": 1.0})
PRUNED = (
    None, {}, {"count": 3}, {"count": 3, "last": [[100, "old"]]}, {"count": -1}, {"last": [[1]]}, {"last": 5}, [], 7,
    {"count": 10**15 + 1}, {"count": None}, {"count": True}, {"count": 3, "last": None}, {"count": 3, "x": [[]]},
    *({"count": 3, "last": [[1, why]]} for why in ("", "x" * 40, "x" * 41, "\u00fc", "\x00", "\ud800", None, 7)),
    *({"count": 3, "last": [[step, "old"]]} for step in (-1, 1.0, True, None, 10**15 + 1, "1")),
    *({"count": 9, "last": [[step, "old"] for step in range(many)]} for many in (8, 9)),
    {"count": 3, "last": [[1, "old", 2]]}, {"count": 3, "last": [{"step": 1}]},
)  # fmt: skip
GUESSES = (
    None, {}, [], 5, {"step": 3}, {"step": 3, "total": 9, "steps_per_s": 1.5}, {"step": 3, "steps_per_s": 2},
    {"step": -1}, {"step": 1.0}, {"step": True}, {"step": None}, {"step": 10**15 + 1}, {"step": 3, "total": -1},
    {"step": 3, "total": 1.5}, {"step": 3, "steps_per_s": 1e18}, {"step": 3, "steps_per_s": "1"},
    {"step": 3, "steps_per_s": float("nan")}, {"step": 3, "steps_per_s": True}, {"step": 3, "total": 10**400},
    {"step": 3, "total": None, "x": [[]]},
)  # fmt: skip
LAUNCHES = ("1.1.1", "1.2.3", "1.1", "0.1.1", "1.1.1\n", "1.1.1.1", "999999999.1.1", "1.-1.1", None, "")
VALUES: dict[str, tuple[Any, ...]] = {
    "run_id": ("run-1", "a", "Run", "x" * 63, "x" * 64, "run-1\n", None, "", 5),
    "launch_id": LAUNCHES,
    "phase": (*heartbeat.PHASES, "", "Training", None, 4),
    "left": (*heartbeat.LEFT, "", None, "gone", 1),
    "from_zero": (True, False, None, 0, "true"),
    "exit": EXITS,
    "guess": GUESSES,
    "pruned": PRUNED,
    "metrics": METRICS,
    "telemetry": LONG,
    "recent": LONG,
    "signs": (*LONG, SIGNS, "x" * 1500, "x" * 1501),
    "unknown": (None, 1, "x" * 700, "x" * 1200, [[]], {"a": {"b": [1]}}, "\ud800", float("nan")),
    **dict.fromkeys(("machine_id", "boot_id", "nonce", "message", "stop_generation"), TEXTS),
    **dict.fromkeys(
        ("attempt", "sequence", "step", "total", "checkpoint_step", "resumed_from", "rejected_checkpoint"), NUMBERS
    ),
    **dict.fromkeys(("steps_per_s", "notice_s", "up_s", "save_s"), NUMBERS),
}
VALID: dict[str, Any] = {
    "run_id": "run-1", "attempt": 1, "launch_id": "1.1.1", "machine_id": "local:0f4c:12:3", "boot_id": "0f4c3c4e",
    "sequence": 7, "phase": "training", "nonce": "5f1c0e2d", "step": 210, "total": 50_000, "steps_per_s": 3.1,
    "metrics": {"loss": 0.71}, "telemetry": FULL, "up_s": 12.5, "save_s": 3.5, "signs": SIGNS,
}  # fmt: skip


def bytes_by_chance(chance: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield _by_chance(chance)


def _by_chance(chance: random.Random) -> bytes:
    data = dict(VALID)
    for name in chance.sample(sorted(VALUES), chance.choice((0, 1, 1, 2, 3))):
        data[name] = chance.choice(VALUES[name])
    for name in chance.sample(sorted(data), chance.choice((0, 0, 0, 1, 2))):
        del data[name]
    text = json.dumps(data, ensure_ascii=chance.random() < 0.8, separators=chance.choice(((",", ":"), (", ", ": "))))
    raw = text.encode("utf-8", "surrogatepass")
    return raw if chance.random() < 0.7 else _damaged(chance, raw)


def _damaged(chance: random.Random, raw: bytes) -> bytes:
    at, deep = chance.randrange(len(raw) + 1), chance.choice((3, 300, 3000))
    name = chance.choice(sorted(VALUES))
    twice = json.dumps({name: chance.choice(VALUES[name])}).encode("utf-8", "surrogatepass")
    codec = chance.choice(("utf-16", "utf-8-sig", "utf-32-be", "latin-1"))
    return chance.choice(
        (
            raw[:at],
            raw[:at] + bytes([chance.randrange(256)]) + raw[at + 1 :],
            raw.decode("utf-8", "replace").encode(codec, "replace"),
            twice[:-1] + b"," + raw[1:],
            raw[:-1] + b"," + twice[1:],
            # wrong bytes in a field that nobody reads
            raw[:-1] + b',"unknown":"' + chance.choice((b"\xff", b"\xed\xa0\x80", b"\\u12", b"\x01")) + b'"}',
            raw[:-1] + b',"deep":' + b"[" * deep + b"]" * deep + b"}",
            raw + chance.choice((b" ", b"\n", b"x", b"{}", b"\x00", b" " * 10_000)),
            chance.choice((b"", b"null", b"[]", b"7", b'"x"', b"{}", b"{", b"[" * 5000, b"\xff\xfe")),
            raw.replace(b":1", chance.choice((b":01", b":1.0", b":1e0", b":1e400", b":-1", b":+1", b":0x1")), 1),
        )
    )
