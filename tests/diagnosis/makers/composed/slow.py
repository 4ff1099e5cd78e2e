"""Slow runs: figures of several minutes, each a hint that never acts; and figures that look so and are well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.diagnosis.makers.answers import ALIVE, not_, slow
from tests.diagnosis.makers.situations import Mechanism, Story, cards
from tests.diagnosis.makers.variations import Variation

# Gotcha -> its figures; a pair of numbers is a range from which the seed draws.
FIGURES: dict[str, Sequence[tuple[str, object]]] = {
    "U8": (("mount.data", "nfs4"), ("window.io_pressure", (45, 80)), ("window.gpu_util", (12, 45))),
    "U14": (("egress.usd", (12, 90)), ("egress.share", (0.06, 0.4))),
    "U15": (("checkpoint.shrinks", (0.3, 0.65)), ("window.save_share", (0.22, 0.5))),
    "U20": (("metric.reported", False), ("up.s", (1300, 9000))),
    "U21": (
        ("window.gpu_util", (95, 99)),
        ("window.sm_clock_share", (0.3, 0.48)),
        ("window.power_share", (0.2, 0.38)),
        ("window.clock_reasons", 0),
    ),
    "U23": (("window.clock_reasons", 64), ("window.temperature", (84, 95)), ("window.steps_share", (0.4, 0.72))),
    "U24": (("window.gpu_util", (12, 65)), ("hang.place", "input"), ("window.loader_cpu", (95, 100))),
    "U25": (
        ("window.new_inodes_per_s", (120, 900)),
        ("window.read_bytes", (4000, 15000)),
        ("window.reads_per_s", (1100, 5000)),
    ),
    "U29": (("facts.changed", "packages"),),
    "U30": (("image.moved", True),),
    "U36": (("facts.changed", "metrics differ with the same seed"),),
    "U40": (
        ("window.threads", (64, 256)),
        ("window.cpu_quota", 8.0),
        ("window.throttled_share", (0.25, 0.8)),
        ("window.gpu_util", (2, 18)),
    ),
    "GEN7": (("window.card_others_bytes", (1.5e9, 9e9)), ("window.steps_share", (0.4, 0.8))),
    "U2": (("code.changed", True),),
    "U12": (("window.download_still_s", (130, 900)),),
}
WELL: dict[str, Sequence[tuple[str, object]]] = {
    "U8": (("mount.data", "nfs4"), ("window.io_pressure", (1, 8)), ("window.gpu_util", (88, 99))),
    "U21": (
        ("window.gpu_util", (95, 99)),
        ("window.sm_clock_share", (0.93, 1.0)),
        ("window.power_share", (0.8, 1.0)),
        ("window.clock_reasons", 0),
    ),
    "U23": (("window.clock_reasons", 0), ("window.temperature", (84, 88)), ("window.steps_share", (0.97, 1.0))),
    "U25": (("window.new_inodes_per_s", (0, 3)), ("window.read_bytes", (4e5, 4e6)), ("window.reads_per_s", (20, 300))),
    "U40": (
        ("window.threads", (64, 128)),
        ("window.cpu_quota", 8.0),
        ("window.throttled_share", (0.0, 0.04)),
        ("window.gpu_util", (85, 99)),
    ),
    "GEN7": (("window.card_others_bytes", (0, 2e8)), ("window.steps_share", (0.97, 1.0))),
}


def _drawn(drawn: Variation, figures: Sequence[tuple[str, object]]) -> tuple[tuple[str, object, str], ...]:
    values = (
        (name, round(drawn.draw.uniform(*value), 4) if isinstance(value, tuple) else value) for name, value in figures
    )
    return tuple((name, value, "agent") for name, value in values if name != "hang.place")


def _slow(gotcha: str) -> Callable[[Variation], Story]:
    def tell(drawn: Variation) -> Story:
        drawn.train(8, every_s=30.0)
        return Story(
            slow(gotcha), facts=_drawn(drawn, FIGURES[gotcha]), phase="training", telemetry=cards(18.0, util=40.0)
        )

    return tell


def _well(gotcha: str) -> Callable[[Variation], Story]:
    def tell(drawn: Variation) -> Story:
        drawn.train(8, every_s=30.0)
        return Story(not_(ALIVE, gotcha), facts=_drawn(drawn, WELL[gotcha]), phase="training", telemetry=cards(18.0))

    return tell


def _odd(drawn: Variation, words: str) -> tuple[str, object, str, float, str]:
    """As the agent reports a metric (supervisor/wording/stalls.py)."""
    return ("metric.nonfinite", drawn.pick("loss", "train/loss", "kl"), "agent", drawn.up_s, words)


def not_finite(drawn: Variation) -> Story:
    """The loss is NaN and nothing watches it: a finding, and the run goes on."""
    drawn.train(8, every_s=30.0)
    drawn.say("loss nan", "grad_norm nan")
    step = drawn.step
    words = f"loss is NaN since step {step}; the last finite value was 2.31 at step {step - 10}"
    return Story(slow("METRIC"), facts=(_odd(drawn, words),), phase="training", telemetry=cards(18.0))


def recovered(drawn: Variation) -> Story:
    """Infinite once, then finite again: mixed precision lowers its scale so."""
    drawn.train(4, every_s=30.0)
    step = drawn.step
    drawn.train(4, every_s=30.0)
    words = f"loss was infinite at step {step}, and is finite again since step {step + 1}"
    return Story(slow("METRIC"), facts=(_odd(drawn, words),), phase="training", telemetry=cards(18.0))


def jumped(drawn: Variation) -> Story:
    """A watched loss that is far above its median."""
    drawn.train(8, every_s=30.0)
    name = drawn.pick("loss", "train/loss", "kl")
    words = f"{name} jumped to 412.7 at step {drawn.step}; the median before was 2.31"
    facts = (("metric.spike", name, "agent", drawn.up_s, words),)
    return Story(slow("METRIC"), facts=facts, phase="training", telemetry=cards(18.0))


def unchanged(drawn: Variation) -> Story:
    """The loss is the same in every report: nothing is learned."""
    drawn.train(8, every_s=30.0)
    name, value = drawn.pick("loss", "train/loss", "nll"), drawn.pick("0", "0.6931", "2.303", "11.76")
    words = f"{name} is {value} in every report since step {drawn.step - 70}"
    facts = (("metric.flat", name, "agent", drawn.up_s, words),)
    return Story(slow("METRIC"), facts=facts, phase="training", telemetry=cards(18.0))


def half_as_fast(drawn: Variation) -> Story:
    """The steps take twice as long as before, and no figure of the card says why."""
    drawn.train(8, every_s=30.0)
    facts = _drawn(drawn, (("window.steps_share", (0.2, 0.48)), ("window.gpu_util", (60, 90))))
    return Story(slow("METRIC"), facts=facts, phase="training", telemetry=cards(18.0))


def half_as_fast_and_hot(drawn: Variation) -> Story:
    """The card says why."""
    drawn.train(8, every_s=30.0)
    facts = _drawn(drawn, (("window.steps_share", (0.2, 0.48)), ("window.clock_reasons", 32)))
    return Story(not_(slow("U23"), "METRIC"), facts=facts, phase="training", telemetry=cards(18.0))


def half_as_fast_and_shared(drawn: Variation) -> Story:
    """A stranger uses the card."""
    drawn.train(8, every_s=30.0)
    facts = _drawn(drawn, (("window.card_others_bytes", (1.5e9, 9e9)), ("window.steps_share", (0.2, 0.48))))
    return Story(not_(slow("GEN7"), "METRIC"), facts=facts, phase="training", telemetry=cards(18.0))


def only_the_log_says_nan(drawn: Variation) -> Story:
    """A validation metric that is not reported is NaN in the log: no metric of the run is odd."""
    drawn.train(4, every_s=30.0)
    drawn.say(drawn.pick("val/auc: nan (one class only)", "RuntimeWarning: Mean of empty slice", "bleu=nan"))
    drawn.train(4, every_s=30.0)
    return Story(not_(ALIVE, "METRIC"), phase="training", telemetry=cards(18.0))


def throttled_and_not_underfed(drawn: Variation) -> Story:
    """Low clocks at full use, with a reason of the card: it is hot, the code feeds it well."""
    drawn.train(8, every_s=30.0)
    facts = _drawn(drawn, (*FIGURES["U23"], ("window.gpu_util", (95, 99)), ("window.sm_clock_share", (0.3, 0.48))))
    return Story(not_(slow("U23"), "U21"), facts=facts, phase="training", telemetry=cards(18.0))


MECHANISMS = (
    Mechanism("not-underfed-but-hot", throttled_and_not_underfed, 3),
    Mechanism("not-finite", not_finite, 3),
    Mechanism("infinite-once", recovered, 2),
    Mechanism("jumped", jumped, 2),
    Mechanism("unchanged", unchanged, 5),
    Mechanism("half-as-fast", half_as_fast, 5),
    Mechanism("not-half-as-fast-but-hot", half_as_fast_and_hot, 2),
    Mechanism("not-half-as-fast-but-shared", half_as_fast_and_shared, 2),
    Mechanism("not-reported-nan", only_the_log_says_nan, 2),
    *(Mechanism(gotcha.lower(), _slow(gotcha), 5) for gotcha in FIGURES),
    *(Mechanism(f"not-{gotcha.lower()}", _well(gotcha), 3) for gotcha in WELL),
)
