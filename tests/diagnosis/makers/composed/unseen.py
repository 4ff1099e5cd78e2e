"""A second set of cases kept apart, written after the first was known to the rules, and measured once before use."""

from __future__ import annotations

from tests.diagnosis.makers.answers import (
    DISK_FULL,
    GPU_OOM,
    HOST_OOM,
    KNOWN_ERROR,
    NOT_STARTED,
    USER_ERROR,
    code,
    not_,
)
from tests.diagnosis.makers.situations import Mechanism, Story, cards, disk, memory
from tests.diagnosis.makers.variations import Variation

FULL = "results: 0 of 20480 MiB are free"


def card_full(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(
        drawn.pick(
            "RuntimeError: MPS backend out of memory (MPS allocated: 17.51 GB, other allocations: 384.00 KB, max allowed: 18.13 GB). Tried to allocate 1.00 GB on private pool.",
            "mxnet.base.MXNetError: [12:00:00] src/storage/./pooled_storage_manager.h:161: cudaMalloc retry failed: out of memory",
            "pycuda._driver.MemoryError: cuMemAlloc failed: out of memory",
            "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /opt/include/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory",
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: failed to allocate memory [Op:Mul]",
        )
    )
    drawn.teardown()
    return Story(GPU_OOM, code=1, telemetry=cards(23.2))


def other_heap(drawn: Variation) -> Story:
    drawn.train()
    text, number = (
        ("FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", 134),
        ("java.lang.OutOfMemoryError: GC overhead limit exceeded", 1),
        ("fatal error: runtime: out of memory: cannot allocate 4194304-byte block", 2),
    )[drawn.seed % 3]
    drawn.say(text)
    return Story(not_(KNOWN_ERROR, "U10"), code=number, telemetry=memory(drawn, 0.3))


def disk_tool(drawn: Variation) -> Story:
    drawn.train()
    drawn.say(
        drawn.pick(
            "unzip:  /machine/work/scratch/train.bin:  write error (disk full?).  Continue? (y/n/^C)",
            "curl: (23) Failure writing output to destination, passed 16384 returned 0: No space left on device",
            "cp: '/machine/work/results/a' yazılırken hata: Aygıtta boş alan kalmadı",
            "cp: chyba zápisu '/machine/work/results/a': Na zařízení není volné místo",
            "docker: write /var/lib/docker/tmp/GetImageBlob12: no space left on device.",
            "cp: fel vid skrivning av '/machine/work/results/a': Enheten är full",
        )
    )
    return Story(DISK_FULL, code=1, disk_full=FULL, telemetry=disk(0.0))


def rank_killed(drawn: Variation) -> Story:
    """The launcher reports a rank that was killed; the counter rose."""
    drawn.train()
    drawn.say(
        *drawn.pick(
            "E1126 12:00:00.000 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 4712) of binary: /opt/python/bin/python",
            "distributed.scheduler.KilledWorker: Attempted to run task 'train-1' on 4 different workers, but all those workers died while running it.",
            "RuntimeError: DataLoader worker (pid 4712) exited unexpectedly with exit code -9. Details are lost due to multiprocessing.",
        ).split("\n")
    )
    at = drawn.up_s
    answer = HOST_OOM if drawn.seed % 3 != 1 else not_(HOST_OOM)
    return Story(answer, code=1, oom_kills=1, telemetry=memory(drawn, 0.98), facts=(("oom.rose", at, "agent", at),))


def modules(drawn: Variation) -> Story:
    text, number = (
        ("ERROR: LoadError: ArgumentError: Package Flux not found in current path.", 1),
        ("/opt/python/bin/python: No module named lightning.fabric.cli", 1),
        ("Error: Could not find or load main class Train\nCaused by: java.lang.ClassNotFoundException: Train", 1),
        ("ImportError: /opt/python/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister", 1),
    )[drawn.seed % 4]
    if number == 1 and drawn.seed % 4 == 3:
        drawn.error(text)
    else:
        drawn.say(*text.split("\n"))
    return Story(code("U5", "certain", "install_module", "set_conda_env", "run_smoke"), code=number, ran_s=4.0)


def layers(drawn: Variation) -> Story:
    drawn.error(
        drawn.pick(
            "RuntimeError: cuDNN error: CUDNN_STATUS_ARCH_MISMATCH",
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non supported HW",
            "RuntimeError: GET was unable to find an engine to execute this computation: no kernel image is available for execution on the device",
        )
    )
    return Story(code("U28", "certain", "fix_layers", "other_driver"), code=1, telemetry=cards(0.2))


def configuration(drawn: Variation) -> Story:
    drawn.error(
        drawn.pick(
            "omegaconf.errors.InterpolationKeyError: Interpolation key 'data.root' not found",
            "toml.decoder.TomlDecodeError: Invalid value (line 7 column 1 char 120)",
            "train.py: error: the following arguments are required: --data",
            "jsonschema.exceptions.ValidationError: 'fp17' is not one of ['fp16', 'bf16']",
        ),
        frames=1,
    )
    return Story(code("U27", "likely"), code=1 if drawn.seed % 4 != 2 else 2, ran_s=3.0)


def tracker(drawn: Variation) -> Story:
    drawn.error(
        drawn.pick(
            "neptune.exceptions.NeptuneInvalidApiTokenException: The provided API token is invalid.",
            "clearml.backend_api.session.defs.MissingConfigError: It seems ClearML is not configured on this machine!",
        )
    )
    return Story(code("U35", "likely", "add_secret"), code=1, ran_s=20.0)


def passing(drawn: Variation) -> Story:
    """Errors of others that may be over at the next start."""
    drawn.train()
    drawn.error(
        drawn.pick(
            "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='data.example.com', port=443): Max retries exceeded",
            "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/datasets/x",
            "socket.gaierror: [Errno -3] Temporary failure in name resolution",
            "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/b/data: backend error",
        )
    )
    return Story(USER_ERROR, code=1)


def not_found(drawn: Variation) -> Story:
    text, number = (
        ("fish: Unknown command: torchrun", 127),
        ("env: 'pyhton': No such file or directory", 127),
        ("/entrypoint.sh: line 3: exec: horovodrun: not found", 127),
        ("bash: ./train.py: cannot execute: required file not found", 127),
    )[drawn.seed % 4]
    drawn.say(text)
    return Story(NOT_STARTED, code=number, ran_s=0.1)


MECHANISMS = (
    Mechanism("again-card-full", card_full, 6),
    Mechanism("not-again-a-heap", other_heap, 3),
    Mechanism("again-disk-tool", disk_tool, 6),
    Mechanism("again-rank-killed", rank_killed, 3),
    Mechanism("again-modules", modules, 4),
    Mechanism("again-layers", layers, 3),
    Mechanism("again-configuration", configuration, 4),
    Mechanism("again-tracker", tracker, 2),
    Mechanism("again-passing", passing, 4),
    Mechanism("again-not-found", not_found, 4),
)
