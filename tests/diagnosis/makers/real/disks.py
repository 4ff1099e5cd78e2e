"""Disks: a small file system that is really full, by bytes and by inodes, and texts that only sound like it."""

from __future__ import annotations

from contextlib import ExitStack

from tests.diagnosis.makers.answers import DISK_FULL, DISK_TEXT, FINISHED, INODES, KNOWN_ERROR, USER_ERROR, code, not_
from tests.diagnosis.makers.lives import Life, Live
from tests.diagnosis.makers.real.memory import REPORT

# A failed write gives its last pages back, so a little space is left at the end, as in life.
KEPT = (
    REPORT
    + """
kept = open("kept", "wb")
kept.write(b"x" * 262144)
kept.close()
"""
)
FILL = (
    KEPT
    + """
try:
    with open("best.pt.tmp", "wb", buffering=0) as target:
        while True:
            target.write(b"x" * 65536)
finally:
    os.unlink("kept")
"""
)
NUMPY = (
    KEPT
    + """
import numpy
try:
    numpy.save("weights.npy", numpy.ones(4 << 20))
finally:
    os.unlink("kept")
"""
)
SQLITE = (
    KEPT  # noqa: S608
    + """
import sqlite3
base = sqlite3.connect("metrics.db")
base.execute("create table rows (text)")
try:
    for row in range(100):
        base.execute("insert into rows values (?)", ("x" * 500_000,))
        base.commit()
finally:
    os.unlink("kept")
"""
)
TAR = (
    KEPT
    + """
import subprocess
os.mkdir("data")
for number in range(3):
    with open(f"data/{number}", "wb") as target:
        target.write(os.urandom(1 << 20))
subprocess.run(["sh", "-c", "cat data/* data/0 data/1 > all.bin"])
done = subprocess.run(["tar", "cf", "all.tar", "data"])
sys.exit(done.returncode)
"""
)
COPY = (
    KEPT
    + """
import subprocess
subprocess.run(["dd", "if=/dev/zero", "of=checkpoint-300.bin", "bs=64k"], check=True)
"""
)
SHUTIL = (
    KEPT
    + """
import shutil
with open("a", "wb") as target:
    target.write(b"x" * (3 << 20))
for number in range(9):
    shutil.copyfile("a", f"copy-{number}")
"""
)
PICKLE = (
    KEPT
    + """
import pickle
try:
    with open("state.pkl", "wb") as target:
        pickle.dump([b"x" * 100_000 + bytes([n]) for n in range(200)], target)
except OSError as error:
    raise RuntimeError("the checkpoint of step 3 could not be written") from error
"""
)
LOGGED = (
    KEPT
    + """
import logging
logging.basicConfig(format="%(asctime)s %(levelname)s [rank0] %(name)s: %(message)s", stream=sys.stdout)
try:
    with open("best.pt.tmp", "wb", buffering=0) as target:
        while True:
            target.write(b"x" * 65536)
except OSError:
    logging.getLogger("trainer").exception("saving failed")
    sys.exit(1)
"""
)
MANY = (
    REPORT
    + """
import itertools
try:
    for number in itertools.count():
        open(f"sample-{number}", "w").close()
finally:
    for back in range(3):
        os.unlink(f"sample-{back}")
"""
)
FOLDERS = (
    REPORT
    + """
import itertools
for number in itertools.count():
    os.mkdir(f"epoch-{number}")
"""
)
CAUGHT = (
    KEPT
    + """
try:
    with open("best.pt.tmp", "wb", buffering=0) as target:
        while True:
            target.write(b"x" * 65536)
except OSError as error:
    print("warning: the checkpoint was not written:", error, flush=True)
os.unlink("best.pt.tmp")
os.unlink("kept")
for step in range(4, 8):
    spot_progress.report(step, total=500, loss=0.1)
    print("step", step, flush=True)
    time.sleep(0.1)
"""
)
CAUGHT_KEY = CAUGHT + "config = {}\nprint(config['lr'])\n"
DEVICE = (
    REPORT
    + """
with open("/dev/full", "wb", buffering=0) as target:
    target.write(b"x" * 100)
"""
)
LIMIT = (
    REPORT
    + """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with open("big", "wb", buffering=0) as target:
    while True:
        target.write(b"x" * 65536)
"""
)
FULL_BUT_OTHER = (
    KEPT
    + """
with open("ballast", "wb", buffering=0) as target:
    try:
        while True:
            target.write(b"x" * 65536)
    except OSError:
        pass
os.unlink("kept")
raise KeyError("optimizer")
"""
)
QUOTED = (
    REPORT
    + """
print('hint: an error such as "OSError: [Errno 28] No space left on device" means that /scratch is full', flush=True)
raise ValueError("num_classes must be positive")
"""
)
REMOTE = (
    REPORT
    + """
print("rsync: [receiver] write failed on \\"/archive/run7\\": No space left on device (28)", flush=True)
for step in range(4, 7):
    spot_progress.report(step, total=500)
    print("step", step, flush=True)
    time.sleep(0.1)
raise ValueError("labels and logits differ in length")
"""
)
SHM = (
    REPORT
    + """
import mmap
with open("/dev/full", "wb") as target:
    pass
raise RuntimeError("unable to write to file </torch_123_456_0>: No space left on device (28)")
"""
)
MOUNT = 'mkdir -p "$0/work" && mount -t tmpfs -o "$1" tmpfs "$0/work" && shift && exec "$@"'


def small(options: str) -> object:
    """The folders of the machine lie on a tmpfs that no one else sees."""

    def wrapper(life: Life, stack: ExitStack) -> tuple[str, ...]:
        return ("unshare", "-Urm", "sh", "-c", MOUNT, str(life.machine_to_be), options)

    return wrapper


def on(options: str, name: str, answer: object, text: str, how: str) -> Live:
    return Live(name, answer, lambda life: life.python(text), how=how, wrapper=small(options))


BYTES, FILES = "size=8m", "size=64m,nr_inodes=500"
CASES = (
    on(BYTES, "python-write", DISK_FULL, FILL, "a checkpoint is written until a tmpfs of 8 MB is full"),
    on(BYTES, "numpy-save", DISK_TEXT, NUMPY, "numpy asks for the space first: its own words, and the disk is not full afterwards"),
    on(BYTES, "sqlite", DISK_FULL, SQLITE, "SQLite fills the disk"),
    on(BYTES, "tar", DISK_FULL, TAR, "tar reports the full disk; the script exits with its code"),
    on(BYTES, "dd", DISK_FULL, COPY, "dd fills the disk; the parent checks its exit"),
    on(BYTES, "copies", DISK_FULL, SHUTIL, "shutil copies files until the disk is full"),
    on(BYTES, "pickle-chained", DISK_FULL, PICKLE, "the error is raised from another one"),
    on(BYTES, "logged-with-prefix", DISK_FULL, LOGGED, "the traceback is logged with a prefix; the script exits with 1"),
    on(FILES, "inodes-files", INODES, MANY, "500 inodes run out: many small files"),
    on(FILES, "inodes-folders", INODES, FOLDERS, "500 inodes run out: many folders"),
    on(BYTES, "caught-and-finished", not_(FINISHED, "U6"), CAUGHT, "the error is caught, and the training ends well"),
    on(BYTES, "caught-then-key-error", not_(USER_ERROR, "U6"), CAUGHT_KEY,
       "the error is caught, steps follow, and another error ends the command"),
    on(BYTES, "full-but-another-error", not_(USER_ERROR, "U6"), FULL_BUT_OTHER,
       "the disk is full at the end, but another error ended the command"),
    Live("dev-full", DISK_TEXT, lambda life: life.python(DEVICE),
         how="/dev/full: the words are there, the file systems of the run have space"),
    Live("shared-memory-text", code("U9", "likely", "larger_shm"), lambda life: life.python(SHM),
         how="the words of torch for a full /dev/shm, while the disks have space"),
    Live("limit-of-file-size", not_(KNOWN_ERROR, "U6"), lambda life: life.python(LIMIT),
         how="RLIMIT_FSIZE: EFBIG, and no disk is full"),
    Live("quoted", not_(USER_ERROR, "U6"), lambda life: life.python(QUOTED),
         how="a help text quotes the error; another error ends the command"),
    Live("another-host", not_(USER_ERROR, "U6"), lambda life: life.python(REMOTE),
         how="another host's disk is full; steps follow, and another error ends the command"),
)  # fmt: skip
