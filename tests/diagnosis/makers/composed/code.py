"""The user's code, environment and configuration, in the words of many programs; and words that were survived."""

from __future__ import annotations

from dataclasses import replace

from tests.diagnosis.makers.answers import ALIVE, KNOWN_ERROR, NOT_STARTED, USER_ERROR, code, not_
from tests.diagnosis.makers.situations import GCE, Mechanism, Story, cards
from tests.diagnosis.makers.variations import Variation

MODULE = code("U5", "certain", "install_module")
LINE_ENDS = code("U26", "certain", "fix_line_ends")
CONFIG = code("U27", "likely", "fix_config")
LAYERS = code("U28", "certain", "fix_layers", "other_driver")
TRACKER = code("U35", "likely", "add_secret")
CELL = code("NB2", "certain", "fix_code")
SOON = code("GEN5", "likely", "run_smoke")


def module_missing(drawn: Variation) -> Story:
    name = drawn.pick("timm", "flash_attn", "einops", "sklearn", "apex", "deepspeed")
    drawn.error(f"ModuleNotFoundError: No module named '{name}'")
    drawn.cascade()
    return Story(MODULE, code=1)


def environment_not_active(drawn: Variation) -> Story:
    drawn.error("ModuleNotFoundError: No module named 'torch'")
    facts = (
        ("env.python", "/usr/bin/python3", "agent"), ("env.wanted", "vision", "agent"), ("env.conda", "base", "agent"),
        ("env.has_module", "/opt/conda/envs/vision", "agent"),
    )  # fmt: skip
    return Story(code("U5", "certain", "set_conda_env"), code=1, facts=facts)


def windows_lines(drawn: Variation) -> Story:
    text, number = (
        ("train.sh: line 2: $'\\r': command not found", 127), ("/bin/bash^M: bad interpreter: No such file or directory", 126),
        ("set: -: invalid option", 2), ("/usr/bin/env: 'bash\\r': No such file or directory", 127),
        ("run.sh: line 14: syntax error near unexpected token `$'do\\r''", 2), ("bash: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory", 126),
    )[drawn.seed % 6]  # fmt: skip
    drawn.say(text)
    return Story(LINE_ENDS, code=number, ran_s=0.2)


def configuration(drawn: Variation) -> Story:
    drawn.error(drawn.pick(
        "omegaconf.errors.ConfigTypeError: Error: 'model.optimizer' is not a mapping",
        "hydra.errors.ConfigCompositionException: Could not override 'trainer.devicez'.",
        "Error: Override path 'db@x' is invalid",
        "omegaconf.errors.ConfigAttributeError: Key 'lrr' is not in struct",
        "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: data.path",
    ), frames=1)  # fmt: skip
    return Story(CONFIG, code=1)


def layers(drawn: Variation) -> Story:
    drawn.noise(1)
    drawn.error(drawn.pick(
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile PyTorch (11.8). Please make sure to use the same CUDA versions.",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading and installing a new version",
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    ))  # fmt: skip
    return Story(LAYERS, code=1, telemetry=cards(0.3), placement=GCE)


def tracker(drawn: Variation) -> Story:
    drawn.error(drawn.pick(
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "wandb.errors.UsageError: No API key configured. Use `wandb login` to log in.",
        "neptune.exceptions.NeptuneMissingApiTokenException: NeptuneMissingApiToken",
        "comet_ml.exceptions.CometConfigError: Comet.ml requires an API key.",
    ))  # fmt: skip
    return Story(TRACKER, code=1)


def access(drawn: Variation) -> Story:
    drawn.noise(1)
    drawn.error(
        drawn.pick(
            "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url https://huggingface.co/org/model/resolve/main/config.json.",
            "google.api_core.exceptions.Forbidden: 403 GET https://storage.googleapis.com/storage/v1/b/data: trainer@project.iam.gserviceaccount.com does not have storage.objects.get access to the Google Cloud Storage object.",
            "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied",
            "PermissionError: [Errno 13] Permission denied: '/data/imagenet/train'",
        )
    )
    return Story(code("0-B", "likely", "grant_role", "add_secret"), code=1)


def shared_memory(drawn: Variation) -> Story:
    drawn.train(2)
    drawn.error(
        drawn.pick(
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_4711_99>: Resource temporarily unavailable (11)",
        )
    )
    return Story(code("U9", "likely", "larger_shm"), code=1)


def cell(drawn: Variation) -> Story:
    drawn.error(
        drawn.pick("KeyError: 'label'", "NameError: name 'df' is not defined", "ValueError: Input contains NaN.")
    )
    drawn.say('papermill.exceptions.PapermillExecutionError: Exception encountered at "In [7]"')
    facts = (("platform.state", "ERROR", "provider"), ("platform.message", "the version failed in cell 7", "provider"))
    return Story(CELL, code=1, facts=facts, pages="Kaggle/kaggle-cli: docs/kernels.md, kernels status")


def soon(drawn: Variation) -> Story:
    drawn.noise(2)
    drawn.error(drawn.pick(
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)",
        "ImportError: cannot import name 'Trainer' from 'transformers' (/opt/python/lib/python3.11/site-packages/transformers/__init__.py)",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for head.weight: copying a param with shape torch.Size([1000, 512]) from checkpoint, the shape in current model is torch.Size([10, 512]).",
        "IndexError: list index out of range",
    ))  # fmt: skip
    facts = (("smoke.passed", False, "own"),)
    return Story(SOON, code=1, ran_s=drawn.draw.uniform(3, 100), facts=facts)


def twice(drawn: Variation) -> Story:
    """The same error at the same step as the last time: once more would cost money for nothing."""
    drawn.train()
    drawn.error(
        drawn.pick(
            "AssertionError: loss is nan at step 4210",
            "IndexError: index 50257 is out of range",
            "KeyError: 'image_00817'",
        )
    )
    facts = (("repeat.same", True, "own"),)
    return Story(replace(KNOWN_ERROR, rule="SAME", certainty="certain"), code=1, facts=facts)


def later(drawn: Variation) -> Story:
    drawn.train()
    drawn.error(drawn.pick(
        "ZeroDivisionError: division by zero", "KeyError: 'val/acc'", "ValueError: Sample larger than population",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "RuntimeError: Trying to backward through the graph a second time",
    ))  # fmt: skip
    drawn.teardown()
    drawn.cascade()
    return Story(USER_ERROR, code=1)


def not_found(drawn: Variation) -> Story:
    text, number = (
        ("/bin/sh: 1: accelerate: not found", 127), ("bash: torchrun: command not found", 127),
        ("bash: ./train.py: Permission denied", 126), ("exec: \"deepspeed\": executable file not found in $PATH", 127),
    )[drawn.seed % 4]  # fmt: skip
    drawn.say(text)
    return Story(NOT_STARTED, code=number, ran_s=0.1)


# --- look-alikes ------------------------------------------------------------------------------------------------------


def import_survived(drawn: Variation) -> Story:
    drawn.say(
        drawn.pick(
            "ModuleNotFoundError: No module named 'apex' - falling back to torch",
            "No module named 'flash_attn': using the slow attention",
        )
    )
    drawn.train()
    drawn.error("IndexError: list index out of range")
    return Story(not_(USER_ERROR, "U5"), code=1)


def driver_warned(drawn: Variation) -> Story:
    drawn.say("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).")
    drawn.train()
    drawn.error("KeyError: 'lr'")
    return Story(not_(USER_ERROR, "U28"), code=1, telemetry=cards(0.0))


def number_127_late(drawn: Variation) -> Story:
    """126 and 127 after hours are the command's own."""
    drawn.train(5, every_s=2000.0)
    drawn.say("evaluate.sh: line 9: aws: command not found")
    return Story(not_(USER_ERROR, "U5", "U26"), code=(127, 126)[drawn.seed % 2])


def tracker_off(drawn: Variation) -> Story:
    drawn.say(
        drawn.pick("wandb: WARNING Disabled WandB: no API key configured", "wandb: (3) Don't visualize my results")
    )
    drawn.train()
    return Story(not_(ALIVE, "U35"), facts=(("motion.gpu", True, "agent"),))


def config_printed(drawn: Variation) -> Story:
    drawn.say(
        "# override the defaults: python train.py model=large  (an error 'is not a mapping' means a missing dash)"
    )
    drawn.train()
    drawn.error("RuntimeError: the sampler returned no index")
    return Story(not_(USER_ERROR, "U27"), code=1)


def carriage_returns(drawn: Variation) -> Story:
    """A log whose lines end with CR LF says nothing about the line ends of scripts."""
    drawn.crlf = True
    drawn.train()
    drawn.error("ValueError: unknown activation 'gelu_fast'")
    return Story(not_(USER_ERROR, "U26"), code=1)


MECHANISMS = (
    Mechanism("module-missing", module_missing, 6),
    Mechanism("environment-not-active", environment_not_active, 5),
    Mechanism("windows-lines", windows_lines, 8),
    Mechanism("configuration", configuration, 6),
    Mechanism("layers", layers, 7),
    Mechanism("tracker", tracker, 5),
    Mechanism("access", access, 6),
    Mechanism("shared-memory", shared_memory, 5),
    Mechanism("cell", cell, 5),
    Mechanism("soon", soon, 6),
    Mechanism("twice", twice, 5),
    Mechanism("later", later, 6),
    Mechanism("not-found", not_found, 5),
    Mechanism("not-import-survived", import_survived, 5),
    Mechanism("not-driver-warned", driver_warned, 4),
    Mechanism("not-127-late", number_127_late, 4),
    Mechanism("not-tracker-off", tracker_off, 4),
    Mechanism("not-config-printed", config_printed, 4),
    Mechanism("not-carriage-returns", carriage_returns, 4),
)
