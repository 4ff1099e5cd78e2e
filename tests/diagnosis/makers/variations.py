"""Seeded variation of one mechanism: frameworks, languages, prefixes of ranks, colors, boxes, line ends, cut lines.

A log is drawn line by line together with the steps that the training reports, so that the order of lines and steps is
known. The same seed always gives the same log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

LANGUAGES = ("en", "de", "zh", "fr", "es", "ja")
NO_SPACE = {
    "en": "No space left on device",
    "de": "Auf dem Gerät ist kein Speicherplatz mehr verfügbar",
    "zh": "设备上没有空间",
    "fr": "Aucun espace disponible sur le périphérique",
    "es": "No queda espacio en el dispositivo",
    "ja": "デバイスに空き領域がありません",
}
_CHATTER = {
    "en": (
        "epoch {e} step {s} loss {l:.4f}",
        "validation accuracy {a:.2f} %",
        "saved checkpoint step-{s}.pt",
        "loading shard {s}",
    ),
    "de": (
        "Epoche {e}, Schritt {s}: Verlust {l:.4f}",
        "Genauigkeit auf den Testdaten {a:.2f} %",
        "Zwischenstand {s} gespeichert",
    ),
    "zh": ("第 {e} 轮 步数 {s} 损失 {l:.4f}", "验证集准确率 {a:.2f} %", "检查点 {s} 已保存"),
    "fr": ("époque {e} pas {s} perte {l:.4f}", "précision de validation {a:.2f} %", "point de reprise {s} écrit"),
    "es": ("época {e} paso {s} pérdida {l:.4f}", "exactitud de validación {a:.2f} %", "punto de control {s} guardado"),
    "ja": ("エポック {e} ステップ {s} 損失 {l:.4f}", "検証精度 {a:.2f} %", "チェックポイント {s} を保存しました"),
}
_STYLES: tuple[Callable[[random.Random, str, int], str], ...] = (
    lambda draw, text, step: text,
    lambda draw, text, step: (
        f"2026-03-0{1 + step % 8} 1{step % 10}:0{step % 6}:{10 + step % 50},{step % 1000:03d} INFO trainer: {text}"
    ),
    lambda draw, text, step: f"[{step % 24:02d}:{step % 60:02d}:{(step * 7) % 60:02d}] INFO     {text}",
    lambda draw, text, step: (
        f"\r{step % 100:3d}%|{'█' * (step % 10)}{' ' * (10 - step % 10)}| {step}/5000 [00:{step % 60:02d}<05:11, 9.3it/s] {text}"
    ),
    lambda draw, text, step: (
        f"{{'loss': {draw.random():.4f}, 'learning_rate': {draw.random() / 1000:.2e}, 'epoch': {step / 100:.2f}}}"
    ),
    lambda draw, text, step: (
        f"Epoch {step // 100}: {step % 100:3d}%|{'▉' * (step % 8)} | {step}/5000 [v_num=3, train_loss={draw.random():.3f}] {text}"
    ),
    lambda draw, text, step: f"I{step:04d} train.py:{100 + step % 90}] {text}",
)
# Of every line: torchrun's redirects, srun -l, Ray, a log collector's time.
_EVERY_LINE = (
    "",
    "",
    "",
    "[default{r}]:",
    "{r}: ",
    "(RayTrainWorker pid=41{r}7, ip=10.0.0.{r}) ",
    "2026-03-01T12:00:01.{r}23456789Z ",
)
_OF_ERRORS = ("", "", "[rank{r}]: ")  # torch 2.2 and later
_FRAMES = (
    ("train.py", 214, "main", "main(parse_args())"),
    ("trainer/loop.py", 88, "fit", "loss = self.step(batch)"),
    ("trainer/loop.py", 131, "step", "output = self.model(batch)"),
    ("models/net.py", 57, "forward", "x = self.block(x)"),
)


class Variation:
    """Draws of one seed. `log`, `steps` and `up_s` grow as the mechanism writes its story."""

    def __init__(self, name: str, seed: int) -> None:
        self.seed = seed
        self.draw = random.Random(f"{name}/{seed}")
        self.language = LANGUAGES[seed % len(LANGUAGES)]
        self.rank = self.draw.randrange(4)
        self.crlf = self.draw.random() < 0.12
        self.colors = self.draw.random() < 0.25
        self.rich = self.draw.random() < 0.15
        self._style = self.draw.choice(_STYLES)
        self._every = self.draw.choice(_EVERY_LINE).format(r=self.rank)
        self._of_errors = self.draw.choice(_OF_ERRORS).format(r=self.rank) if not self._every else ""
        self.steps: list[tuple[int, int, float]] = []
        self._lines: list[str] = []
        self.step = self.draw.choice((0, 0, 120, 5_000, 88_000))
        self.first_step = self.step
        self.total = self.step + self.draw.choice((500, 5_000, 20_000))
        self.up_s = self.draw.uniform(20.0, 90.0)

    # --- the log --------------------------------------------------------------------------------------------------

    @property
    def log(self) -> bytes:
        return "".join(self._lines).encode()

    def say(self, *lines: str) -> None:
        end = "\r\n" if self.crlf else "\n"
        self._lines += [self._every + line + end for line in lines]

    def noise(self, count: int = 1) -> None:
        for _ in range(count):
            text = self.draw.choice(_CHATTER[self.language])
            loss, accuracy = self.draw.uniform(0.01, 4.0), self.draw.uniform(10, 99)
            self.say(
                self._style(self.draw, text.format(e=self.step // 500, s=self.step, l=loss, a=accuracy), self.step)
            )

    def train(self, count: int | None = None, every_s: float = 2.0) -> None:
        """So many steps are reported, each with its line."""
        for _ in range(self.draw.randrange(2, 6) if count is None else count):
            self.step += 10
            self.up_s += every_s
            self.steps.append((len(self.log), self.step, self.up_s))
            self.noise()

    def wait(self, seconds: float) -> None:
        self.up_s += seconds

    def long_line(self) -> None:
        """More than the 4 KB that a matcher looks at, without a word of meaning."""
        self.say("batch " + " ".join(f"{self.draw.random():.6f}" for _ in range(520)))

    def error(self, last: str, *, frames: int | None = None, chained_to: str = "") -> None:
        """A traceback that ends with `last`, in one of the forms in which they appear."""
        if self.draw.random() < 0.07:
            self.long_line()
        depth = self.draw.randrange(1, len(_FRAMES) + 1) if frames is None else frames
        if chained_to:
            self._traceback(chained_to, depth)
            self._err("", "During handling of the above exception, another exception occurred:", "")
        if self.rich:
            self._box(last, depth)
        elif self.draw.random() < 0.15:
            self.say(f"2026-03-01 12:00:01,{self.draw.randrange(1000):03d} ERROR trainer: training failed")
            self._traceback(last, depth)
        else:
            self._traceback(last, depth)

    def _traceback(self, last: str, depth: int) -> None:
        rows = ["Traceback (most recent call last):"]
        for path, line, name, text in _FRAMES[:depth]:
            rows += [f'  File "/home/user/{path}", line {line}, in {name}', f"    {text}"]
        head, *rest = last.split("\n")
        self._err(*rows, f"\x1b[31m{head}\x1b[0m" if self.colors else head, *rest)

    def _box(self, last: str, depth: int) -> None:
        width = 96
        rows = ["╭" + " Traceback (most recent call last) ".center(width, "─") + "╮"]
        for path, line, name, text in _FRAMES[:depth]:
            rows += [
                f"│ {f'/home/user/{path}:{line} in {name}':<{width - 2}} │",
                f"│ {f'❱ {line} │   {text}':<{width - 2}} │",
            ]
        rows.append("╰" + "─" * width + "╯")
        self._err(*rows, *last.split("\n"))

    def _err(self, *lines: str) -> None:
        self.say(*(self._of_errors + line if line else line for line in lines))

    def teardown(self) -> None:
        """What programs print after their end has begun."""
        rows: Sequence[str] = self.draw.choice((
            (),
            ("wandb: 🚀 View run smart-tree-7 at: https://wandb.ai/a/b/runs/7", "wandb: Synced 5 W&B file(s)"),
            ("resource_tracker: There appear to be 3 leaked semaphore objects to clean up at shutdown",),
            ("[W1126 10:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called",),
        ))  # fmt: skip
        self.say(*rows)

    def cascade(self) -> None:
        """Other processes report that this one failed."""
        rows: Sequence[str] = self.draw.choice((
            (),
            ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "train.py FAILED", f"  rank      : {self.rank}",
             "  exitcode  : 1 (pid: 4711)"),
            ("[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, remote process exited",),
            ("srun: error: node017: task 3: Exited with exit code 1",),
        ))  # fmt: skip
        self.say(*rows)

    # --- figures --------------------------------------------------------------------------------------------------

    def gib(self, low: float, high: float) -> int:
        return int(self.draw.uniform(low, high) * 2**30)

    def pick(self, *values: str) -> str:
        """The value of this seed: all are used before one comes again."""
        return values[self.seed % len(values)]
