"""The smallest agent a machine can have: it takes the lock, says who it is, and starts a "training" that sleeps.

    python scripted_agent.py MACHINE_DIR
`script` in job.json may contain: wait_for (a file that must appear in the folder first), refuse (end before the
beginning), runs_s (end by itself after that time), stray (a child that leaves the session), bare (a child without any
environment).
Its standard input is then in the file `given`.
It writes pids.json {"agent", "training", "stray", "bare"} when all of them run.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
script = json.loads((folder / "job.json").read_text()).get("script", {})
while "wait_for" in script and not (folder / script["wait_for"]).exists():
    time.sleep(0.02)
if script.get("refuse"):
    sys.exit("the scripted agent refuses.")
lock = (folder / "lock").open("ab")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("another agent lives here")
given = sys.stdin.read()
if given:
    (folder / "given").write_text(given)
with (folder / "starts").open("a") as starts:
    starts.write("start\n")


def put(name, data):
    half_made = folder / ("." + name)
    half_made.write_text(json.dumps(data))
    half_made.rename(folder / name)


def sleeper(**how):
    return subprocess.Popen(["/bin/sleep", "3600"], **how)


boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
put("agent.json", {"pid": os.getpid(), "start_ticks": int(fields[19]), "boot_id": boot_id})
sys.stdout.write("the scripted agent is up\n")
sys.stdout.flush()
children = {"training": sleeper(process_group=0)}
if script.get("stray"):
    children["stray"] = sleeper(start_new_session=True)
if script.get("bare"):
    children["bare"] = sleeper(process_group=0, env={})


def leave(*_):
    # A stray is a process that no other one ends.
    for name, child in children.items():
        if name != "stray":
            child.kill()
    os._exit(0)


signal.signal(signal.SIGTERM, leave)
put("pids.json", {"agent": os.getpid(), **{name: child.pid for name, child in children.items()}})
if "runs_s" in script:
    time.sleep(script["runs_s"])
    leave()
while True:
    signal.pause()
