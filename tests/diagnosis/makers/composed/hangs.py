"""Hangs in each of the seven places; and long quiet phases of healthy runs."""

from __future__ import annotations

from supervisor.domain.causes import Cause
from tests.diagnosis.makers.answers import ALIVE, USER_ERROR, hang, not_
from tests.diagnosis.makers.situations import Mechanism, Story, cards
from tests.diagnosis.makers.variations import Variation

PLACES = ("input", "collective", "gpu_kernel", "lock", "network", "disk", "stopped", "unknown")
STILL = (
    ("motion.gpu", False, "agent"),
    ("motion.cpu", False, "agent"),
    ("motion.io", False, "agent"),
    ("motion.net", False, "agent"),
)


def _stands(place: str):  # type: ignore[no-untyped-def]
    def tell(drawn: Variation) -> Story:
        drawn.train(8)
        still = round(drawn.draw.uniform(70, 900), 1)
        drawn.wait(still)
        facts = (("hang.place", place, "agent", drawn.up_s), ("hang.still_s", still, "agent", drawn.up_s), *STILL)
        return Story(
            hang(place),
            facts=facts,
            cause=Cause.STALLED,
            detail=f"no progress for {still:.0f} s",
            telemetry=cards(18.0, util=0.0),
        )

    return tell


def silent_command(drawn: Variation) -> Story:
    """It reports no steps at all; nothing has moved for half an hour."""
    drawn.noise(5)
    drawn.wait(1900)
    facts = (
        ("hang.place", "unknown", "agent", drawn.up_s),
        ("hang.still_s", 1850.0, "agent", drawn.up_s),
        *STILL,
        ("motion.files", False, "agent"),
    )
    return Story(hang("unknown"), facts=facts, cause=Cause.STALLED, detail="no output, no files, no motion for 31 min")


# --- look-alikes ------------------------------------------------------------------------------------------------------


def _quiet(seconds: tuple[float, float], phase: str, *moves: str):  # type: ignore[no-untyped-def]
    def tell(drawn: Variation) -> Story:
        drawn.train(8)
        drawn.wait(drawn.draw.uniform(*seconds))
        facts = tuple((f"motion.{name}", name in moves, "agent") for name in ("gpu", "cpu", "io", "net", "files"))
        return Story(
            not_(ALIVE, "HANG"), phase=phase, facts=facts, telemetry=cards(18.0, util=95.0 if "gpu" in moves else 0.0)
        )

    return tell


def silent_log(drawn: Variation) -> Story:
    """The log is silent, but steps move: the output is buffered."""
    drawn.train(8)
    drawn.wait(5)
    facts = (
        ("window.log_silent_s", 1200.0, "agent"),
        ("step.checkpoint", drawn.step, "agent"),
        ("motion.files", True, "agent"),
    )
    return Story(not_(ALIVE, "HANG", "U43"), phase="training", facts=facts, telemetry=cards(18.0))


def went_on(drawn: Variation) -> Story:
    """It stood still for a while, went on, and failed hours later with an error of its own."""
    drawn.train(8)
    at = drawn.up_s + 80
    drawn.wait(120)
    drawn.train(8, every_s=900.0)
    drawn.error("KeyError: 'lr'")
    place = PLACES[drawn.seed % len(PLACES)]
    facts = (("hang.place", place, "agent", at), ("hang.still_s", 80.0, "agent", at))
    return Story(not_(USER_ERROR, "HANG"), code=1, facts=facts)


MECHANISMS = (
    *(Mechanism(place.replace("_", "-"), _stands(place), 5) for place in PLACES),
    Mechanism("silent-command", silent_command, 5),
    Mechanism("not-evaluation", _quiet((1100, 1300), "evaluation", "gpu", "cpu"), 5),
    Mechanism("not-unannounced-evaluation", _quiet((300, 900), "training", "gpu", "cpu"), 5),
    Mechanism("not-checkpoint-pause", _quiet((600, 1200), "training", "io", "files", "cpu"), 5),
    Mechanism("not-slow-store", _quiet((300, 600), "checkpoint", "net", "io"), 4),
    Mechanism("not-warm-up", _quiet((800, 900), "training", "cpu"), 4),
    Mechanism("not-silent-log", silent_log, 5),
    Mechanism("not-one-that-went-on", went_on, 8),
)
