"""Runs that are alive although something looks dead: the figures of the gotchas that must never act."""

from __future__ import annotations

from tests.diagnosis.makers.answers import ALIVE, not_
from tests.diagnosis.makers.situations import GCE, Mechanism, Story, cards, memory
from tests.diagnosis.makers.variations import Variation

MOVES = ("motion.cpu", True, "agent")


def loaded_host(drawn: Variation) -> Story:
    """Load 400 on the host, a roomy group, and steps that move."""
    drawn.train()
    facts = (
        MOVES,
        ("host.load", round(drawn.draw.uniform(150, 420), 1), "host"),
        ("host.cores", 64, "host"),
        ("oom.kills", 0, "agent"),
    )
    return Story(not_(ALIVE, "U41", "U9"), facts=facts, telemetry=memory(drawn, drawn.draw.uniform(0.2, 0.75)))


def poll_unknown(drawn: Variation) -> Story:
    drawn.train()
    return Story(not_(ALIVE, "U17", "GEN8"), facts=(MOVES,), placement=GCE)


def no_process_name(drawn: Variation) -> Story:
    """The process has another name than yesterday: only beats and steps count."""
    drawn.train()
    drawn.say("setproctitle: trainer/rank0")
    return Story(not_(ALIVE, "U16", "U18"), facts=(MOVES,))


def idle_card_with_steps(drawn: Variation) -> Story:
    drawn.train()
    return Story(not_(ALIVE, "U38"), facts=(MOVES, ("window.gpu_util", 1.0, "agent")), telemetry=cards(2.0, util=0.0))


def event_files_elsewhere(drawn: Variation) -> Story:
    drawn.train()
    drawn.say("TensorBoard: no event files in ./runs")
    return Story(not_(ALIVE, "U39"), facts=(MOVES, ("motion.files", True, "agent")))


def buffered(drawn: Variation) -> Story:
    """Not one line of output, but the checkpoint is new."""
    drawn.steps.append((0, drawn.step + 10, drawn.up_s))
    drawn.step += 10
    facts = (
        MOVES,
        ("window.log_silent_s", 900.0, "agent"),
        ("step.checkpoint", drawn.step, "agent"),
        ("motion.files", True, "agent"),
    )
    return Story(not_(ALIVE, "U43", "HANG"), facts=facts)


def memory_high(drawn: Variation) -> Story:
    """Memory near its limit is a figure, not an end."""
    drawn.train()
    return Story(
        not_(ALIVE, "U9"),
        facts=(MOVES, ("oom.kills", 0, "agent")),
        telemetry=memory(drawn, drawn.draw.uniform(0.95, 0.99)),
    )


def slow_disk_wait(drawn: Variation) -> Story:
    drawn.train()
    return Story(
        not_(ALIVE, "U8", "HANG"), facts=(MOVES, ("motion.io", True, "agent"), ("window.io_pressure", 20.0, "agent"))
    )


def scary_words(drawn: Variation) -> Story:
    drawn.train(2)
    drawn.say(drawn.pick(
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>", "ERROR: could not load the old cache, rebuilding it",
        "Killed 3 stale workers of the last epoch", "[W] NCCL WARN Call to ibv_create_qp failed, falling back to sockets",
    ))  # fmt: skip
    drawn.train(3)
    return Story(not_(ALIVE, "U9", "CODE"), facts=(MOVES,), telemetry=cards(18.0))


MECHANISMS = (
    Mechanism("loaded-host", loaded_host, 5),
    Mechanism("poll-unknown", poll_unknown, 4),
    Mechanism("another-name", no_process_name, 4),
    Mechanism("idle-card", idle_card_with_steps, 4),
    Mechanism("no-event-files", event_files_elsewhere, 4),
    Mechanism("buffered", buffered, 5),
    Mechanism("memory-high", memory_high, 5),
    Mechanism("disk-wait", slow_disk_wait, 4),
    Mechanism("scary-words", scary_words, 5),
)
