"""Cards: full, held by others, missing, broken; and words that only sound like it."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.cases import Expected
from tests.diagnosis.makers.answers import (
    ALIVE,
    FINISHED,
    GPU_FAULT,
    GPU_FAULT_LIKELY,
    GPU_OOM,
    HELD,
    KNOWN_ERROR,
    NO_GPU,
    USER_ERROR,
    not_,
)
from tests.diagnosis.makers.situations import GCE, KUBERNETES, Mechanism, Story, cards
from tests.diagnosis.makers.variations import Variation

PODS = "kubernetes.io: Pod conditions (PodScheduled, Unschedulable); supervisor/providers/kubernetes/waiting.py"
CATALOG = "docs.nvidia.com/deploy/xid-errors (catalog of Xid errors)"
ALLOCATOR = "pytorch/pytorch: c10/cuda/CUDACachingAllocator.cpp, releases 1.12, 2.1, 2.5, 2.9"
OTHERS = "error texts of TensorFlow, JAX, CuPy and the CUDA runtime"


def full_text(drawn: Variation) -> str:
    tried, free = f"{drawn.draw.uniform(0.02, 8):.2f} GiB", f"{drawn.draw.uniform(10, 900):.2f} MiB"
    used, kept = f"{drawn.draw.uniform(18, 22):.2f} GiB", f"{drawn.draw.uniform(100, 900):.2f} MiB"
    see = "See documentation for Memory Management"
    return drawn.pick(
        f"RuntimeError: CUDA out of memory. Tried to allocate {tried} (GPU 0; 23.69 GiB total capacity; {used} already allocated; {free} free; {used} reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  {see} and PYTORCH_CUDA_ALLOC_CONF",
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total capacty of 23.69 GiB of which {free} is free. Including non-PyTorch memory, this process has {used} memory in use. Of the allocated memory {used} is allocated by PyTorch, and {kept} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  {see} and PYTORCH_CUDA_ALLOC_CONF",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU {drawn.rank} has a total capacity of 23.69 GiB of which {free} is free. Including non-PyTorch memory, this process has {used} memory in use. Of the allocated memory {used} is allocated by PyTorch, and {kept} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  {see}  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU {drawn.rank} has a total capacity of 23.69 GiB of which {free} is free. Including non-PyTorch memory, this process has {used} memory in use. Of the allocated memory {used} is allocated by PyTorch, and {kept} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  {see}  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf)",
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
    )  # fmt: skip


def other_frameworks(drawn: Variation) -> str:
    return drawn.pick(
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__Conv2D_device_/job:localhost/replica:0/task:0/device:GPU:0}} OOM when allocating tensor with shape[64,512,128,128] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 23,622,320,128 bytes).",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    )  # fmt: skip


def full(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(full_text(drawn))
    drawn.teardown()
    return Story(GPU_OOM, code=1, telemetry=cards(22.8, 21.9), pages=ALLOCATOR)


def full_at_once(drawn: Variation) -> Story:
    drawn.noise(3)
    drawn.error(full_text(drawn))
    drawn.cascade()
    return Story(GPU_OOM, code=1, telemetry=cards(0.4), pages=ALLOCATOR)


def full_elsewhere(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(other_frameworks(drawn))
    return Story(GPU_OOM, code=1, telemetry=cards(23.1), pages=OTHERS)


def full_and_chained(drawn: Variation) -> Story:
    drawn.train()
    drawn.error("RuntimeError: the step of the trainer failed", chained_to=full_text(drawn))
    return Story(GPU_OOM, code=1, telemetry=cards(22.8), pages=ALLOCATOR)


def held(drawn: Variation) -> Story:
    """Somebody else's process held the card before the command started."""
    drawn.noise(2)
    before = drawn.gib(6, 20)
    drawn.error(full_text(drawn))
    facts = (("card.held", (0, before), "agent", 1.0, "card 0"), ("card.total", 24 * 2**30, "agent"))
    return Story(HELD, code=1, telemetry=cards(23.0), facts=facts, placement=GCE, pages=ALLOCATOR)


def fewer_cards(drawn: Variation) -> Story:
    have = drawn.draw.randrange(0, 4)
    message = f"the shape promises {have + 1} GPUs, and {have} can be opened here"
    drawn.say("spot: " + message)
    facts = (("card.promised", have + 1, "agent"), ("card.opened", have, "agent"))
    return Story(NO_GPU, left="no_gpu", message=message, facts=facts, placement=GCE)


def driver_missing(drawn: Variation) -> Story:
    """The start-up script gave up before the agent: 0-D."""
    text = drawn.pick(
        "no_gpu: the driver could not be installed: cos-extensions exited with 1",
        "no_gpu: modprobe: FATAL: Module nvidia not found",
        "no_gpu: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
    )
    facts = (("serial.phase", "driver", "provider"), ("serial.line", f"spot: {text}", "provider"))
    return Story(replace(NO_GPU, rule="0-D"), left="no_gpu", message=text, facts=facts, placement=GCE, phase="driver",
                 agent=False, serial=("spot: phase boot", "spot: phase driver", f"spot: {text}"))  # fmt: skip


def no_card_found(drawn: Variation) -> Story:
    text = f"FATAL: No GPU detected after {drawn.draw.randrange(60, 300)} s"
    facts = (("serial.phase", "driver", "provider"), ("serial.line", text, "provider"))
    return Story(replace(NO_GPU, rule="0-F"), left="no_gpu", message=text, facts=facts, placement=GCE, phase="driver",
                 agent=False, serial=("spot: phase boot", "spot: phase driver", text))  # fmt: skip


def none_to_schedule(drawn: Variation) -> Story:
    """The nodes of the pool have no card to give at all."""
    nodes = drawn.draw.randrange(1, 9)
    text = (
        "no node of the pool has nvidia.com/gpu to give: is its device plugin running? "
        f"(0/{nodes} nodes are available: {nodes} Insufficient nvidia.com/gpu.)"
    )
    facts = (("platform.state", "Unschedulable", "provider"), ("platform.message", text, "provider"))
    return Story(
        replace(NO_GPU, rule="K8S1", where="place"),
        facts=facts,
        placement=KUBERNETES,
        agent=False,
        beat=False,
        pages=PODS,
    )


def all_in_use(drawn: Variation) -> Story:
    """Cards exist, others have them: no fault of anything."""
    text = drawn.pick(
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
        "0/12 nodes are available: 2 Insufficient cpu, 10 Insufficient nvidia.com/gpu.",
        "0/5 nodes are available: 5 Insufficient memory. no new claims to deallocate",
    )
    facts = (("platform.state", "Unschedulable", "provider"), ("platform.message", text, "provider"))
    answer = not_(Expected("no_capacity", "K8S1", "certain", "free_elsewhere", "place"), "U31", "U3")
    return Story(answer, facts=facts, placement=KUBERNETES, agent=False, beat=False, pages=PODS)


def tainted(drawn: Variation) -> Story:
    text = drawn.pick(
        "every node of the pool has a taint that the pod does not tolerate (nvidia.com/gpu=present:NoSchedule): set kubernetes_tolerations",
        "0/4 nodes are available: 4 node(s) had untolerated taint {dedicated: ml}. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
    )
    facts = (("platform.state", "Unschedulable", "provider"), ("platform.message", text, "provider"))
    answer = Expected("launch_rejected", "K8S1", "certain", "never", "account")
    return Story(answer, facts=facts, placement=KUBERNETES, agent=False, beat=False, pages=PODS)


def broken_while_it_stood(drawn: Variation) -> Story:
    """A card is lost, and the run stands still until it is called a stall."""
    drawn.train(8)
    at = drawn.up_s + 1
    drawn.wait(600)
    facts = (("card.xid", (0, (79, 119, 48)[drawn.seed % 3]), "agent", at, "NVML event"),)
    return Story(
        GPU_FAULT,
        facts=facts,
        cause=Cause.STALLED,
        detail="no progress for 600 s",
        telemetry=cards(20.0),
        placement=GCE,
        pages=CATALOG,
    )


def words_of_the_hardware(drawn: Variation) -> Story:
    """The command's own words blame the card; no event was read."""
    drawn.train()
    drawn.error(
        drawn.pick(
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution",
            "pynvml.NVMLError_GpuIsLost: GPU is lost",
        )
    )
    return Story(GPU_FAULT_LIKELY, code=1, telemetry=cards(20.0), placement=GCE, pages=CATALOG)


def broken(drawn: Variation) -> Story:
    """An error of the hardware set of NVIDIA's catalog, then the end."""
    drawn.train()
    code = (48, 79, 95, 64, 119, 120)[drawn.seed % 6]
    drawn.error(drawn.pick(
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: unknown error",
        "RuntimeError: CUDA error: unspecified launch failure",
        "torch.AcceleratorError: CUDA error: unspecified launch failure",
    ))  # fmt: skip
    at = drawn.up_s + 0.5
    drawn.wait(4)
    facts = (("card.xid", (drawn.rank % 2, code), "agent", at, "NVML event"),)
    return Story(GPU_FAULT, code=1, telemetry=cards(20.0, 20.0), facts=facts, placement=GCE, pages=CATALOG)


def broken_quietly(drawn: Variation) -> Story:
    """The same, but the code ends with an error of its own words."""
    drawn.train()
    code = (79, 48, 119)[drawn.seed % 3]
    at = drawn.up_s + 0.5
    drawn.error("ValueError: the loss is not finite")
    drawn.wait(6)
    facts = (("card.xid", (0, code), "agent", at, "NVML event"),)
    return Story(GPU_FAULT, code=1, telemetry=cards(20.0), facts=facts, placement=GCE, pages=CATALOG)


def lost(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(drawn.pick(
        "RuntimeError: CUDA error: unknown error",
        "pynvml.NVMLError_GpuIsLost: GPU is lost",
        "RuntimeError: No CUDA GPUs are available",
    ))  # fmt: skip
    return Story(GPU_FAULT, code=1, telemetry=cards(20.0, 0.0, lost=(None, 1.0)), placement=GCE, pages=CATALOG)


def contained(drawn: Variation) -> Story:
    """94 and 74: the catalog leaves it open who is to blame."""
    drawn.train()
    code = (94, 74)[drawn.seed % 2]
    at = drawn.up_s + 0.5
    drawn.error(
        "RuntimeError: CUDA error: uncorrectable ECC error encountered"
        if code == 94
        else "RuntimeError: CUDA error: unknown error"
    )
    drawn.wait(3)
    facts = (("card.xid", (0, code), "agent", at, "NVML event"),)
    return Story(GPU_FAULT_LIKELY, code=1, telemetry=cards(20.0), facts=facts, placement=GCE, pages=CATALOG)


# --- look-alikes ------------------------------------------------------------------------------------------------------


def applications_xid(drawn: Variation) -> Story:
    drawn.train()
    code = (13, 31, 43, 45, 68)[drawn.seed % 5]
    at = drawn.up_s + 0.5
    drawn.error(drawn.pick(
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: device-side assert triggered",
        "torch.AcceleratorError: CUDA error: misaligned address",
    ))  # fmt: skip
    drawn.wait(3)
    facts = (("card.xid", (0, code), "agent", at, "NVML event"),)
    return Story(not_(KNOWN_ERROR, "U22"), code=1, telemetry=cards(20.0), facts=facts, pages=CATALOG)


def xid_long_ago(drawn: Variation) -> Story:
    drawn.train(4)
    at = drawn.up_s
    drawn.train(8, every_s=1200.0)
    drawn.error("KeyError: 'scheduler'")
    facts = (
        ("card.xid", (0, (94, 64, 119, 48)[drawn.seed % 4]), "agent", at, "NVML event"),
        ("step.at", drawn.up_s, "agent", drawn.up_s),
    )
    return Story(not_(USER_ERROR, "U22"), code=1, telemetry=cards(20.0), facts=facts, pages=CATALOG)


def stall_after_an_old_xid(drawn: Variation) -> Story:
    """It stands still hours after an error of the card that it survived."""
    drawn.train(3)
    at = drawn.up_s
    drawn.train(5, every_s=1200.0)
    step_at = drawn.up_s
    drawn.wait(600)
    facts = (("card.xid", (0, 64), "agent", at, "NVML event"), ("step.at", step_at, "agent", step_at))
    answer = Expected("stalled", "OWN", "certain", "once_identical", "code")
    return Story(
        not_(answer, "U22"),
        facts=facts,
        cause=Cause.STALLED,
        detail="no progress for 600 s",
        telemetry=cards(20.0),
        pages=CATALOG,
    )


def no_limit_for_gpus(drawn: Variation) -> Story:
    """The pod asks for no GPU, so none is there: the command finds it out."""
    drawn.noise(1)
    drawn.error(
        drawn.pick("RuntimeError: No CUDA GPUs are available", "RuntimeError: Found no NVIDIA driver on your system.")
    )
    facts = (("card.promised", 1, "agent"), ("card.opened", 0, "agent"))
    return Story(replace(NO_GPU, rule="K8S6"), code=1, facts=facts, placement=KUBERNETES, pages=PODS)


def no_card_by_its_words(drawn: Variation) -> Story:
    """The command finds no card; none can be opened, and what was promised is not known."""
    drawn.noise(1)
    drawn.error(
        drawn.pick(
            "RuntimeError: No CUDA GPUs are available",
            "RuntimeError: CUDA error: no CUDA-capable device is detected",
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
        )
    )
    return Story(replace(NO_GPU, certainty="likely"), code=1, facts=(("card.opened", 0, "agent"),), placement=GCE)


def xid_quoted(drawn: Variation) -> Story:
    drawn.say(drawn.pick(
        "see the manual: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "known problem on this cluster: 'Xid 79 GPU has fallen off the bus' - open a ticket",
        "[check] dmesg | grep -i xid  # e.g. NVRM: Xid (PCI:0000:c1:00): 48, Double Bit ECC Error",
    ))  # fmt: skip
    drawn.train()
    drawn.error("ValueError: too many values to unpack (expected 2)")
    return Story(not_(USER_ERROR, "U22"), code=1, telemetry=cards(20.0), pages=CATALOG)


def caught_and_ended_otherwise(drawn: Variation) -> Story:
    """The error is caught, steps follow with a smaller batch, and another error ends the command."""
    drawn.train(3)
    drawn.say(full_text(drawn).partition("\n")[0], "retrying with batch size 16")
    drawn.train(4)
    drawn.error(
        drawn.pick(
            "KeyError: 'lr'",
            "IndexError: list index out of range",
            "FileNotFoundError: [Errno 2] No such file or directory: 'val.json'",
        )
    )
    return Story(not_(USER_ERROR, "U10"), code=1, telemetry=cards(19.0), pages=ALLOCATOR)


def caught_then_error_at_once(drawn: Variation) -> Story:
    """The error is caught; without a step in between the handler itself fails with a mistake of its own."""
    drawn.train(3)
    drawn.say("out of memory in the forward pass, clearing the cache: " + full_text(drawn).partition("\n")[0][:160])
    drawn.noise(6)
    drawn.train(1)
    drawn.noise(2)
    drawn.error("KeyError: 'batch_size'", frames=2)
    return Story(not_(USER_ERROR, "U10"), code=1, telemetry=cards(19.0), pages=ALLOCATOR)


def caught_and_finished(drawn: Variation) -> Story:
    drawn.train(3)
    drawn.say(full_text(drawn).partition("\n")[0], "skipping this batch")
    drawn.train(5)
    drawn.say("training finished")
    return Story(not_(FINISHED, "U10"), code=0, telemetry=cards(19.0), pages=ALLOCATOR)


def quoted(drawn: Variation) -> Story:
    drawn.say(drawn.pick(
        'tip: if you see "CUDA out of memory", lower --batch-size or use --grad-accum',
        "usage: train.py [--batch-size N]  (an error 'torch.OutOfMemoryError: CUDA out of memory' means N is too large)",
        "README: 'RuntimeError: CUDA out of memory' -> see FAQ 3",
    ))  # fmt: skip
    drawn.train()
    drawn.error("AssertionError: the vocabulary has 32001 entries, the embedding 32000")
    return Story(not_(USER_ERROR, "U10"), code=1, telemetry=cards(12.0), pages=ALLOCATOR)


def idle_card(drawn: Variation) -> Story:
    drawn.train()
    facts = (("window.gpu_util", 0.0, "agent"), ("motion.cpu", True, "agent"))
    return Story(not_(ALIVE, "U31", "U38"), telemetry=cards(1.0, util=0.0), facts=facts, phase="training")


MECHANISMS = (
    Mechanism("full", full, 10),
    Mechanism("full-at-once", full_at_once, 6),
    Mechanism("full-other-framework", full_elsewhere, 5),
    Mechanism("full-chained", full_and_chained, 5),
    Mechanism("held", held, 6),
    Mechanism("fewer-cards", fewer_cards, 6),
    Mechanism("driver-missing", driver_missing, 5),
    Mechanism("no-card-found", no_card_found, 5),
    Mechanism("none-to-schedule", none_to_schedule, 5),
    Mechanism("all-in-use", all_in_use, 6),
    Mechanism("tainted", tainted, 5),
    Mechanism("broken-while-it-stood", broken_while_it_stood, 5),
    Mechanism("words-of-the-hardware", words_of_the_hardware, 5),
    Mechanism("broken", broken, 7),
    Mechanism("broken-quietly", broken_quietly, 5),
    Mechanism("lost", lost, 5),
    Mechanism("contained", contained, 5),
    Mechanism("not-an-applications-xid", applications_xid, 6),
    Mechanism("not-an-xid-long-ago", xid_long_ago, 5),
    Mechanism("not-a-stall-by-an-old-xid", stall_after_an_old_xid, 2),
    Mechanism("no-limit-for-gpus", no_limit_for_gpus, 5),
    Mechanism("no-card-by-its-words", no_card_by_its_words, 3),
    Mechanism("not-an-xid-quoted", xid_quoted, 5),
    Mechanism("not-full-caught", caught_and_ended_otherwise, 8),
    Mechanism("not-full-caught-at-once", caught_then_error_at_once, 5),
    Mechanism("not-full-finished", caught_and_finished, 4),
    Mechanism("not-full-quoted", quoted, 5),
    Mechanism("not-idle", idle_card, 4),
)
