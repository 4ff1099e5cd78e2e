"""Cases kept apart from the rules' making: other programs, versions, languages and orders of the same mechanisms.

They were written without a look at the table of patterns and measured once before anyone could tune on them; the first
figures stand in docs/diagnosis.md.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.makers.answers import (
    DISK_FULL,
    GPU_OOM,
    HOST_OOM,
    IMAGE_ERROR,
    INODES,
    KILLED,
    KNOWN_ERROR,
    NOT_STARTED,
    PREEMPTED,
    SLURM_OOM,
    USER_ERROR,
    code,
    not_,
)
from tests.diagnosis.makers.situations import KUBERNETES, SLURM, Mechanism, Story, cards, disk, memory, record
from tests.diagnosis.makers.variations import Variation

FULL = "results: 0 of 20480 MiB are free"


def card_full(drawn: Variation) -> Story:
    drawn.train()
    text = drawn.pick(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 63.98 GiB of which 512.00 MiB is free.",
        "ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 1.953125GB memory on GPU 0, 23.100098GB memory has been allocated and available memory is only 591.812500MB.",
        "xgboost.core.XGBoostError: [12:00:00] /workspace/src/common/device_helpers.cuh:428: Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
        "onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Conv node. CUDA failure 2: out of memory ; GPU=0 ; hostname=node",
        "RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details): Cuda failure 2 'out of memory'",
        "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
    )
    drawn.error(text)
    drawn.teardown()
    return Story(GPU_OOM, code=1, telemetry=cards(23.3))


def card_full_native(drawn: Variation) -> Story:
    """Programs without a traceback."""
    drawn.train()
    drawn.say(
        drawn.pick(
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 0: cudaMalloc failed: out of memory",
            "ERROR: LoadError: Out of GPU memory trying to allocate 2.000 GiB",
            "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
            "CUDA error 2 at src/kernels.cu:380: out of memory",
        )
    )
    return Story(GPU_OOM, code=1, telemetry=cards(23.3))


def other_memory(drawn: Variation) -> Story:
    """An OutOfMemoryError of something that is no card."""
    drawn.train()
    drawn.error(
        drawn.pick(
            "py4j.protocol.Py4JJavaError: An error occurred while calling o72.fit. : java.lang.OutOfMemoryError: Java heap space",
            "duckdb.duckdb.OutOfMemoryException: Out of Memory Error: could not allocate block of size 256.0 KiB (3.7 GiB/3.7 GiB used)",
            "sqlalchemy.exc.OperationalError: (psycopg2.errors.OutOfMemory) out of memory DETAIL:  Failed on request of size 1024.",
            "redis.exceptions.OutOfMemoryError: command not allowed when used memory > 'maxmemory'.",
        )
    )
    own = drawn.seed % 4 < 2  # the memory of a server may be free again
    return Story(not_(KNOWN_ERROR if own else USER_ERROR, "U10"), code=1, telemetry=cards(3.0))


def disk_tool(drawn: Variation) -> Story:
    drawn.train()
    drawn.say(
        drawn.pick(
            "cp: errore di scrittura di '/machine/work/results/a': Spazio esaurito sul device",
            "tar: /machine/work/results/all.tar: Nie można zapisać: Brak miejsca na urządzeniu",
            "cp: ошибка записи '/machine/work/results/a': На устройстве не осталось свободного места",
            "cp: '/machine/work/results/a' 쓰는 중 오류 발생: 장치에 남은 공간이 없음",
            "cp: erro ao escrever em 'a.bin': Não há espaço disponível no dispositivo",
            "write /machine/work/results/part-7: no space left on device",
            "Error: ENOSPC: no space left on device, write",
            "java.io.IOException: No space left on device",
            "fatal: write error: No space left on device",
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        )
    )
    return Story(DISK_FULL, code=1, disk_full=FULL, telemetry=disk(0.0))


def disk_python(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(
        drawn.pick(
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /machine/work/checkpoints/ckpt-12.data-00000-of-00001.tempstate; No space left on device [Op:SaveV2]",
            "zarr.errors.ContainsArrayError: OSError: [Errno 28] No space left on device",
            "datasets.builder.DatasetGenerationError: An error occurred while generating the dataset: [Errno 28] No space left on device",
            "RuntimeError: Parent directory does not exist: PytorchStreamWriter failed writing central directory: file write failed",
            "sqlite3.OperationalError: database or disk is full",
        ),
        chained_to=drawn.pick("", "OSError: [Errno 28] No space left on device"),
    )
    drawn.cascade()
    return Story(DISK_FULL, code=1, disk_full=FULL, telemetry=disk(0.0))


def inodes(drawn: Variation) -> Story:
    drawn.train()
    drawn.say("mkdir: cannot create directory 'epoch-812': No space left on device")
    return Story(
        INODES, code=1, disk_full="results: 0 of 500 inodes are free, and 61 MiB", telemetry=disk(6e7, free_inodes=0.0)
    )


def map_full(drawn: Variation) -> Story:
    """A database's own limit: nothing on the machine is full."""
    drawn.train()
    drawn.error(
        drawn.pick(
            "lmdb.MapFullError: mdb_put: MDB_MAP_FULL: Environment mapsize limit reached",
            "OSError: [Errno 24] Too many open files: 'part-1024.arrow'",
            "h5py.h5py_warnings.H5pyError: Unable to extend dataset: dimension cannot exceed the existing maximal size",
        )
    )
    return Story(not_(USER_ERROR, "U6"), code=1, telemetry=disk(6e10))


def worker_killed(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(
        drawn.pick(
            "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated. This could be caused by a segmentation fault while calling the function or by an excessive memory usage causing the Operating System to kill the worker. The exit codes of the workers are {SIGKILL(-9)}",
            "billiard.exceptions.WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL) Job: 12.",
            "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
            "subprocess.CalledProcessError: Command '['python', 'shard.py']' died with <Signals.SIGKILL: 9>.",
        )
    )
    at = drawn.up_s
    return Story(HOST_OOM, code=1, oom_kills=1, telemetry=memory(drawn, 0.98), facts=(("oom.rose", at, "agent", at),))


def ray_memory(drawn: Variation) -> Story:
    """Ray's own monitor ends a task before the kernel does."""
    drawn.train()
    drawn.error(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory. Memory on the node (IP: 10.0.0.7, ID: 4f) where the task was running was 61.2GB / 64.0GB (0.956), which exceeds the memory usage threshold of 0.95."
    )
    return Story(not_(KNOWN_ERROR, "U10"), code=1, telemetry=memory(drawn, 0.94))


def other_languages(drawn: Variation) -> Story:
    """Programs that are not Python."""
    text, number = (
        ("Error in library(dplyr) : there is no package called 'dplyr'\nExecution halted", 1),
        ("thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3 but the index is 7", 101),
        ("panic: runtime error: index out of range [7] with length 3\n\ngoroutine 1 [running]:\nmain.main()\n\t/app/main.go:8 +0x1d\nexit status 2", 2),
        ("ERROR: LoadError: UndefVarError: `lr` not defined\nStacktrace:\n [1] top-level scope\n   @ ~/train.jl:12", 1),
        ('Exception in thread "main" java.lang.NullPointerException: Cannot invoke "String.length()" because "s" is null\n\tat Train.main(Train.java:7)', 1),
        ("node:internal/modules/cjs/loader:1051\n  throw err;\nError: Cannot find module 'express'", 1),
    )[drawn.seed % 6]  # fmt: skip
    drawn.train()
    drawn.say(*text.split("\n"))
    depends_on_data = drawn.seed % 6 in (1, 2)
    return Story(USER_ERROR if depends_on_data else KNOWN_ERROR, code=number)


def line_ends(drawn: Variation) -> Story:
    text, number = (
        ("train.sh: Zeile 2: $'\\r': Kommando nicht gefunden.", 127),
        ("zsh: ./run.sh: bad interpreter: /bin/bash^M: no such file or directory", 126),
        ("run.sh: 2: set: Illegal option -", 2),
        ("train.sh：行 3: $'\\r': 未找到命令", 127),
        ("-bash: ./train.sh: /usr/bin/bash^M: bad interpreter: No such file or directory", 126),
    )[drawn.seed % 5]
    drawn.say(text)
    return Story(code("U26", "certain", "fix_line_ends"), code=number, ran_s=0.2)


def not_found(drawn: Variation) -> Story:
    text, number = (
        ("bash: Zeile 1: torchrun: Kommando nicht gefunden.", 127),
        ("bash: torchrun: 未找到命令", 127),
        ("sh: 1: deepspeed: nicht gefunden", 127),
        ("zsh: command not found: accelerate", 127),
        ("bash: ./train.sh: Keine Berechtigung", 126),
    )[drawn.seed % 5]
    drawn.say(text)
    return Story(NOT_STARTED, code=number, ran_s=0.1)


def layers(drawn: Variation) -> Story:
    drawn.noise(1)
    drawn.error(
        drawn.pick(
            "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA driver version is insufficient for CUDA runtime version",
            "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
            "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
            "numba.cuda.cudadrv.driver.CudaAPIError: [222] Call to cuLinkAddData results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        )
    )
    return Story(code("U28", "certain", "fix_layers", "other_driver"), code=1, telemetry=cards(0.3))


def modules(drawn: Variation) -> Story:
    drawn.error(
        drawn.pick(
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
            "ImportError: attempted relative import with no known parent package",
            "ModuleNotFoundError: No module named 'model.heads'; 'model' is not a package",
            "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by _C.so)",
        )
    )
    return Story(code("U5", "certain", "install_module", "set_conda_env", "run_smoke"), code=1, ran_s=4.0)


def configuration(drawn: Variation) -> Story:
    drawn.error(
        drawn.pick(
            "hydra.errors.MissingConfigException: In 'config': Could not find 'model/resnet51'",
            "yaml.scanner.ScannerError: mapping values are not allowed here",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for TrainConfig",
            "train.py: error: argument --precision: invalid choice: 'bf17' (choose from 'fp32', 'bf16')",
        ),
        frames=1,
    )
    return Story(code("U27", "likely"), code=1, ran_s=3.0)


def tracker(drawn: Variation) -> Story:
    drawn.error(
        drawn.pick(
            "mlflow.exceptions.MlflowException: API request to endpoint /api/2.0/mlflow/runs/create failed with error code 401 != 200. Response body: 'Unauthorized'",
            "wandb.errors.CommError: It appears that you do not have permission to access the requested resource. Please reach out to the project owner. (Error 403: Forbidden)",
            "wandb.errors.AuthenticationError: The API key you provided is either invalid or missing.",
        )
    )
    return Story(code("U35", "likely", "add_secret", "grant_role"), code=1, ran_s=20.0)


def slurm_memory(drawn: Variation) -> Story:
    drawn.train()
    drawn.say(
        drawn.pick(
            "slurmstepd: error: Exceeded step memory limit at some point.",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=88123.0. Some of your processes may have been killed by the cgroup out-of-memory handler.",
            "srun: error: node-3: task 1: Out Of Memory",
        )
    )
    facts = (("platform.state", "OUT_OF_MEMORY", "provider"),)
    kept = record(Cause.HOST_OOM, "OUT_OF_MEMORY: it needed more than its memory limit: raise slurm_memory")
    return Story(SLURM_OOM, code=137 if drawn.seed % 2 else None, number=None if drawn.seed % 2 else 9, oom_kills=None,
                 record=kept, facts=facts, placement=SLURM)  # fmt: skip


def slurm_cancel(drawn: Variation) -> Story:
    drawn.train()
    drawn.say(
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "slurmstepd: error: *** STEP 88123.0 ON node-3 CANCELLED AT 2026-03-01T12:00:00 DUE TO PREEMPTION ***",
    )
    drawn.error("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15")
    kept = record(Cause.PREEMPTED, "PREEMPTED: it was preempted")
    return Story(not_(PREEMPTED, "CODE", "U3"), code=1, record=kept, placement=SLURM)


def images(drawn: Variation) -> Story:
    text = drawn.pick(
        'Back-off pulling image "registry.example.com/team/train:v8": ErrImagePull: failed to resolve reference: unexpected status from HEAD request: 404 Not Found',
        'InvalidImageName: Failed to apply default image tag "Team/Train:v7": couldn\'t parse image name: invalid reference format: repository name must be lowercase',
        'Failed to pull image "team/train:v7": no match for platform in manifest: not found',
    )
    facts = (("platform.state", "ImagePullBackOff", "provider"), ("platform.message", text, "provider"))
    return Story(IMAGE_ERROR, left="no_image", message=text[:300], facts=facts, placement=KUBERNETES, agent=False)


def survived_in_another_language(drawn: Variation) -> Story:
    drawn.train(2)
    drawn.say(
        drawn.pick(
            "Speicher der GPU voll, halbiere den Batch (CUDA out of memory. Tried to allocate 2.00 GiB)",
            "显存不足，改用更小的批次: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "[W] autotune: candidate 7 failed with 'out of memory', trying the next one",
        )
    )
    drawn.train(4)
    drawn.error("RuntimeError: the data set has no field 'caption'")
    drawn.cascade()
    return Story(not_(USER_ERROR, "U10"), code=1, telemetry=cards(20.0))


def quoted_in_another_form(drawn: Variation) -> Story:
    drawn.say(
        drawn.pick(
            "DEBUG config.retry_on = ['CUDA out of memory', 'NCCL timeout', 'No space left on device']",
            "| symptom                  | fix             |\n| CUDA out of memory       | smaller batch   |",
            "loaded 3 rules: oom_kill, Xid 79, ENOSPC (errno 28)",
        )
    )
    drawn.train()
    drawn.error("ValueError: cannot reshape array of size 784 into shape (28,29)")
    return Story(not_(replace(USER_ERROR, retry="once_identical"), "U10", "U6", "U22"), code=1, telemetry=cards(5.0))


def killed_with_words(drawn: Variation) -> Story:
    """A signal from outside; the shell of another language names it."""
    drawn.train()
    drawn.say(drawn.pick("Getötet", "已杀死", "Processus arrêté", "zsh: killed     python train.py"))
    return Story(not_(KILLED, "U9"), code=137, oom_kills=0, telemetry=memory(drawn, 0.3))


def distributed(drawn: Variation) -> Story:
    """One rank fails; the others report that it is gone, before and after it."""
    drawn.train()
    drawn.say(
        "[rank3]: torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer"
    )
    drawn.error("KeyError: 'tokens'", frames=3)
    drawn.say(
        "[rank2]:[E1126 12:00:00.000 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE)",
        "mpirun noticed that process rank 1 with PID 4712 on node node-2 exited on signal 6 (Aborted).",
    )
    return Story(USER_ERROR, code=1)


MECHANISMS = (
    Mechanism("card-full", card_full, 6),
    Mechanism("card-full-native", card_full_native, 4),
    Mechanism("not-another-memory", other_memory, 4),
    Mechanism("disk-tool", disk_tool, 10),
    Mechanism("disk-python", disk_python, 5),
    Mechanism("inodes", inodes, 2),
    Mechanism("not-map-full", map_full, 3),
    Mechanism("worker-killed", worker_killed, 4),
    Mechanism("not-rays-monitor", ray_memory, 2),
    Mechanism("other-languages", other_languages, 6),
    Mechanism("line-ends", line_ends, 5),
    Mechanism("not-found", not_found, 5),
    Mechanism("layers", layers, 5),
    Mechanism("modules", modules, 4),
    Mechanism("configuration", configuration, 4),
    Mechanism("tracker", tracker, 3),
    Mechanism("slurm-memory", slurm_memory, 4),
    Mechanism("not-slurm-cancel", slurm_cancel, 2),
    Mechanism("images", images, 3),
    Mechanism("not-survived", survived_in_another_language, 3),
    Mechanism("not-quoted", quoted_in_another_form, 3),
    Mechanism("not-killed-with-words", killed_with_words, 4),
    Mechanism("distributed", distributed, 4),
)
