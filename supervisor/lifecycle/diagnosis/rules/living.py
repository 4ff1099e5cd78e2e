"""Runs that live: what makes them slow, and what went wrong without ending them. Hints only: nothing acts on them."""

from __future__ import annotations

from supervisor.contract.signs import SLOW_MOUNTS, THROTTLING
from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.diagnosis.rule import Match, Rule, Sign, Tier
from supervisor.lifecycle.diagnosis.signs import above, below, figure, has_bits, quote_of, says, steps_fell_back
from supervisor.wording.figures import age_text, count_text

_SLOW_MOUNT = says("mount.data", *SLOW_MOUNTS)


def _hint(
    gotcha: str, word: str, requires: tuple[Sign, ...], sentence: str, *remedies: str, excludes: tuple[Sign, ...] = ()
) -> Rule:
    where = Where.MACHINE if gotcha in ("U23", "GEN7") else Where.DATA
    return Rule(
        f"{gotcha}.{word}", (gotcha,), Tier.FIGURES, requires, excludes, Certainty.HINT, None, where, Retry.NONE,
        sentence, remedies,
    )  # fmt: skip


def _odd(item_name: str, statement: str, no: str) -> Sign:
    """A metric of this kind; the sentence has the figures of all of them."""

    def find(evidence: Evidence) -> Match | None:
        texts = {item.where or f"{item.value} was not finite": item for item in evidence.items.get(item_name, ())}
        quotes = tuple(quote_of(item, text) for text, item in texts.items())
        return Match({"metrics": "; ".join(texts)}, quotes) if texts else None

    return Sign(statement, find, (item_name,), no)


def _too_many(evidence: Evidence) -> Match | None:
    threads, quota = figure(evidence, "window.threads"), figure(evidence, "window.cpu_quota")
    item = evidence.last("window.threads")
    if item is None or threads is None or (quota is not None and threads <= 2 * quota):
        return None
    values = {"window_threads": f"{threads:.0f}"} | ({} if quota is None else {"window_cpu_quota": f"{quota:g}"})
    return Match(values, (quote_of(item),))


_TOO_MANY_THREADS = Sign(
    "more than two threads run for each core of the quota", _too_many, ("window.threads",),
    "the threads fit the quota",
)  # fmt: skip


def _saves(evidence: Evidence) -> Match | None:
    """Figures only of an agent that found the pace much too slow or too fast."""
    every_s, best_s = figure(evidence, "save.every_s"), figure(evidence, "save.best_s")
    cost_s = figure(evidence, "save.s")
    item = evidence.last("save.every_s")
    if item is None or every_s is None or not best_s:
        return None
    steps = figure(evidence, "save.best_steps")
    by_steps = f"{count_text(int(steps))} steps / " if steps else ""
    values = {"every": age_text(every_s), "best": f"{by_steps}{age_text(best_s)}"}
    values |= {"more": "too rarely" if every_s > best_s else "too often"}
    values |= {} if cost_s is None else {"cost": age_text(cost_s)}
    return Match(values, (quote_of(item),))


_SAVES = Sign(
    "it saves much too rarely or too often", _saves, ("save.every_s",), "it saves about as often as it should"
)
RULES = (
    _hint(
        "METRIC", "nonfinite", (_odd("metric.nonfinite", "a metric is not finite", "all metrics are finite"),),
        "{metrics:a metric is NaN or infinite}", "lower_rate", "clip_gradients", "resume_before",
    ),
    _hint(
        "METRIC", "spike", (_odd("metric.spike", "a watched metric jumped", "no watched metric jumped"),),
        "{metrics:a metric has jumped}",
        "lower_rate", "clip_gradients",
    ),
    _hint(
        "METRIC", "flat", (_odd("metric.flat", "a metric does not change at all", "the metrics change"),),
        "{metrics:a metric does not change}", "check_update",
    ),
    _hint(
        "U8", "mount", (_SLOW_MOUNT, above("window.io_pressure", 40), below("window.gpu_util", 50)),
        "the data is on {mount_data}: tasks wait for the disk {window_io_pressure} % of the time, and the GPU is used "
        "{window_gpu_util} %", "stage_data",
    ),
    _hint(
        "U24", "loader", (above("window.loader_cpu", 90), above("window.gpu_util", 9), below("window.gpu_util", 70)),
        "the GPU waits for the data loader: it is used {window_gpu_util} %, the workers {window_loader_cpu} %",
        "more_workers",
    ),
    _hint(
        "U25", "small_files",
        ((below("window.read_bytes", 16_384) & above("window.reads_per_s", 1000))
        | above("window.new_inodes_per_s", 100),),
        "many small files[: {window_reads_per_s} reads a second of {window_read_bytes} bytes]"
        "[; {window_new_inodes_per_s} new files a second]", "shard_files",
    ),
    _hint(
        "U40", "threads",
        (above("window.throttled_share", 0.2), below("window.gpu_util", 20), _TOO_MANY_THREADS),
        "{window_threads} threads share a quota of {window_cpu_quota:few} cores, and are throttled "
        "{window_throttled_share} of the time", "cap_threads",
    ),
    _hint(
        "U23", "throttled", (has_bits("window.clock_reasons", THROTTLING), below("window.steps_share", 0.75)),
        "the GPU is throttled[ at {window_temperature} °C]: the steps are at {window_steps_share} of their usual pace",
        "move_run",
    ),
    _hint(
        "U21", "underfed", (above("window.gpu_util", 95), below("window.sm_clock_share", 0.5)
        | below("window.power_share", 0.4)),
        "the GPU is busy without much work: used {window_gpu_util} %, at {window_sm_clock_share:a low part} of its "
        "clock", "more_workers", excludes=(has_bits("window.clock_reasons", THROTTLING),),
    ),
    _hint(
        "GEN7", "shared", (above("window.card_others_bytes", 2**30), below("window.steps_share", 0.9)),
        "others use {window_card_others_bytes} bytes of the card, and the steps are at {window_steps_share} of their "
        "usual pace", "free_card",
    ),
    _hint(
        "U12", "download", (above("window.download_still_s", 120),),
        "a download stands still for {window_download_still_s} s",
    ),
    _hint(
        "METRIC", "halved", (below("window.steps_share", 0.5),),
        "the steps are at {window_steps_share} of their usual pace, the median of this attempt",
        excludes=(has_bits("window.clock_reasons", THROTTLING), above("window.card_others_bytes", 2**30)),
    ),
    _hint(
        "U14", "egress", (above("egress.share", 0.05),), "data that leaves its region costs ${egress_usd}",
        "one_region",
    ),
    _hint(
        "U15", "compress", (below("checkpoint.shrinks", 0.7), above("window.save_share", 0.2)),
        "checkpoints shrink to {checkpoint_shrinks} of their size, and saving takes {window_save_share} of the time",
        "compress",
    ),
    _hint(
        "SAVE", "pace", (_SAVES,),
        "it saves {more}, every {every}: save every {best} on this machine[, where a save takes {cost}]",
        "save_by_time",
    ),
    _hint(
        "U20", "metrics", (says("metric.reported", "False"),), "the log has losses, and no metric is reported",
        "report_metrics",
    ),
    _hint(
        "U29", "packages", (says("facts.changed", "package"),),
        "the packages differ from those of the attempt before[: {facts_changed_where}]", "pin_versions",
    ),
    _hint("U36", "seeds", (says("facts.changed", "seed", "metrics differ"),), "{facts_changed}", "set_seeds"),
    _hint(
        "U30", "tag", (says("image.moved", "True"),),
        "the image's tag has moved, and this attempt runs another content than the one before[: {image_moved_where}]",
        "pin_versions",
    ),
    _hint(
        "U2", "edited", (says("code.changed", "True"),),
        "the code was edited under a live run[: {code_changed_where}]", "submit_again",
    ),
    _hint(
        "SLURM1", "torn_checkpoint", (above("checkpoint.torn", -1),),
        "the checkpoint of step {checkpoint_torn} is torn; the one before is used", "previous_checkpoint",
        "save_at_step_end",
    ),
    _hint(
        "SLURM5", "lost", (above("checkpoint.missing", -1),),
        "the checkpoint of step {checkpoint_missing} is not there",
        "surviving_path", excludes=(says("upload.missing"),),
    ),
    _hint(
        "NB1", "upload", (says("upload.missing"),), "an upload is not whole: {upload_missing}", "previous_checkpoint",
    ),
    _hint(
        "RESUME", "ignored", (steps_fell_back(),),
        "it was restored at step {from_step} and began with step {first_step}: the checkpoint was not used", "fix_code",
    ),
)  # fmt: skip
