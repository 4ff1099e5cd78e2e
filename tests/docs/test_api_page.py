"""The commands of docs/api.md are run against a server, and answer what the page says."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.status import Status
from supervisor.ports.platform import ShapePrice
from tests.api.conformance import guarded
from tests.api.listening import serving
from tests.api.recorder import COMMITTED
from tests.components import require_component
from tests.docs.shown import Shown, commands, differs, run, sections
from tests.fakes.courier import FakeCourier
from tests.services.bed import COMMAND, Bed, make_bed
from tests.services.fresh import open_fresh
from tests.services.test_files import furnished
from tests.services.test_machines import put
from tests.services.test_series import kept

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def nothing(bed: Bed) -> None:
    pass


def trains(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "labels": {"team": "vision"}})
    kept(bed, (60.0, 1, 100), (120.0, 1, 110))
    bed.clock.advance(180.0)
    bed.train("digits-7")
    bed.objects.put("runs/digits-7/logs/a1/00000000.log", b"epoch 1 loss 0.52\nepoch 2 loss 0.31\n")
    put(bed, "m-a1", "digits-7", machine_id="id-1")
    bed.parts.platform.price_list = (ShapePrice("cpu", "local", 0.1, 0.3, "settings"),)  # type: ignore[attr-defined]


def trains_and_has_stopped(bed: Bed) -> None:
    trains(bed)
    bed.submit("digits-8")
    bed.train("digits-8")
    bed.end("digits-8", Status.STOPPED)


def has_files(bed: Bed) -> None:
    furnished(bed)


STAGES: Mapping[str, Callable[[Bed], None]] = {
    "Read runs": trains,
    "Change, stop, resume": trains_and_has_stopped,
    "Fetch the files": has_files,
    "Costs, prices, zones, machines": trains,
    "Listen": trains,
    "Watch the supervisor": trains,
}


def prelude(page: str, url: str, token: str) -> str:
    """The page's first block, for this server and this token."""
    found = re.search(r"^```sh\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1].replace("http://127.0.0.1:8787", url).replace("$(cat DATA_DIR/admin-token)", token)


@contextmanager
def answering(page: str, heading: str, folder: Path) -> Iterator[list[str]]:
    """What the commands below a heading answer, in a folder of their own."""
    here = folder / "here"
    here.mkdir()
    (here / "train.py").write_text("print('loss 0.5')\n", encoding="utf-8")
    with closing(open_fresh(folder / "supervisor.db", ("log", "webhooks"))) as store:
        bed = make_bed(store, folder)
        STAGES.get(heading, nothing)(bed)
        services, token = guarded(bed)
        services = replace(services, parts=replace(services.parts, courier=FakeCourier()))
        with serving(services) as served:
            first = prelude(page, f"http://127.0.0.1:{served.port}", token)
            wanted = commands(sections(page)[heading])
            yield run(f"cd '{here}'\n{first}", wanted, {"PATH": os.environ["PATH"]})


HEADINGS = [name for name, section in sections(PAGE).items() if commands(section)]


@pytest.fixture(scope="module", autouse=True)
def curl() -> None:
    require_component("curl", shutil.which("curl") is not None, "apt-get install curl")


@pytest.mark.parametrize("heading", HEADINGS)
def test_commands_answer_what_the_page_says(heading: str, tmp_path: Path) -> None:
    wanted = commands(sections(PAGE)[heading])
    with answering(PAGE, heading, tmp_path) as answers:
        wrong = [
            f"$ {one.command}\n{why}"
            for one, answer in zip(wanted, answers, strict=True)
            if (why := differs(one.text, answer))
        ]
    assert not wrong, "\n\n".join(wrong)


def test_every_stage_has_its_section() -> None:
    assert STAGES.keys() <= set(HEADINGS)
    assert len(HEADINGS) >= 8


SHORT = {
    "run_id": "id",
    "webhook_id": "id",
    "token_id": "id",
    "number": "n",
    "delivery_id": "number",
    "incident_id": "id",
    "base_name": "name",
}


def untold(page: str) -> list[str]:
    """Addresses of the document that the page's tables do not name."""
    tables = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    paths = [
        re.sub(r"{(\w+)}", lambda name: f"{{{SHORT.get(name[1], name[1])}}}", path)
        for path in json.loads(COMMITTED.read_text(encoding="utf-8"))["paths"]
    ]
    return [
        path
        for path in paths
        if not re.search(re.escape(path) + r"[`?]", tables)
        and f"`/{path.rpartition('/')[2]}`" not in tables
        and not path.startswith("/v1/dev/")
    ]


def test_the_tables_name_every_address() -> None:
    assert untold(PAGE) == []
    assert untold(PAGE.replace("`GET /v1/zones`", "")) == ["/v1/zones"], "the broken variant"


@pytest.mark.parametrize(
    ("shown", "answer", "why"),
    [
        ('{"a": 1, …}', '{"a": 2.5, "b": 0}', ""),
        ('{"a": [{"b": "x", …}, …], …}', '{"a": [{"b": "y", "c": 1}]}', ""),
        ('{"a": 1, …}', '{"b": 1}', "/a is not answered"),
        ('{"a": 1}', '{"a": "1"}', '/a is "1"'),
        ('{"a": [{"b": 1}]}', '{"a": []}', "/a is empty"),
        ("epoch 3 …", "epoch 12 loss 0.5", ""),
        ("step 3 …", "epoch 12 loss 0.5", "not answered: step 3 …"),
        ("epoch 3", "epoch 12", ""),
    ],
)
def test_an_answer_that_is_another_would_be_seen(shown: str, answer: str, why: str) -> None:
    assert differs(shown, answer) == why


def test_commands_are_found_with_their_answers() -> None:
    text = "```console\n$ a \\\n    b\n{\n}\n$ c\n```\n"
    assert commands(text) == [Shown("a \\\n    b", ["{", "}"]), Shown("c")]
