"""What helps: a closed list of words, with arithmetic where the evidence has the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.domain.diagnosis.verdict import Remedy
from supervisor.lifecycle.diagnosis.machine_signs import memory_share
from supervisor.lifecycle.diagnosis.signs import figure
from supervisor.wording.figures import gib_text, pruned_text

SPARE = 0.95  # of a memory limit that may be planned
MORE = 1.5  # how much larger a shape helps
KEEP_BATCH = "the batch can stay"

Values = Mapping[str, str]


def remedies_of(words: Sequence[str], evidence: Evidence, values: Values) -> tuple[Remedy, ...]:
    return tuple(_remedy(word, evidence, values) for word in words)


def _remedy(word: str, evidence: Evidence, values: Values) -> Remedy:
    text, ours, setting = REMEDIES[word]
    more = _FIGURES[word](evidence) if word in _FIGURES else ""
    return Remedy(word, more or text, ours or (word == "prune_scratch" and bool(more)), setting)


def fitting_workers(evidence: Evidence) -> int | None:
    """How many loader workers fit into the memory; None = the figures are not there."""
    limit, worker, main = (figure(evidence, name) for name in ("memory.limit", "worker.rss", "main.rss"))
    if limit is None or not worker or worker <= 0:
        return None
    return max(0, min(4096, int((SPARE * limit - (main or 0.0)) / worker)))


def _fewer_workers(evidence: Evidence) -> str:
    fitting, running = fitting_workers(evidence), figure(evidence, "worker.count")
    if fitting is None or (running is not None and fitting >= running):
        return ""
    return f"num_workers ≤ {fitting} fits this machine; {KEEP_BATCH}"


def _larger_shape(evidence: Evidence) -> str:
    limit, share = figure(evidence, "memory.limit"), memory_share(evidence)
    if limit is None or not 0 < limit < 1e18:
        return ""
    return f"a shape with at least {gib_text(MORE * limit * max(share or 1.0, 1.0))} GiB of memory"


def _prune_scratch(evidence: Evidence) -> str:
    files, freed_bytes = figure(evidence, "repair.files"), figure(evidence, "repair.bytes")
    return pruned_text(int(files), int(freed_bytes)) if files and freed_bytes is not None else ""


_FIGURES: Mapping[str, Callable[[Evidence], str]] = {
    "fewer_workers": _fewer_workers, "larger_shape": _larger_shape, "prune_scratch": _prune_scratch,
}  # fmt: skip

# word -> (text, the supervisor carries it out, the setting to change)
REMEDIES: Mapping[str, tuple[str, bool, str]] = {
    "fewer_workers": (f"use fewer loader workers (num_workers); {KEEP_BATCH}", False, "num_workers"),
    "larger_shape": ("a shape with more memory, as a further entry of `shapes`", True, "shapes"),
    "share_tensor": ("share one tensor among the workers instead of a copy in each", False, ""),
    "keep_batch": ("leave the batch size: the memory of the GPU is not the one that ran out", False, ""),
    "more_memory_asked": ("ask for more memory (`--mem`); the batch can stay", False, "memory"),
    "smaller_batch": ("a smaller batch, or gradient accumulation", False, "batch size"),
    "expandable_segments": (
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: much is reserved and not used", False, "env",
    ),
    "other_machine": ("another machine: the run goes on there", True, ""),
    "same_machine": ("the run goes on from its last checkpoint", True, ""),
    "quarantine": ("this offer is not requested again for an hour", True, ""),
    "check_card": ("have the card replaced, or rent another machine", False, ""),
    "free_card": ("end the process that holds the card; the supervisor never ends a stranger's", False, ""),
    "check_runtime": ("check the container runtime, the device plugin and the limits for GPUs", False, ""),
    "other_driver": ("a machine with a newer driver, or an image for an older CUDA", False, "image"),
    "prune_scratch": ("remove files in `scratch`; never checkpoints", False, "scratch"),
    "expand_disk": ("a larger disk, or fewer files on it", False, "disk_gb"),
    "largest_folders": ("look for the largest folders: `du -xh --max-depth=2`", False, ""),
    "fewer_files": ("fewer and larger files, such as tar shards", False, ""),
    "ask_killer": ("find out who sent the signal; do not shrink the batch", False, ""),
    "nohup": ("start it through the supervisor: its commands survive a closed connection", False, ""),
    "raise_ulimit": ("raise the limit of CPU time (ulimit -S -t)", False, ""),
    "more_frequent_checkpoints": ("save checkpoints more often, so that a limit loses less", False, "checkpoint"),
    "set_conda_env": ("set `conda_env`, so that the command runs in its environment", False, "conda_env"),
    "install_module": ("install the module in the image or the environment", False, "image"),
    "fix_setup": ("fix the command of `setup` that its last line names; try it on such a machine", False, "setup"),
    "longer_setup": ("raise the limit of the setup, `stall.setup_s`", False, "stall"),
    "base_image": ("put what takes long into an image, or into a base: `spot base create`", False, "base"),
    "fix_line_ends": ("give the scripts Unix line ends: `*.sh text eol=lf` in .gitattributes", False, ""),
    "check_command": ("check the command, its path and its permission", False, "command"),
    "fix_config": ("fix the configuration that the error names", False, "command"),
    "fix_code": ("fix the error that its last line names", False, "command"),
    "fix_reporting": ("keep the summary small: the training itself was done", False, ""),
    "run_smoke": ("`spot smoke` shows such an error in a minute, before a machine is rented", False, ""),
    "add_secret": ("put the key into `secrets`", False, "secrets"),
    "fix_secret": ("let the machine's account read the secret", False, "secrets"),
    "grant_role": ("grant the role that the message names", False, ""),
    "fix_image": ("fix the image, its name or the access to it", False, "image"),
    "fix_layers": ("match driver, image and torch: one of them is built for another CUDA", False, "image"),
    "deliver_again": ("the code is delivered again", True, ""),
    "check_launch": ("correct what the text names; of a container, for example, its arguments", False, ""),
    "approve": ("approve, or give the results up: `spot approve`", False, ""),
    "upload_again": ("the results are uploaded again", True, ""),
    "previous_checkpoint": ("the checkpoint before it is used", True, ""),
    "save_at_step_end": ("save at the end of a step (`stopping()`), so that no file is half written", False, ""),
    "surviving_path": ("write checkpoints to a path that survives the machine", False, "checkpoint_dir"),
    "see_dump": ("see where its threads stand: `spot show RUN --evidence`", False, ""),
    "longer_stall": ("announce long phases with spot_progress, or raise the limits in `stall`", False, "stall"),
    "other_zone": ("another zone", True, ""),
    "verify_account": ("verify the account at the platform, so that it gives a GPU and the network", False, ""),
    "resume": ("`spot resume`", False, ""),
    "stage_data": ("`stage:` copies the data to the local disk first", False, "stage"),
    "more_workers": ("num_workers = cores - 1, persistent_workers, pin_memory, prefetch=2", False, "num_workers"),
    "cap_threads": ("OMP_NUM_THREADS and torch.set_num_threads as large as the quota", False, "env"),
    "shard_files": ("tar shards of some 100 MB instead of small files", False, ""),
    "move_run": ("`on_slow: move` moves it at the next checkpoint", False, "on_slow"),
    "clip_gradients": ("clip the gradients", False, "gradient clipping"),
    "check_update": ("check whether the loss reaches the weights: detached, frozen, a learning rate of 0", False, ""),
    "resume_kept": ("`spot resume` goes on from the checkpoint before that step", False, ""),
    "resume_before": ("resume from a checkpoint before that step", False, ""),
    "report_metrics": ("report metrics with spot_progress: two lines", False, ""),
    "one_region": ("keep data and machines in one region", False, "zones"),
    "compress": ("compress checkpoints or store them in fp16", False, ""),
    "pin_versions": ("a lock file for the packages, a digest for the image", False, "image"),
    "set_seeds": ("set the seeds and the flags for determinism", False, ""),
    "larger_shm": ("a larger /dev/shm, or fewer loader workers; the batch can stay", False, "shm"),
    "less_at_once": ("read or build less at once in the memory of the host; the batch can stay", False, ""),
    "nccl_timeout": ("look for the process that left first; a shorter timeout of the group shows it", False, ""),
    "set_timeouts": ("set timeouts for connections", False, ""),
    "submit_again": ("submit the edited code as a new run", False, ""),
    "unbuffered": ("unbuffered output: PYTHONUNBUFFERED=1", False, "env"),
    "save_by_time": ("save where `spot_progress.should_save()` is true, or change how often it saves", False, ""),
    "load_checkpoint": (
        "load the newest entry of SPOT_CHECKPOINT_DIR at the start, and count on from its step", False, "command",
    ),
    "warn_only": ("`on_resume_ignored: warn`, if it starts over on purpose", False, "on_resume_ignored"),
    "lower_rate": ("look at the learning rate and the data of the last steps", False, ""),
}  # fmt: skip
