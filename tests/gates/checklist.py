"""The lifecycle checklist in our words, numbered: every box to tick and every "verify" line of it, and the checks that
stand for each."""

from __future__ import annotations

CHECKLIST: dict[str, tuple[str, tuple[str, ...]]] = {
    # setup once
    "S1": ("first contact: what is convenient on the platform, and what costs money or data", ("danger_clocks",)),
    "S2": ("an SSH key exists and the platform knows it", ("key_login",)),
    "S3": ("one SSH alias for each machine, with a keepalive", ("keepalive",)),
    "S4": ("durable storage, large enough for all kept checkpoints and a reserve", ("durable_room",)),
    "S5": ("an image with the environment, where the platform has images", ("prepared_image",)),
    "S6": ("no Windows line ends in scripts", ("line_ends",)),
    "SV": ("the machine responds, and its durable folder is in the matrix", ("reachable",)),
    # audit
    "A1": ("the tier that survives the end: checkpoints go there", ("checkpoint_tier",)),
    "A2": ("storage that is bound to a region: all machines are there", ("region",)),
    "A3": ("measure bytes, inodes, memory limit and GPUs; assume none", ("measured_live", "memory_limit", "inodes")),
    "A4": ("the large folders on the disk itself, behind links too", ("space_hogs",)),
    "A5": ("the space for checkpoints and scratch, computed and compared", ("disk_bytes",)),
    "AV": ("the expected GPU is there, and inodes are not used up", ("gpus", "inodes")),
    # connection and credentials
    "C1": ("what the login can do: copies of files, a port that stays", ("transfer_flavor",)),
    "C2": ("the image is the environment: none is built on a rented machine", ("own_environment",)),
    "C3": ("secrets by name, never on shared storage", ("secrets",)),
    "C4": ("a mirror where one is needed, its speed measured on the same route", ("mirror",)),
    "CV": ("the framework sees the GPU", ("cuda_seen",)),
    # wrapper and smoke
    "W1": ("a repeatable start with the platform's own folders and settings", ("profile_values",)),
    "W2": ("the same command resumes", ("resumes",)),
    "W3": ("each cell of a sweep writes to a path of its own", ("own_output",)),
    "W4": ("the smoke runs on the own computer, before anything is rented", ("smoke_first",)),
    "WV": ("the smoke ends with 0, without tracker and traceback", ("smoke",)),
    # launch
    "L1": ("started apart from the connection; what a restart does is known", ("detached",)),
    "L2": ("transfers that resume; no edit under a live run", ("transfer",)),
    "L3": ("a short look: log, process, no traceback", ("clean_start",)),
    "LV": ("alive within a minute, with a first line", ("alive",)),
    # monitoring
    "M1": ("a long run has every layer that watches it", ("watch_layers",)),
    "M2": ("long waits in the background, reads that cannot hang", ("bounded_waits",)),
    "M3": ("trends of inodes and memory, new ends, ends that come too early", ("trends", "fast_finish")),
    "M4": ("each watcher is compared with the process and its files", ("reconciled",)),
    "M5": ("each failure has a class and its remedy", ("causes_typed",)),
    "MV": ("a line of the patrol even without news", ("patrol",)),
    # results and teardown
    "T1": ("saved as a checked copy, not as a line in a log", ("copy_checked",)),
    "T2": ("the expected number of files is in durable storage", ("result_count",)),
    "T3": ("pulled: a copy off the machine", ("copy_elsewhere",)),
    "T4": ("each file is loaded before the teardown", ("load_check",)),
    "T5": ("the facts of the run for a paper", ("provenance",)),
    "T6": ("the verb that stops the bill, after a person approved exactly that", ("approved",)),
    "TV": ("every file is verified before any teardown", ("all_verified",)),
}
