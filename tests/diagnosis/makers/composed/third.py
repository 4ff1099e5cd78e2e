"""A third set of cases kept apart: written after the rules knew the first two, and measured once before use.

Most of its programs and libraries stand in neither of the other sets; its texts are new ones.
"""

from __future__ import annotations

from dataclasses import replace

from tests.diagnosis.makers.answers import (
    DISK_FULL,
    GPU_FAULT_LIKELY,
    GPU_OOM,
    HOST_OOM,
    KILLED,
    KNOWN_ERROR,
    NOT_STARTED,
    USER_ERROR,
    code,
    not_,
)
from tests.diagnosis.makers.situations import Mechanism, Story, cards, disk, memory
from tests.diagnosis.makers.variations import Variation

FULL = "scratch: 0 of 81920 MiB are free"


def _last(drawn: Variation, python: str, native: str) -> None:
    """Either a traceback, or the lines of a program in another language."""
    if python:
        drawn.error(python)
    else:
        drawn.say(*native.split("\n"))


def card_full(drawn: Variation) -> Story:
    drawn.train()
    python, native = (
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.", ""),
        ("", "F0718 15:20:34.923629 16833 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory"),
        ("", "[TRT] [E] 2: [executionContext.cpp::allocateDeviceMemory::61] Error Code 2: OutOfMemory (Requested size was 4294967296 bytes.)"),
        ("RuntimeError: Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", ""),
        ("pyopencl._cl.MemoryError: clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE", ""),
        ("", "wgpu error: Out of Memory\nthread 'main' panicked at src/backend.rs:214: Error in Device::create_buffer"),
        ("RuntimeError: [address=0.0.0.0:41023, pid=871] Ran out of memory in memory space hbm. Used 17.40G of 15.48G hbm. Exceeded hbm capacity by 1.92G.", ""),
        ("RuntimeError: Device 0 memory pool: malloc failed, requested 1610612736 bytes (MindSpore Ascend)", ""),
    )[drawn.seed % 8]  # fmt: skip
    _last(drawn, python, native)
    drawn.cascade()
    return Story(GPU_OOM, code=1, telemetry=cards(23.4))


def host_refuses(drawn: Variation) -> Story:
    """The host's own memory, or a limit of the program, in programs that print it in their own way."""
    drawn.train()
    text, number = (
        ("memory allocation of 68719476736 bytes failed", 134),
        ("Unhandled exception. System.OutOfMemoryException: Array dimensions exceeded supported range.\n   at Train.Load(String path)", 134),
        ("eheap_alloc: Cannot allocate 1459620480 bytes of memory (of type \"heap\").", 1),
        ("[FATAL] failed to allocate memory (NoMemoryError)", 1),
        ("Error: vector memory limit of 16.0 Gb reached, see mem.maxVSize()\nExecution halted", 1),
        ("Error using zeros\nRequested 200000x200000 (298.0GB) array exceeds maximum array size preference (62.8GB).", 1),
    )[drawn.seed % 6]  # fmt: skip
    drawn.say(*text.split("\n"))
    return Story(not_(KNOWN_ERROR, "U10"), code=number, telemetry=memory(drawn, 0.5))


def disk_is_full(drawn: Variation) -> Story:
    drawn.train()
    python, native = (
        ("", 'rsync: [receiver] write failed on "/machine/work/scratch/a.bin": No space left on device (28)\nrsync error: error in file IO (code 11) at receiver.c(381) [receiver=3.2.7]'),
        ("", "error: unable to write file .git/objects/4f/81: No space left on device\nfatal: unable to checkout working tree"),
        ("", "cp: fout bij schrijven van '/machine/work/results/a': Geen ruimte meer over op apparaat"),
        ("", "cp: lỗi ghi '/machine/work/results/a': Không còn chỗ trống trên thiết bị"),
        ("psycopg2.errors.DiskFull: could not extend file \"base/5212609/16301.9\": wrote only 4096 of 8192 bytes at block 1275716", ""),
        ("OSError: [Errno 28] Unable to synchronously write file (file write failed: time = Mon Mar  2, filename = '/machine/work/results/a.h5', file descriptor = 31, errno = 28, error message = 'No space left on device')", ""),
        ("", "tar: /machine/work/results/all.tar: Wrote only 4096 of 10240 bytes\ntar: Error is not recoverable: exiting now"),
        ("pyarrow.lib.ArrowIOError: Error writing bytes to file. Detail: [errno 28] No space left on device", ""),
        ("", "Errore: impossibile scrivere '/machine/work/scratch/7.npz': spazio su disco insufficiente"),
    )[drawn.seed % 9]  # fmt: skip
    _last(drawn, python, native)
    return Story(DISK_FULL, code=1, disk_full=FULL, telemetry=disk(0.0))


def disk_is_full_and_innocent(drawn: Variation) -> Story:
    """A disk that is full for days; the command ends with its own error."""
    drawn.train()
    python, native = (
        ("cv2.error: OpenCV(4.9.0) resize.cpp:4152: error: (-215:Assertion failed) !ssize.empty() in function 'resize'", ""),
        ("", "dmlc::Error: /build/src/data/data.cc:812: Check failed: fi->Open: label set cannot be empty"),
        ("soundfile.LibsndfileError: Error opening '/machine/work/data/7.flac': Format not recognised.", ""),
    )[drawn.seed % 3]  # fmt: skip
    _last(drawn, python, native)
    return Story(not_(USER_ERROR, "U6"), code=1, telemetry=disk(9e7))


def own_bug(drawn: Variation) -> Story:
    """A mistake in the code that no repeat helps against, in many languages, after it has worked."""
    drawn.train()
    python, native, number = (
        ("TypeError: 'NoneType' object is not subscriptable", "", 1),
        ("AttributeError: 'DistributedDataParallel' object has no attribute 'save_pretrained'", "", 1),
        ("UnboundLocalError: cannot access local variable 'best' where it is not associated with a value", "", 1),
        ("jax.errors.TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].", "", 1),
        ("", "train.rb:41:in `evaluate': undefined method `fetch' for nil:NilClass (NoMethodError)\n\tfrom train.rb:88:in `<main>'", 1),
        ("", "** (UndefinedFunctionError) function Trainer.evaluate/2 is undefined or private\n    Trainer.evaluate(%{}, 3)", 1),
        ("", "PHP Fatal error:  Uncaught Error: Call to undefined function evaluate() in /app/train.php:12", 255),
        ("", "Unhandled exception. System.NullReferenceException: Object reference not set to an instance of an object.\n   at Train.Main()", 134),
        ("", "Exception in thread \"main\" scala.MatchError: None (of class scala.None$)\n\tat Train$.main(Train.scala:9)", 1),
        ("", "lua: train.lua:12: attempt to index a nil value (local 'batch')\nstack traceback:\n\t[C]: in ?", 1),
        ("", "Can't locate object method \"evaluate\" via package \"Trainer\" at train.pl line 12.", 255),
        ("", "Fatal error: Unexpectedly found nil while unwrapping an Optional value: file Train/main.swift, line 12", 133),
        ("", "panic: interface conversion: interface {} is string, not float64\n\ngoroutine 1 [running]:\nmain.main()", 2),
        ("", "ERROR: LoadError: MethodError: no method matching loss(::Nothing, ::Float32)\nStacktrace:\n [1] top-level scope", 1),
        ("", "Error in evaluate(model) : could not find function \"evaluate\"\nCalls: main -> fit\nExecution halted", 1),
        ("", "Uncaught ReferenceError: evaluate is not defined\n    at main (file:///app/train.mjs:12:3)", 1),
        ("", "Undefined function 'evaluate' for input arguments of type 'double'.", 1),
        ("", "train: Prelude.head: empty list\nCallStack (from HasCallStack):\n  error, called at libraries/base/GHC/List.hs", 1),
    )[drawn.seed % 18]  # fmt: skip
    _last(drawn, python, native)
    drawn.cascade()
    return Story(KNOWN_ERROR, code=number)


def may_pass(drawn: Variation) -> Story:
    """What a repeat may help against: a service, a race, bad luck with the data."""
    drawn.train()
    python, native = (
        ("botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the GetObject operation (reached max retries: 4): Please reduce your request rate.", ""),
        ("urllib3.exceptions.IncompleteRead: IncompleteRead(4194304 bytes read, 12582912 more expected)", ""),
        ("fsspec.exceptions.FSTimeoutError: Caught FSTimeoutError in DataLoader worker process 1.", ""),
        ("aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected", ""),
        ("pymongo.errors.AutoReconnect: mongo-0.example.com:27017: connection closed", ""),
        ("", "wget: unable to connect to 'data.example.com:443': Connection timed out"),
        ("OSError: AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached", ""),
        ("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised: subprocess.CalledProcessError: ptxas died with status 255", ""),
    )[drawn.seed % 8]  # fmt: skip
    _last(drawn, python, native)
    return Story(USER_ERROR, code=1)


def card_breaks(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(
        drawn.pick(
            "RuntimeError: HIP error: unspecified launch failure; HW Exception by GPU node-2 (Agent handle: 0x5b) reason: GPU Hang",
            "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
            "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        )
    )
    return Story(GPU_FAULT_LIKELY, code=1, telemetry=cards(12.0))


def worker_killed(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(
        drawn.pick(
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
            "RuntimeError: One of the subprocesses has abruptly died during map operation. To debug the error, disable multiprocessing.",
            "tensorflow.python.framework.errors_impl.UnavailableError: tf.data service worker 1 exited with code -9",
        )
    )
    at = drawn.up_s
    return Story(HOST_OOM, code=1, oom_kills=1, telemetry=memory(drawn, 0.97), facts=(("oom.rose", at, "agent", at),))


def starts_badly(drawn: Variation) -> Story:
    """Errors of the first seconds: the environment, the configuration, the account."""
    answer, python, native, number = (
        (code("U5", "certain", "install_module", "set_conda_env", "run_smoke"), "", "Error: Cannot find package 'tensorflow' imported from /app/train.mjs", 1),
        (code("U5", "certain", "install_module", "set_conda_env", "run_smoke"), "", "LoadError: cannot load such file -- torch (LoadError)", 1),
        (code("U27", "likely"), "", "Error: unknown flag: --lr-decay\nUsage:\n  train [flags]", 2),
        (code("U27", "likely"), "tomllib.TOMLDecodeError: Expected '=' after a key in a key/value pair (at line 3, column 4)", "", 1),
        (code("U35", "likely", "add_secret"), "swanlab.error.ApiError: 401 Unauthorized: login required", "", 1),
        (code("U28", "certain", "fix_layers", "other_driver"), "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "", 1),
        (code("0-B", "likely"), "google.api_core.exceptions.Forbidden: 403 trainer@p.iam.gserviceaccount.com lacks storage.objects.get on the bucket", "", 1),
        (NOT_STARTED, "", "nu: command `torchrun` was not found", 127),
        (code("GEN5", "likely", "fix_code", "run_smoke"), "", "error[E0425]: cannot find value `lr` in this scope\nerror: could not compile `train` due to previous error", 101),
        (code("GEN5", "likely", "fix_code", "run_smoke"), "  File \"train.py\", line 3\nSyntaxError: f-string: expecting '}'", "", 1),
    )[drawn.seed % 10]  # fmt: skip
    _last(drawn, python, native)
    return Story(answer, code=number, ran_s=5.0)


def survived(drawn: Variation) -> Story:
    """Words of memory, disk and cards that the program went on after."""
    drawn.say(
        drawn.pick(
            "W bfc_allocator.cc:273] Allocator (GPU_0_bfc) ran out of memory trying to allocate 128.00MiB. The caller indicates that this is not a failure.",
            "[autobatch] batch 64: GPU memory exhausted, halving",
            "WARN spill: could not allocate 4.0 GiB, spilling to disk",
        )
    )
    drawn.train(4)
    drawn.error("ValueError: the sampler returned 3 of 8 indices")
    return Story(not_(replace(USER_ERROR, retry="once_identical"), "U10"), code=1, telemetry=cards(20.0))


def killed(drawn: Variation) -> Story:
    drawn.train()
    drawn.say(drawn.pick("Elhunyt", "Zabito", "train.sh: línea 4: 4711 Terminado (killed)"))
    return Story(not_(KILLED, "U9"), code=137, oom_kills=0, telemetry=memory(drawn, 0.4))


MECHANISMS = (
    Mechanism("third-card-full", card_full, 8),
    Mechanism("not-third-memory-of-host", host_refuses, 6),
    Mechanism("third-disk-full", disk_is_full, 9),
    Mechanism("not-third-disk-innocent", disk_is_full_and_innocent, 3),
    Mechanism("third-own-bug", own_bug, 18),
    Mechanism("third-may-pass", may_pass, 8),
    Mechanism("third-card-breaks", card_breaks, 3),
    Mechanism("third-worker-killed", worker_killed, 3),
    Mechanism("third-starts", starts_badly, 10),
    Mechanism("not-third-survived", survived, 3),
    Mechanism("not-third-killed", killed, 3),
)
