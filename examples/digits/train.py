"""A small network learns handwritten digits, and an interruption does not change what it learns.

Every batch is drawn from seed and step alone, so a training that was stopped and resumed computes the same numbers as
one without interruption: the weights are equal bit for bit. Without any SPOT_ variable it is a plain script.

    python examples/digits/train.py --steps 400 --checkpoint-every 20
"""

import os

# Sums in another order differ in the last bits. So there is one thread, and only the processor decides the order: other
# variables could be set on one machine and not on the next. This must come before the import of numpy.
for _name in [_name for _name in os.environ if _name.startswith(("OPENBLAS_", "MKL_", "NPY_"))]:
    del os.environ[_name]
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse  # noqa: E402
import hashlib  # noqa: E402
import importlib.util  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import zipfile  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

try:
    import spot_progress
except ImportError:  # not under the supervisor: reports have no reader
    spot_progress = None

HIDDEN, CLASSES, TRAIN_ROWS = 64, 10, 1400
BATCH, RATE, MOMENTUM = 64, 0.05, 0.9
KEPT = 3  # local checkpoints
STOPPED = 128 + signal.SIGTERM  # exit code: saved because of a stop
Arrays = dict[str, np.ndarray]


def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: images [rows, pixels] in 0..1, and labels. Its file is read without its code,
    whose import takes longer than many steps."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        sys.exit("scikit-learn, which brings the images, is not installed: pip install scikit-learn")
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return rows[:, :-1] / 16.0, rows[:, -1].astype(int)


def initial(seed: int, pixels: int) -> Arrays:
    """Weights w1 [pixels, HIDDEN], b1, w2 [HIDDEN, CLASSES], b2, and the momentum of each (v_...)."""
    rng = np.random.default_rng((seed, 2**32 - 1))
    weights = {
        "w1": rng.normal(0.0, np.sqrt(2.0 / pixels), (pixels, HIDDEN)),
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(0.0, np.sqrt(2.0 / HIDDEN), (HIDDEN, CLASSES)),
        "b2": np.zeros(CLASSES),
    }
    return weights | {"v_" + name: np.zeros_like(value) for name, value in weights.items()}


def train_step(state: Arrays, images: np.ndarray, labels: np.ndarray, seed: int, step: int) -> float:
    """One batch of momentum descent, in place; the batch's mean cross-entropy."""
    rows = np.random.default_rng((seed, step)).integers(0, len(images), BATCH)
    x, y = images[rows], labels[rows]
    hidden = np.maximum(x @ state["w1"] + state["b1"], 0.0)
    p = probabilities(hidden @ state["w2"] + state["b2"])
    loss = float(-np.log(p[np.arange(BATCH), y]).mean())
    p[np.arange(BATCH), y] -= 1.0
    error = p / BATCH
    back = (error @ state["w2"].T) * (hidden > 0.0)
    gradients = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}
    for name, gradient in gradients.items():
        state["v_" + name] = MOMENTUM * state["v_" + name] - RATE * gradient
        state[name] = state[name] + state["v_" + name]
    return loss


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def accuracy(state: Arrays, images: np.ndarray, labels: np.ndarray) -> float:
    hidden = np.maximum(images @ state["w1"] + state["b1"], 0.0)
    return float(((hidden @ state["w2"] + state["b2"]).argmax(1) == labels).mean())


def encoded(arrays: Arrays) -> bytes:
    """A .npz whose bytes depend on the arrays alone: np.savez would write the present time into it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(arrays):
            array = io.BytesIO()
            np.lib.format.write_array(array, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(name + ".npy"), array.getvalue())
    return buffer.getvalue()


def write(path: Path, data: bytes) -> None:
    """All or nothing: temporary file, fsync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """(step, file), the newest last."""
    matches = ((re.fullmatch(r"step-(\d+)\.npz", path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def save(folder: Path, step: int, state: Arrays) -> None:
    write(folder / f"step-{step:06d}.npz", encoded(state))
    if spot_progress:
        spot_progress.checkpoint(f"step-{step:06d}.npz", step)
    for _, old in checkpoints(folder)[:-KEPT]:
        old.unlink()


def load(folder: Path, seed: int, pixels: int) -> tuple[int, Arrays]:
    """The newest checkpoint, or a fresh start at step 0."""
    kept = checkpoints(folder)
    if not kept:
        return 0, initial(seed, pixels)
    step, path = kept[-1]
    with np.load(path, allow_pickle=False) as arrays:
        return step, {name: arrays[name] for name in arrays.files}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--checkpoint-every", type=int, default=20)
    parser.add_argument("--step-delay-s", type=float, default=0.0, help="make each step last longer")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("digits-out"), help="used without SPOT_ variables")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    folder = Path(os.environ.get("SPOT_CHECKPOINT_DIR", options.out / "checkpoints"))
    results = Path(os.environ.get("SPOT_RESULTS_DIR", options.out / "results"))
    for path in (folder, results):
        path.mkdir(parents=True, exist_ok=True)
    terms: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: terms.append(number))

    images, labels = digits()
    step, state = load(folder, options.seed, images.shape[1])
    print(f"training from step {step} to {options.steps}")
    while step < options.steps:
        loss = train_step(state, images[:TRAIN_ROWS], labels[:TRAIN_ROWS], options.seed, step)
        step += 1
        time.sleep(options.step_delay_s)
        stop = bool(terms)
        if spot_progress:
            stop = stop or spot_progress.stopping()
            spot_progress.report(step, total=options.steps, loss=loss)
        if stop or step % options.checkpoint_every == 0:
            save(folder, step, state)
            print(f"step {step}: loss {loss:.4f}")
        if stop and step < options.steps:
            print("asked to leave: saved")
            return STOPPED

    weights = encoded({name: value for name, value in state.items() if not name.startswith("v_")})
    write(results / "weights.npz", weights)
    scores = {"steps": step, "test_accuracy": round(accuracy(state, images[TRAIN_ROWS:], labels[TRAIN_ROWS:]), 6)}
    write(results / "metrics.json", json.dumps(scores, sort_keys=True).encode() + b"\n")
    print(f"test accuracy {scores['test_accuracy']:.3f}")
    print(f"weights sha256 {hashlib.sha256(weights).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
