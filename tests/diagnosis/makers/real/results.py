"""Ends after the work: summaries that fail, results that are there or not."""

from __future__ import annotations

from tests.diagnosis.makers.answers import FINISHED, PARTIAL, USER_ERROR, code, not_
from tests.diagnosis.makers.lives import Live

AFTER = """
import os, sys
import spot_progress
for step in range(1, 6):
    spot_progress.report(step, total=5, loss=1.0 / step)
    print("step", step, flush=True)
open(os.path.join(os.environ["SPOT_RESULTS_DIR"], "model.bin"), "wb").write(b"x" * 1000)
"""
PLOT = (
    AFTER
    + "raise ValueError('Image size of 80000x90000 pixels is too large. It must be less than 2^16 in each direction.')\n"
)
BEFORE = AFTER.replace("range(1, 6)", "range(1, 4)") + (
    "raise ValueError('Image size of 80000x90000 pixels is too large. It must be less than 2^16 in each direction.')\n"
)
EARLY = AFTER.replace("range(1, 6)", "range(1, 4)") + "sys.exit(1)\n"
CASES = (
    Live("plot-after-the-last-step", PARTIAL, lambda life: life.python(PLOT), how="a plot fails after the last step"),
    Live("exit-1-after-the-last-step", PARTIAL, lambda life: life.python(AFTER + "sys.exit(1)\n"), how="exit 1 after the last step"),
    Live("report-module-missing", PARTIAL, lambda life: life.python(AFTER + "import tabulate_x\n"),
         how="a module of the final report is missing"),
    Live("segfault-after-the-last-step", PARTIAL,
         lambda life: life.python(AFTER + "import ctypes\nctypes.string_at(0)\n"), how="a crash at the interpreter's end"),
    Live("no-results-after-the-last-step", not_(code("U5", "certain", "install_module"), "U37"), lambda life: life.toy("--exit", "2", "--steps", "4"), how="exit 2 after all steps, no results"),
    Live("plot-before-the-last-step", not_(code("U37", "likely", "fix_reporting")), lambda life: life.python(BEFORE),
         how="the same error before the last step"),
    Live("exit-1-before-the-last-step", not_(USER_ERROR, "U37"), lambda life: life.python(EARLY), how="exit 1 before the last step"),
    Live("finished", not_(FINISHED, "U37"), lambda life: life.python(AFTER), how="a good end"),
    Live("finished-with-warnings", not_(FINISHED, "U10", "U22"),
         lambda life: life.python(AFTER + "print('RuntimeError: CUDA out of memory (this is the documentation of the error)')\n"),
         how="a good end whose log contains words of errors"),
)  # fmt: skip
