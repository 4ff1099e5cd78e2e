"""A stand-in for the tool nvidia-smi, for computers without a GPU: its output comes from cards.json in its folder.

`{"cards": [{"index", "uuid", "name", "used", "total", "holders": [{"pid", "name", "used"}]}], "fail": "", "hang": 0}`
Sizes are MiB, or texts such as "[N/A]". Fields of --query-gpu that the file does not know are [N/A]. `fail`: what it
says before it ends with code 9; `hang`: seconds before its output; `lost`: indexes of cards without figures, so
that an agent, which reads them, does not find them; `cuda`: the newest version that the driver supports.
"""

import json
import sys
import time
from pathlib import Path

state = json.loads(Path(__file__).with_name("cards.json").read_text())
cuda = state.get("cuda", "12.4")
time.sleep(state.get("hang", 0))
if state.get("fail"):
    sys.stdout.write(state["fail"] + "\n")
    sys.exit(9)
query = next((word for word in sys.argv if word.startswith("--query-")), "")
if not query:
    sys.stdout.write(f"| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: {cuda} |\n")
    sys.exit(0)
fields = query.partition("=")[2].split(",")
lost = state.get("lost", []) if "utilization.gpu" in fields else []
for card in state["cards"]:
    if card["index"] in lost:
        continue
    if query.startswith("--query-gpu"):
        known = {"memory.used": card["used"], "memory.total": card["total"], **card}
        rows = [[str(known.get(field, "[N/A]")) for field in fields]]
    else:
        rows = [
            [card["uuid"], str(h["pid"]), h.get("name", "[Not Found]"), str(h["used"])] for h in card.get("holders", [])
        ]
    for row in rows:
        sys.stdout.write(", ".join(row) + "\n")
