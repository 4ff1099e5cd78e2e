"""Results and checkpoints: unverified, torn, lost; and ends after the work."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.makers.answers import ALIVE, FINISHED, PARTIAL, UNVERIFIED, USER_ERROR, code, not_
from tests.diagnosis.makers.situations import GCE, SLURM, Mechanism, Story
from tests.diagnosis.makers.variations import Variation

PLOT = "ValueError: Image size of {}x{} pixels is too large. It must be less than 2^16 in each direction."


def last_step(drawn: Variation) -> None:
    drawn.train(4)
    drawn.total = drawn.step


def unverified(drawn: Variation) -> Story:
    last_step(drawn)
    text = drawn.pick(
        "model.bin: 0 of 104857600 bytes in the store", "metrics.json is missing", "model.bin: its checksum differs"
    )
    facts = (("results.unverified", text, "own"), ("upload.missing", text, "agent"))
    return Story(UNVERIFIED, code=0, facts=facts, cause=Cause.RESULTS_UNVERIFIED, detail=text)


def summary_fails(drawn: Variation) -> Story:
    last_step(drawn)
    drawn.error(drawn.pick(
        PLOT.format(80000, 91000), "ModuleNotFoundError: No module named 'tabulate'", "KeyError: 'val/best'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.00 GiB is free.",
        "OSError: cannot open resource",
    ))  # fmt: skip
    return Story(PARTIAL, code=1, after_work=True)


def plot_early(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(PLOT.format(70000 + drawn.seed, 66000))
    return Story(not_(code("U37", "likely", "fix_reporting")), code=1)


def failed_early(drawn: Variation) -> Story:
    drawn.train()
    drawn.error("KeyError: 'val/best'")
    return Story(not_(USER_ERROR, "U37"), code=1)


def torn_checkpoint(drawn: Variation) -> Story:
    """The newest checkpoint did not verify; the one before was used, and the run trains."""
    drawn.train()
    facts = (("checkpoint.torn", drawn.step, "agent"), ("step.first_after_restore", drawn.first_step + 10, "agent"))
    return Story(replace(ALIVE, hints=("SLURM1",), negative=False), facts=facts, placement=SLURM)


def lost_checkpoint(drawn: Variation) -> Story:
    """The pointer names a checkpoint that lay on the scratch of another node."""
    drawn.train()
    facts = (("checkpoint.missing", drawn.step, "agent"),)
    return Story(replace(ALIVE, hints=("SLURM5",), negative=False), facts=facts, placement=SLURM)


def small_file(drawn: Variation) -> Story:
    """A mount of a notebook reports the file written, and the listing does not have it."""
    drawn.train()
    facts = (("checkpoint.missing", drawn.step, "agent"), ("upload.missing", "step-300.pt: 0 bytes", "provider"))
    return Story(
        replace(ALIVE, hints=("NB1",), negative=False),
        facts=facts,
        pages="research.google.com/colaboratory/faq.html: Drive",
    )


def resume_ignored(drawn: Variation) -> Story:
    """The run was restored from a step and begins at zero."""
    drawn.train()
    facts = (("step.from", 4000, "agent"), ("step.first_after_restore", 10, "agent"))
    return Story(replace(ALIVE, hints=("RESUME",), negative=False), facts=facts, placement=GCE)


def torn_in_code(drawn: Variation) -> Story:
    """The command itself loads a file that is half written: its own error."""
    drawn.noise(2)
    drawn.error(drawn.pick(
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "EOFError: Ran out of input", "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "_pickle.UnpicklingError: pickle data was truncated",
    ))  # fmt: skip
    return Story(replace(USER_ERROR, retry="never"), code=1)


def good_end(drawn: Variation) -> Story:
    last_step(drawn)
    drawn.say("warning: 3 samples were skipped: KeyError: 'caption'")
    return Story(not_(FINISHED, "U33", "U37"), code=0)


MECHANISMS = (
    Mechanism("unverified", unverified, 6),
    Mechanism("summary-fails", summary_fails, 7),
    Mechanism("torn-checkpoint", torn_checkpoint, 5),
    Mechanism("lost-checkpoint", lost_checkpoint, 5),
    Mechanism("small-file", small_file, 5),
    Mechanism("resume-ignored", resume_ignored, 5),
    Mechanism("torn-in-code", torn_in_code, 5),
    Mechanism("not-plot-early", plot_early, 5),
    Mechanism("not-failed-early", failed_early, 4),
    Mechanism("not-good-end", good_end, 4),
)
