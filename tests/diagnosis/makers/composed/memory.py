"""Memory: the kernel's kills with their time, containers, Slurm; and ends that look the same."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.makers.answers import (
    HOST_OOM,
    HOST_OOM_LIKELY,
    KILLED,
    KNOWN_ERROR,
    PREEMPTED,
    SLURM_OOM,
    STOPPED,
    USER_ERROR,
    not_,
)
from tests.diagnosis.makers.situations import GCE, KUBERNETES, SLURM, Mechanism, Story, cards, memory, record
from tests.diagnosis.makers.variations import Variation

KERNEL = "kernel.org: Documentation/admin-guide/cgroup-v2.rst, memory.events"
TORCH = "pytorch/pytorch: torch/utils/data/_utils/signal_handling.py"


def kernel_kill(drawn: Variation) -> Story:
    drawn.train()
    at = drawn.up_s + 1
    drawn.wait(2)
    facts = (
        ("oom.before", 4, "agent"), ("oom.after", 5, "agent"), ("oom.rose", at, "agent", at, "memory.events"),
        ("worker.count", 17, "agent"), ("worker.rss", 3.4 * 2**30, "agent"), ("main.rss", 5 * 2**30, "agent"),
    )  # fmt: skip
    return Story(HOST_OOM, number=9, oom_kills=1, telemetry=memory(drawn, 0.983), facts=facts, pages=KERNEL)


def worker_words(drawn: Variation) -> Story:
    drawn.train()
    pid = drawn.draw.randrange(900, 9000)
    drawn.error(drawn.pick(
        f"RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed. ",
        f"RuntimeError: DataLoader worker (pid(s) {pid}, {pid + 1}) exited unexpectedly",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
    ))  # fmt: skip
    drawn.cascade()
    at = drawn.up_s
    return Story(
        HOST_OOM,
        code=1,
        oom_kills=1,
        telemetry=memory(drawn, 0.97),
        facts=(("oom.rose", at, "agent", at),),
        pages=TORCH,
    )


def counter_unread(drawn: Variation) -> Story:
    drawn.train()
    return Story(HOST_OOM_LIKELY, number=9, oom_kills=None, telemetry=memory(drawn, drawn.draw.uniform(0.955, 0.999)))


def container_killed(drawn: Variation) -> Story:
    drawn.train()
    facts = (("container.oom_killed", True, "host", None, "State.OOMKilled"), ("container.exit", 137, "host"))
    return Story(
        HOST_OOM, number=9, oom_kills=None, telemetry=memory(drawn, 0.99), facts=facts, placement=GCE,
        pages="docs.docker.com: docker inspect, State.OOMKilled",
    )  # fmt: skip


def pod_killed(drawn: Variation) -> Story:
    drawn.train()
    detail = "container training: OOMKilled, exit code 137"
    return Story(
        HOST_OOM, record=record(Cause.HOST_OOM, detail), placement=KUBERNETES, agent=False, beat=bool(drawn.seed % 2),
        pages="kubernetes.io: Assign Memory Resources to Containers and Pods (reason OOMKilled)",
    )  # fmt: skip


def kernel_words(drawn: Variation) -> Story:
    """The kernel's line is in the output; the counter could not be read."""
    drawn.train()
    drawn.say(
        drawn.pick(
            "Memory cgroup out of memory: Killed process 4711 (python) total-vm:81234567kB, anon-rss:66543210kB, file-rss:0kB",
            "Out of memory: Killed process 4711 (python) total-vm:81234567kB, anon-rss:66543210kB",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job,mems_allowed=0,oom_memcg=/job,task=python,pid=4711",
        )
    )
    return Story(HOST_OOM_LIKELY, number=9, oom_kills=None, pages="kernel.org: mm/oom_kill.c")


def shared_and_full(drawn: Variation) -> Story:
    """The counter counts for others too, and the memory of the group was used up."""
    drawn.train()
    at = drawn.up_s - 2
    facts = (("oom.rose", at, "agent", at), ("oom.shared", True, "agent"))
    return Story(HOST_OOM_LIKELY, number=9, oom_kills=1, telemetry=memory(drawn, 0.985), facts=facts, pages=KERNEL)


def slurm_killed(drawn: Variation) -> Story:
    drawn.train()
    job = drawn.draw.randrange(10_000, 99_999)
    drawn.say(drawn.pick(
        f"slurmstepd: error: Detected 1 oom_kill event in StepId={job}.0. Some of the step tasks have been OOM Killed.",
        f"slurmstepd: error: Detected 2 oom_kill events in StepId={job}.batch. Some of the step tasks have been OOM Killed.",
        f"slurmstepd: error: *** JOB {job} ON node017 CANCELLED AT 2026-03-01T12:00:00 DUE TO OUT OF MEMORY ***",
    ))  # fmt: skip
    facts = (
        ("platform.state", "OUT_OF_MEMORY", "provider"), ("platform.memory_peak", 63.8 * 2**30, "provider"),
        ("platform.memory_asked", 64 * 2**30, "provider"),
    )  # fmt: skip
    kept = record(Cause.HOST_OOM, "OUT_OF_MEMORY: it needed more than its memory limit: raise slurm_memory")
    return Story(SLURM_OOM, number=9, oom_kills=None, record=kept, facts=facts, placement=SLURM,
                 pages="slurm.schedmd.com: job_state_codes.html, OUT_OF_MEMORY")  # fmt: skip


# --- look-alikes ------------------------------------------------------------------------------------------------------


def own_stop(drawn: Variation) -> Story:
    drawn.train()
    drawn.wait(drawn.draw.uniform(5, 100))
    return Story(not_(STOPPED, "U9", "U3"), number=9, sent_by_us=True, left="stopped", signals_sent=(9, 15),
                 telemetry=memory(drawn, 0.97))  # fmt: skip


def neighbors_kill(drawn: Variation) -> Story:
    """The group is shared, our own use is low: the counter counted somebody else's process."""
    drawn.train()
    at = drawn.up_s - 3
    facts = (("oom.rose", at, "agent", at), ("oom.shared", True, "agent"))
    answer = replace(KILLED, certainty="likely")
    return Story(not_(answer, "U9"), number=9, oom_kills=1, telemetry=memory(drawn, 0.31), facts=facts, pages=KERNEL)


def an_hour_ago(drawn: Variation) -> Story:
    drawn.train(4)
    at = drawn.up_s
    drawn.train(6, every_s=900.0)
    facts = (("oom.rose", at, "agent", at), ("step.at", drawn.up_s, "agent", drawn.up_s))
    answer = replace(KILLED, certainty="likely")
    return Story(not_(answer, "U9"), number=9, oom_kills=1, telemetry=memory(drawn, 0.45), facts=facts, pages=KERNEL)


def by_a_stranger(drawn: Variation) -> Story:
    drawn.train()
    return Story(not_(KILLED, "U9"), number=9, oom_kills=0, telemetry=memory(drawn, 0.97))


def beside_a_record(drawn: Variation) -> Story:
    drawn.train()
    kept = record(Cause.PREEMPTED, "Google preempted the machine")
    return Story(
        not_(PREEMPTED, "U9", "U3"), number=9, oom_kills=0, telemetry=memory(drawn, 0.6), record=kept, placement=GCE
    )


def allocation_refused(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(drawn.pick(
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 128. GiB for an array with shape (131072, 131072) and data type float64",
        "MemoryError",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you tried to allocate 687194767360 bytes. Error code 12 (Cannot allocate memory)",
    ))  # fmt: skip
    return Story(not_(KNOWN_ERROR, "U9"), code=1, telemetry=memory(drawn, 0.2))


def hand_killed_worker(drawn: Variation) -> Story:
    drawn.train()
    drawn.error("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ")
    return Story(not_(USER_ERROR, "U9"), code=1, oom_kills=0, telemetry=memory(drawn, 0.35), pages=TORCH)


def killed_at_half_unread(drawn: Variation) -> Story:
    """137 alone: the counter could not be read, memory was far from its limit."""
    drawn.train()
    answer = replace(KILLED, certainty="likely", retry="once_identical")
    return Story(not_(answer, "U9"), number=9, oom_kills=None, telemetry=memory(drawn, drawn.draw.uniform(0.2, 0.7)))


def worker_an_hour_after(drawn: Variation) -> Story:
    """A worker is killed by something else, an hour after the kernel's kill."""
    drawn.train(2)
    at = drawn.up_s
    drawn.train(5, every_s=900.0)
    drawn.error("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ")
    facts = (("oom.rose", at, "agent", at), ("step.at", drawn.up_s, "agent", drawn.up_s))
    return Story(not_(USER_ERROR, "U9"), code=1, oom_kills=1, telemetry=memory(drawn, 0.4), facts=facts, pages=TORCH)


def another_error_after_a_kill(drawn: Variation) -> Story:
    """The kernel killed something, and an error of the code ended the command: long after it, or beside a neighbor."""
    drawn.train(2)
    at = drawn.up_s
    drawn.train(3, every_s=(900.0, 2.0, 2.0)[drawn.seed % 3])
    drawn.error("KeyError: 'scheduler'")
    facts = [("oom.rose", at, "agent", at), ("oom.shared", drawn.seed % 3 == 1, "agent")]
    return Story(not_(USER_ERROR, "U9"), code=1, oom_kills=1, telemetry=memory(drawn, 0.5), facts=facts)


def kernel_words_of_another(drawn: Variation) -> Story:
    """The output shows the kernel's lines of another job; our own counter stands still."""
    drawn.say("dmesg: Out of memory: Killed process 812 (java) total-vm:81234567kB, anon-rss:66543210kB")
    drawn.train(2)
    return Story(
        not_(KILLED, "U9"), number=9, oom_kills=0, telemetry=memory(drawn, 0.3), pages="kernel.org: mm/oom_kill.c"
    )


def shared_an_hour_ago(drawn: Variation) -> Story:
    drawn.train(2)
    at = drawn.up_s
    drawn.train(5, every_s=900.0)
    facts = (("oom.rose", at, "agent", at), ("oom.shared", True, "agent"))
    answer = replace(KILLED, certainty="likely")
    return Story(not_(answer, "U9"), number=9, oom_kills=1, telemetry=memory(drawn, 0.97), facts=facts, pages=KERNEL)


def slurm_other_step(drawn: Variation) -> Story:
    """Another step of the job ran out of memory; the training had failed by itself."""
    drawn.train()
    drawn.error("KeyError: 'scheduler'")
    facts = (("platform.state", "OUT_OF_MEMORY", "provider"),)
    return Story(not_(USER_ERROR, "SLURM4"), code=1, oom_kills=None, facts=facts, placement=SLURM,
                 pages="slurm.schedmd.com: job_state_codes.html, OUT_OF_MEMORY")  # fmt: skip


def not_the_cards(drawn: Variation) -> Story:
    """A framework holds the whole card from its start; the memory that ran out is the host's."""
    drawn.train()
    drawn.error(
        drawn.pick(
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: failed to allocate memory",
            "RuntimeError: not enough memory to build the index of 41 M rows",
        )
    )
    group = memory(drawn, 0.985).cgroup
    return Story(not_(KNOWN_ERROR, "U10"), code=1, telemetry=cards(23.4)._replace(cgroup=group))


MECHANISMS = (
    Mechanism("not-the-cards", not_the_cards, 2),
    Mechanism("kernel-kill", kernel_kill, 6),
    Mechanism("worker-words", worker_words, 6),
    Mechanism("counter-unread", counter_unread, 5),
    Mechanism("container-killed", container_killed, 5),
    Mechanism("pod-killed", pod_killed, 5),
    Mechanism("kernel-words", kernel_words, 5),
    Mechanism("shared-and-full", shared_and_full, 5),
    Mechanism("slurm-killed", slurm_killed, 6),
    Mechanism("not-a-worker-an-hour-after", worker_an_hour_after, 3),
    Mechanism("not-another-error", another_error_after_a_kill, 6),
    Mechanism("not-the-words-of-another", kernel_words_of_another, 3),
    Mechanism("not-shared-an-hour-ago", shared_an_hour_ago, 3),
    Mechanism("not-another-step", slurm_other_step, 3),
    Mechanism("not-own-stop", own_stop, 5),
    Mechanism("not-a-neighbor", neighbors_kill, 5),
    Mechanism("not-an-hour-ago", an_hour_ago, 5),
    Mechanism("not-a-stranger", by_a_stranger, 5),
    Mechanism("not-beside-a-record", beside_a_record, 5),
    Mechanism("not-allocation-refused", allocation_refused, 5),
    Mechanism("not-hand-killed-worker", hand_killed_worker, 5),
    Mechanism("not-137-alone", killed_at_half_unread, 5),
)
