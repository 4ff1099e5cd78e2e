"""Whether CUDA starts on this machine: a card that is listed, and can be opened, does not yet compute.

cuInit runs in a process of its own: it may hang or crash, and the agent must not hold a card open. 802 means that the
machine is still starting (NVLink fabric), so it is waited for; any other error stays. Where there is no libcuda to ask,
nothing is known and nothing is refused: the cards were counted by other means.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import time
from typing import Callable, Optional, Tuple

from supervisor.agent.store.patience import LOOK_S, Patience

NOT_READY = 802
_WORDS = {
    100: "no card is visible",
    101: "a card is not valid",
    NOT_READY: "the machine's GPUs are not ready yet",
    803: "driver and CUDA library do not fit",
    804: "the CUDA library is too new for this card",
    999: "unknown error",
}
READY_LIMIT_S = 1200.0  # as gpu_timeout_s, which bounds the boot
PROBE_LIMIT_S = 120.0
REAP_S = 5.0  # for a killed probe: in the driver a process may sleep where no signal reaches it
AGAIN_S = 5.0
_PROBE = """
import ctypes, json, sys
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(0)
version = ctypes.c_int(0)
library.cuDriverGetVersion(ctypes.byref(version))
sys.stdout.write(json.dumps([library.cuInit(0), version.value]))
"""
_log = logging.getLogger("agent")


def trouble(gives_up: Callable[[], bool], tell: Callable[[str], None], driver: Callable[[], str]) -> str:
    """Why CUDA does not start; "" where it does, or cannot be asked. `tell` gets what is waited for. `driver`: its
    version. Raises GaveUp."""
    patience = Patience(gives_up)
    until = time.monotonic() + READY_LIMIT_S
    while True:
        answer, text = _ask(patience)
        if answer is None:
            return text
        code, version = answer
        if code == 0:
            tell("")
            return ""
        text = "CUDA does not start: cuInit says %d (%s); driver %s, CUDA %s" % (
            code, _WORDS.get(code, "see cuda.h"), driver() or "unknown", _dotted(version),
        )  # fmt: skip
        if code != NOT_READY or time.monotonic() >= until:
            return text
        tell(text)
        patience.pause("waiting for the GPUs", AGAIN_S)


def driver_version(path: str = "/proc/driver/nvidia/version") -> str:
    """Of the kernel module; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", source.read(4096))
    except OSError:
        return ""
    return found.group(1) if found else ""


def _ask(patience: Patience) -> Tuple[Optional[Tuple[int, int]], str]:
    """((what cuInit says, CUDA's version), ""), or (None, what is wrong): "" where there is no library."""
    probe = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROBE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + PROBE_LIMIT_S
    try:
        while probe.poll() is None and time.monotonic() < until:
            patience.check("starting CUDA")
            time.sleep(LOOK_S)
        if probe.poll() is None:
            return None, "CUDA does not start: cuInit did not answer within %.0f s" % PROBE_LIMIT_S
    finally:
        probe.kill()
        output = _output(probe)
    if probe.returncode != 0:
        return None, "CUDA does not start: cuInit ended its process (%d)" % probe.returncode
    if not output:
        _log.info("there is no libcuda.so.1 here: whether CUDA starts is not known")
        return None, ""
    try:
        code, version = json.loads(output.splitlines()[-1])
    except ValueError:
        _log.warning("whether CUDA starts is not known: the probe wrote %r", output[-200:])
        return None, ""
    return (int(code), int(version)), ""


def _output(probe: subprocess.Popen[bytes]) -> bytes:
    try:
        return probe.communicate(timeout=REAP_S)[0]
    except subprocess.TimeoutExpired:
        if probe.stdout is not None:
            probe.stdout.close()
        return b""


def _dotted(version: int) -> str:
    return "%d.%d" % (version // 1000, version % 1000 // 10) if version else "unknown"
