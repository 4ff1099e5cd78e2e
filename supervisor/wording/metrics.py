"""The words for a metric that is not finite, or that has jumped: in the history of a run, and in `spot why`."""

from __future__ import annotations

from supervisor.contract.signs import INF, SPIKE, OddMetric
from supervisor.wording.figures import step_text


def odd_text(odd: OddMetric) -> str:
    """'loss is NaN since step 1,240; the last finite value was 2.31 at step 1,239'. Without a full stop."""
    if odd.kind == SPIKE:
        value = "" if odd.value is None else f" to {odd.value:.4g}"
        usual = "" if odd.before is None else f"; the median before was {odd.before:.4g}"
        return f"{odd.name} jumped{value} at {step_text(odd.step)}{usual}"
    word = "infinite" if odd.kind == INF else "NaN"
    if odd.back_step is None:
        since = f"{odd.name} is {word} since {step_text(odd.step)}"
    else:
        since = f"{odd.name} was {word} at {step_text(odd.step)}, and is finite again since {step_text(odd.back_step)}"
    if odd.before is None or odd.before_step is None:
        return since if odd.back_step is not None else f"{since}; it was never finite in this attempt"
    return f"{since}; the last finite value was {odd.before:.4g} at {step_text(odd.before_step)}"
