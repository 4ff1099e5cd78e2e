"""Starts that never came: no container, no image, no code, one CPU; and long starts that are healthy."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from tests.diagnosis.cases import Expected
from tests.diagnosis.makers.answers import (
    ALIVE,
    BOOT_TIMEOUT,
    IMAGE_ERROR,
    KNOWN_ERROR,
    LAUNCH_REJECTED,
    NO_GPU,
    USER_ERROR,
    not_,
)
from tests.diagnosis.makers.situations import GCE, KUBERNETES, SLURM, Mechanism, Story
from tests.diagnosis.makers.variations import Variation

DAEMON = "moby/moby: daemon errors; NVIDIA/nvidia-container-toolkit"
CUDA_ERRORS = "NVIDIA CUDA driver API: cuInit, CUresult 803 and 804; supervisor/agent/machine/gpus.py"
PULLS = "kubernetes.io: Images; containerd's and registries' own errors"


def serial_stops(drawn: Variation) -> Story:
    """The serial console shows a phase before the container, and nothing after it."""
    last = drawn.pick("driver", "image", "boot", "network")
    lines = ["[    2.117] systemd[1]: Started Journal Service.", "spot: phase boot", f"spot: phase {last}"]
    facts = (("serial.phase", last, "provider"), ("serial.line", lines[-1], "provider"))
    return Story(BOOT_TIMEOUT, cause=Cause.BOOT_TIMEOUT, detail=f"no beat within 900 s; last phase {last}", facts=facts,
                 placement=GCE, agent=False, beat=False, serial=lines)  # fmt: skip


def driver_misfit(drawn: Variation) -> Story:
    """CUDA does not start, because the driver of the machine and the CUDA of the image do not fit: every zone of the
    same image of machines has that driver."""
    why = drawn.pick("803 (driver and CUDA library do not fit)", "804 (the CUDA library is too new for this card)")
    driver = drawn.pick("470.82.01", "525.105.17", "535.161.07")
    cuda = drawn.pick("12.2", "12.4", "13.0")
    message = f"CUDA does not start: cuInit says {why}; driver {driver}, CUDA {cuda}"
    drawn.say("spot: " + message)
    answer = replace(NO_GPU, rule="U28", retry="never", where="image", remedies=("other_driver",))
    return Story(answer, left="no_gpu", message=message, placement=GCE, pages=CUDA_ERRORS)


def arguments_refused(drawn: Variation) -> Story:
    """Exit 125: the container runtime refuses how we called it, in every zone."""
    words = drawn.pick(
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
        "docker: Error response from daemon: failed to create task for container: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all.",
        "docker: Error response from daemon: failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=0: unknown.",
        "unknown flag: --device-cgroup-rules",
    )
    drawn.say(words)
    left, why = (
        ("no_start", "docker could not start the container: ")
        if words.startswith("unknown flag")
        else ("no_gpu", "docker could not give the container its GPUs: ")
    )
    facts = (("container.exit", 125, "host"),)
    return Story(
        LAUNCH_REJECTED, left=left, message=(why + words)[:300], facts=facts, placement=GCE, agent=False, pages=DAEMON
    )


def start_failed(drawn: Variation) -> Story:
    """The container did not start, and the words do not say whose fault it is."""
    words = drawn.pick(
        "docker could not start the container: docker: Error response from daemon: OCI runtime create failed: unable to retrieve OCI runtime error",
        "us-docker.pkg.dev/team/train:v7 cannot be pulled: the pull took more than 1200 s",
        "the agent cannot be fetched: HTTP 503",
    )
    answer = Expected("unknown", "LEFT", "certain", "once_identical", "machine")
    return Story(answer, left="no_start", message=words, placement=GCE, agent=False)


def image_refused(drawn: Variation) -> Story:
    text = drawn.pick(
        'Failed to pull image "registry.example.com/team/train:v7": rpc error: code = NotFound desc = failed to pull and unpack image: not found',
        'Failed to pull image "team/train:v7": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed',
        'Failed to pull image "registry.example.com/team/train:v7": failed to authorize: failed to fetch oauth token: unexpected status: 403 Forbidden',
        "manifest for registry.example.com/team/train:v7 not found: manifest unknown",
    )
    facts = (
        ("platform.state", drawn.pick("ErrImagePull", "ImagePullBackOff"), "provider"),
        ("platform.message", text, "provider"),
    )
    return Story(
        IMAGE_ERROR, left="no_image", message=text[:300], facts=facts, placement=KUBERNETES, agent=False, pages=PULLS
    )


def no_image(drawn: Variation) -> Story:
    text = drawn.pick(
        "the image has no Python 3.8 or newer",
        "the image could not be pulled: manifest unknown",
        'denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource',
    )
    return Story(replace(IMAGE_ERROR, rule="IMAGE"), left="no_image", message=text, placement=GCE, agent=False)


def wrong_code(drawn: Variation) -> Story:
    """The bundle on the machine is not the one of the run: before the command."""
    text = drawn.pick(
        "the code bundle 4f0c… has another hash than the run names",
        "the code bundle could not be unpacked: unexpected end of file",
        "the code bundle is missing in the store",
    )
    answer = replace(LAUNCH_REJECTED, rule="U42", retry="once_after_repair")
    return Story(answer, left="no_code", message=text, placement=GCE)


def one_cpu(drawn: Variation) -> Story:
    facts = (("env.affinity", 1, "agent"), ("platform.cpus", 16, "provider"), ("card.opened", drawn.seed % 2, "agent"))
    answer = replace(LAUNCH_REJECTED, rule="SLURM3")
    message = "the step may use 1 CPU, the job has 16"
    return Story(
        answer,
        left="no_start",
        message=message,
        facts=facts,
        placement=SLURM,
        pages="slurm.schedmd.com: srun, SRUN_CPUS_PER_TASK",
    )


def notebook_without_gpu(drawn: Variation) -> Story:
    message = drawn.pick(
        "the session has no GPU: the flag `enable_gpu` was not taken",
        "the session has no network: the flag `enable_internet` was not taken",
    )
    facts = (("card.promised", 1, "agent"), ("card.opened", 0, "agent"), ("platform.state", "flags differ", "provider"))
    answer = replace(LAUNCH_REJECTED, rule="NB3", retry="once_after_repair")
    return Story(answer, left="no_start", message=message, facts=facts, pages="Kaggle/kaggle-cli: docs/kernels.md")


def object_refused(drawn: Variation) -> Story:
    text = drawn.pick(
        'Job.batch "spot-0badcafe" is invalid: spec.template.spec.containers[0].resources.limits: Invalid value: "0.5": must be an integer',
        'admission webhook "policy.example.com" denied the request: hostPath volumes are not allowed',
        "422 Unprocessable Entity: spec.template.spec.restartPolicy: Unsupported value",
    )
    facts = (("platform.state", "422", "provider"), ("platform.message", text, "provider"))
    return Story(replace(LAUNCH_REJECTED, rule="K8S2"), cause=Cause.LAUNCH_REJECTED, detail=text, facts=facts, placement=KUBERNETES,
                 agent=False, beat=False, pages="kubernetes.io: API server validation")  # fmt: skip


def secret_unreadable(drawn: Variation) -> Story:
    answer = replace(KNOWN_ERROR, rule="SECRET", certainty="certain")
    text = "the secret WANDB_API_KEY cannot be read: 403 Permission 'secretmanager.versions.access' denied"
    return Story(answer, left="no_secret", message=text, placement=GCE)


def slow_registry(drawn: Variation) -> Story:
    """The registry is slow or limits requests: the pull goes on, nothing is wrong with the image."""
    text = drawn.pick(
        'Failed to pull image "team/train:v7": net/http: TLS handshake timeout',
        'Failed to pull image "team/train:v7": toomanyrequests: You have reached your pull rate limit.',
        'Failed to pull image "team/train:v7": dial tcp 10.0.0.5:443: connect: connection refused',
    )
    facts = (("platform.state", "ImagePullBackOff", "provider"), ("platform.message", text, "provider"))
    return Story(
        not_(ALIVE, "K8S3"),
        facts=facts,
        phase="image",
        message="waiting for the image",
        placement=KUBERNETES,
        pages=PULLS,
    )


# --- look-alikes ------------------------------------------------------------------------------------------------------


def first_compile(drawn: Variation) -> Story:
    drawn.say(
        drawn.pick(
            "compiling the model (torch.compile, max-autotune)",
            "AUTOTUNE mm(4096x4096, 4096x4096)",
            "Building CUDA extension module...",
        )
    )
    drawn.wait(drawn.draw.uniform(700, 900))
    facts = (("motion.cpu", True, "agent"), ("motion.gpu", False, "agent"))
    return Story(not_(ALIVE, "HANG", "0-C"), phase="training", facts=facts)


def slow_pull(drawn: Variation) -> Story:
    drawn.wait(drawn.draw.uniform(300, 840))
    facts = (("motion.net", True, "agent"), ("motion.io", True, "agent"))
    return Story(
        not_(ALIVE, "K8S3", "0-C"), phase="image", message="pulling image (18.2 GB)", facts=facts, placement=GCE
    )


def own_125(drawn: Variation) -> Story:
    """The command itself starts containers; its own 125 comes after steps."""
    drawn.train()
    drawn.say('docker: Error response from daemon: Conflict. The container name "/eval" is already in use.')
    return Story(not_(USER_ERROR, "0-E"), code=125)


def still_booting(drawn: Variation) -> Story:
    drawn.wait(drawn.draw.uniform(60, 300))
    return Story(
        not_(ALIVE, "0-C"), phase=drawn.pick("boot", "driver", "restore"), placement=GCE, serial=("spot: phase boot",)
    )


MECHANISMS = (
    Mechanism("serial-stops", serial_stops, 7),
    Mechanism("driver-misfit", driver_misfit, 6),
    Mechanism("arguments-refused", arguments_refused, 7),
    Mechanism("start-failed", start_failed, 5),
    Mechanism("image-refused", image_refused, 6),
    Mechanism("no-image", no_image, 5),
    Mechanism("wrong-code", wrong_code, 5),
    Mechanism("one-cpu", one_cpu, 5),
    Mechanism("notebook-without-gpu", notebook_without_gpu, 5),
    Mechanism("object-refused", object_refused, 5),
    Mechanism("secret-unreadable", secret_unreadable, 5),
    Mechanism("not-first-compile", first_compile, 5),
    Mechanism("not-a-slow-registry", slow_registry, 5),
    Mechanism("not-slow-pull", slow_pull, 4),
    Mechanism("not-its-own-125", own_125, 4),
    Mechanism("not-still-booting", still_booting, 4),
)  # fmt: skip
