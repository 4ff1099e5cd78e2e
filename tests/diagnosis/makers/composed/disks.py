"""Disks: full by bytes and by inodes in the words of many programs and languages; and words without a full disk."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.makers.answers import ALIVE, DISK_FULL, DISK_TEXT, INODES, KNOWN_ERROR, USER_ERROR, not_
from tests.diagnosis.makers.situations import GCE, KUBERNETES, Mechanism, Story, disk, record
from tests.diagnosis.makers.variations import NO_SPACE, Variation

FULL = "checkpoints: 0 of 95367 MiB are free"
NO_INODES = "checkpoints: 0 of 6500000 inodes are free, and 20480 MiB"
ZIP = "pytorch/pytorch: caffe2/serialize/inline_container.cc"


def python_text(drawn: Variation) -> str:
    return drawn.pick(
        "OSError: [Errno 28] No space left on device: '/machine/work/checkpoints/step-300.pt.tmp'",
        'safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
        "OSError: [Errno 28] Can't synchronously write data (file write failed: time = Sun Mar  1 12:00:00 2026, errno = 28, error message = 'No space left on device', buf = 0x7f2a, total write[1] size = 1048576)",
        "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
        "OSError: [Errno 122] Disk quota exceeded: '/home/user/run7/step-300.pt'",
    )  # fmt: skip


def write_fails(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(python_text(drawn))
    drawn.teardown()
    return Story(DISK_FULL, code=1, disk_full=FULL, telemetry=disk(0.0), placement=GCE)


def torch_fails(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(drawn.pick(
        "RuntimeError: [enforce fail at inline_container.cc:424] . unexpected pos 704 vs 598",
        "RuntimeError: basic_ios::clear: iostream error",
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 1147072 vs 1146964",
    ), chained_to=drawn.pick("", "RuntimeError: [enforce fail at inline_container.cc:769] . PytorchStreamWriter failed writing file data/12: file write failed"))  # fmt: skip
    return Story(DISK_FULL, code=1, disk_full=FULL, telemetry=disk(0.0), placement=GCE, pages=ZIP)


def tool_fails(drawn: Variation) -> Story:
    """Programs print the words of their language."""
    words = NO_SPACE[drawn.language]
    drawn.train()
    drawn.say(drawn.draw.choice((
        f"cp: error writing '/machine/work/scratch/part-7.bin': {words}",
        f"tar: all.tar: Cannot write: {words}",
        f"dd: error writing 'step-300.bin': {words}",
        f"rsync: [receiver] write failed on \"/machine/work/results/a\": {words} (28)",
    )))  # fmt: skip
    return Story(DISK_FULL, code=1, disk_full=FULL, telemetry=disk(0.0))


def inodes(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(drawn.pick(
        "OSError: [Errno 28] No space left on device: '/machine/work/results/sample-88123.png'",
        "OSError: [Errno 28] No space left on device",
    ))  # fmt: skip
    return Story(INODES, code=1, disk_full=NO_INODES, telemetry=disk(2.1e10, free_inodes=0.0))


def words_alone(drawn: Variation) -> Story:
    drawn.train()
    drawn.error("OSError: [Errno 28] No space left on device: '/mnt/nfs/exports/step-300.pt'")
    return Story(DISK_TEXT, code=1, telemetry=disk(6e10))


def torn_without_figures(drawn: Variation) -> Story:
    """The words of torch for a short write, and nobody read the figures of the disks."""
    drawn.train()
    drawn.error("RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 1147072 vs 1146964")
    return Story(DISK_TEXT, code=1, pages=ZIP)


def evicted(drawn: Variation) -> Story:
    drawn.train()
    text = drawn.pick(
        "Evicted: The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. Container training was using 40Gi, request is 0, has larger consumption of ephemeral-storage.",
        "Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 50Gi.",
        'Evicted: Usage of EmptyDir volume "work" exceeds the limit "20Gi".',
    )  # fmt: skip
    facts = (("platform.state", "Evicted", "provider"), ("platform.message", text, "provider"))
    return Story(replace(DISK_FULL, rule="K8S5"), record=record(Cause.DISK_FULL, text), facts=facts, placement=KUBERNETES,
                 agent=False, pages="kubernetes.io: Node-pressure Eviction, Local ephemeral storage")  # fmt: skip


# --- look-alikes ------------------------------------------------------------------------------------------------------


def nearly_full(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(drawn.pick("KeyError: 'optimizer'", "ValueError: math domain error"))
    return Story(not_(USER_ERROR, "U6"), code=1, disk_full=FULL if drawn.seed % 2 else "", telemetry=disk(8e8))


def nearly_full_and_alive(drawn: Variation) -> Story:
    drawn.train()
    return Story(not_(ALIVE, "U6"), telemetry=disk(9e8), facts=(("motion.files", True, "agent"),))


def torn_file(drawn: Variation) -> Story:
    """The words of torch for a short write, while every file system has space: a mount of another computer broke."""
    drawn.train()
    drawn.error("RuntimeError: [enforce fail at inline_container.cc:424] . unexpected pos 704 vs 598")
    return Story(not_(USER_ERROR, "U6"), code=1, telemetry=disk(6e10), pages=ZIP)


def limit_of_files(drawn: Variation) -> Story:
    drawn.train()
    drawn.error("OSError: [Errno 27] File too large: 'step-300.pt.tmp'")
    return Story(not_(KNOWN_ERROR, "U6"), code=1, telemetry=disk(6e10))


def survived(drawn: Variation) -> Story:
    drawn.train(3)
    drawn.say("warning: checkpoint not written: " + python_text(drawn))
    drawn.train(5)
    drawn.error("KeyError: 'lr'")
    return Story(not_(USER_ERROR, "U6"), code=1, telemetry=disk(6e10))


def other_host(drawn: Variation) -> Story:
    drawn.train(2)
    drawn.say('rsync: [receiver] write failed on "archive:/run7/a": No space left on device (28)')
    drawn.train(4)
    drawn.error("ValueError: labels and logits differ in length")
    return Story(not_(USER_ERROR, "U6"), code=1, telemetry=disk(6e10))


MECHANISMS = (
    Mechanism("write-fails", write_fails, 8),
    Mechanism("torch-fails", torch_fails, 6),
    Mechanism("tool-fails", tool_fails, 7),
    Mechanism("inodes", inodes, 5),
    Mechanism("words-alone", words_alone, 4),
    Mechanism("torn-without-figures", torn_without_figures, 3),
    Mechanism("evicted", evicted, 6),
    Mechanism("not-nearly-full", nearly_full, 5),
    Mechanism("not-nearly-full-alive", nearly_full_and_alive, 3),
    Mechanism("not-a-torn-file", torn_file, 4),
    Mechanism("not-a-limit-of-files", limit_of_files, 3),
    Mechanism("not-survived", survived, 5),
    Mechanism("not-another-host", other_host, 3),
)
