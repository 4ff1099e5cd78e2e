"""What strangers may write, and what of it would do something if a page took it for more than text.

`python -S hostile.py` is a training that says all of it: as lines, as names of metrics and of files, and as last words.
In its first attempt it fails, from the second on it goes on until it is ended; `hostile.py results` ends well at once.
Standard library only.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

IMAGE = "<img src=x onerror=struck('image')>"
PAYLOADS = {
    "image": IMAGE,
    "script": "\"'></textarea></title></pre><script>struck('script')</script>",
    "handler": "x\" onmouseover=\"struck('handler')\" autofocus onfocus='struck(1)' x=\"",
    "address": "javascript:struck('address')",
    "template": "{{ 7 * 7 }}{% raw %}${struck('template')}#{7*7}<%= 7 %>",
    "htmx": '<p hx-get="/ui/runs?struck" hx-trigger="load" hx-on:load="struck(2)">p</p>',
    "frame": '<iframe srcdoc="<script>struck(3)</script>"></iframe><base href="//spot.example/">',
    "refresh": '<meta http-equiv="refresh" content="0;url=/livez"><style>*{display:none}</style><!--',
    "terminal": "\x1b[31mred\x1b[0m \x1b]8;;javascript:struck(4)\x07link\x1b]8;;\x07\x1b]0;title\x07\x08\x7f\x9b31m",
    "bidi": "file \u202egnp.exe\u2066 \u200f\ufeff \U000e0041",
}
FOR_NAMES = ("image", "handler", "template", "bidi")  # no slash in them


def main() -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    progress = Path(os.environ["SPOT_PROGRESS_FILE"])
    for text in PAYLOADS.values():
        sys.stdout.write(text + "\n")
    for folder, step in (("SPOT_RESULTS_DIR", None), ("SPOT_CHECKPOINT_DIR", 3)):
        for name in FOR_NAMES[: 1 if step else None]:
            draft = Path(os.environ[folder], "draft.tmp")
            draft.write_text(PAYLOADS[name])
            draft.rename(draft.with_name(f"{PAYLOADS[name]}-{step}.txt"))
    metrics, step = {text[:64]: 1.5 for text in PAYLOADS.values()}, 0
    while True:
        step += 1  # without progress it would count as stalled
        with progress.open("a") as target:
            target.write(json.dumps({"step": step, "metrics": metrics}) + "\n")
        time.sleep(1)  # long enough for a beat with the metrics
        if sys.argv[1:] == ["results"]:
            return
        sys.stdout.write(f"ValueError: {IMAGE}\n")
        if os.environ["SPOT_ATTEMPT"] == "1":
            sys.exit(75)


if __name__ == "__main__":
    main()
