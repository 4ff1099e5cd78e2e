"""Commands that stand still, in the places where trainings do, and the agent's dump of their threads."""

from __future__ import annotations

from tests.diagnosis.makers.answers import hang
from tests.diagnosis.makers.lives import Live
from tests.diagnosis.makers.real.memory import REPORT

BODIES = {
    "two-locks": ("lock", """
import threading
lock_a, lock_b = threading.Lock(), threading.Lock()
def backwards():
    with lock_b:
        time.sleep(0.2)
        with lock_a:
            pass
threading.Thread(target=backwards).start()
with lock_a:
    time.sleep(0.4)
    with lock_b:
        pass
"""),
    "join-a-thread": ("lock", """
import threading
event = threading.Event()
worker = threading.Thread(target=event.wait)
worker.start()
worker.join()
"""),
    "file-lock": ("lock", """
import fcntl
first, second = open("lock", "w"), open("lock", "w")
fcntl.flock(first, fcntl.LOCK_EX)
fcntl.flock(second, fcntl.LOCK_EX)
"""),
    "queue-without-producer": ("input", """
import multiprocessing
def loader():
    queue = multiprocessing.get_context("fork").Queue()
    return queue
batches = loader()
def next_batch():
    return batches.get()
batch = next_batch()
"""),
    "loader-process": ("input", """
import multiprocessing
context = multiprocessing.get_context("fork")
index_queue, data_queue = context.Queue(), context.Queue()
def _worker_loop():
    while True:
        index_queue.get()
worker = context.Process(target=_worker_loop, daemon=True)
worker.start()
def _try_get_data():
    return data_queue.get(timeout=600)
_try_get_data()
"""),
    "pipe": ("input", """
reader, writer = os.pipe()
os.read(reader, 100)
"""),
    "barrier": ("collective", """
import multiprocessing
context = multiprocessing.get_context("fork")
barrier = context.Barrier(2)
def rank_1():
    time.sleep(600)
context.Process(target=rank_1, daemon=True).start()
def all_reduce():
    barrier.wait()
all_reduce()
"""),
    "silent-peer": ("network", """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.recv(100)
"""),
    "silent-http": ("network", """
import socket, urllib.request
server = socket.create_server(("127.0.0.1", 0))
urllib.request.urlopen("http://127.0.0.1:%d/weights.bin" % server.getsockname()[1])
"""),
    "stopped": ("stopped", """
import signal
os.kill(os.getpid(), signal.SIGSTOP)
"""),
    "fifo": ("input", """
os.mkfifo("feed")
open("feed", "rb").read()
"""),
    "sleeps": ("unknown", """
time.sleep(600)
"""),
    "waits-for-a-child": ("unknown", """
import subprocess
subprocess.run(["sleep", "600"])
"""),
}  # fmt: skip

CASES = tuple(
    Live(
        name, hang(place), lambda life, text=text: life.python(REPORT + text),
        how=f"stands still: {name.replace('-', ' ')}", job={"stall_dump_s": 1.0}, stall=True,
    )
    for name, (place, text) in BODIES.items()
)  # fmt: skip
