"""The page of webhooks: its kinds are those of the code, and its receiver takes what the courier sends, and no more."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.domain.events import KINDS
from supervisor.notifiers.guard import Guard
from supervisor.notifiers.webhook import WebhookCourier
from supervisor.ports.notifier import DeliveryFailed, Form, Notification, Target
from supervisor.reconciler.delivering.timing import BACKOFFS_S
from supervisor.services.webhooks.webhooks import MOST
from tests.waiting import wait_for

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
SECRET = "whsec_" + base64.b64encode(b"thirty-two bytes of a test secret").decode()
TOLD = Notification(345, 12, "digits-7", "preempted", "Taken back.", 1_800_000_000.0, {"attempt": 2})


def test_the_table_of_kinds_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z_0-9]+)` \| (.*) \| (yes|) \| (yes|) \|$", PAGE, flags=re.MULTILINE)
    assert rows == [
        (kind.name, kind.about, "yes" if kind.usual else "", "yes" if kind.urgent else "") for kind in KINDS.values()
    ]


def test_the_figures_are_those_of_the_code() -> None:
    assert "5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h" in PAGE
    assert [5, 300, 1800, *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24))] == list(BACKOFFS_S)
    assert round(sum(BACKOFFS_S) / 3600) == 76
    assert f"up to {MOST}," in PAGE


@contextmanager
def receiver(tmp_path: Path, port: int) -> Iterator[Path]:
    """The page's own program as a process; the file that it prints into."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len([line for line in program.splitlines() if line]) <= 20
    printed = tmp_path / "printed"
    env = {**os.environ, "SECRET": SECRET, "PORT": str(port)}
    with (
        printed.open("wb") as out,
        subprocess.Popen([sys.executable, "-c", program], env=env, stdout=out, stderr=out) as process,
    ):
        try:
            yield printed
        finally:
            process.kill()


def _takes(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_receiver_of_the_page_takes_what_is_signed_with_its_secret_and_nothing_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with receiver(tmp_path, port) as printed:
        wait_for(lambda: _takes(port), 20, "the receiver")
        courier = WebhookCourier("me", Guard({f"127.0.0.1:{port}"}))
        url = f"http://127.0.0.1:{port}/"
        assert courier.send(Target(url, Form.STANDARD, (SECRET,)), [TOLD]) == 204
        for secrets in ((), ("whsec_" + base64.b64encode(b"another").decode(),)):
            with pytest.raises(DeliveryFailed) as caught:
                courier.send(Target(url, Form.STANDARD, secrets), [TOLD])
            assert caught.value.status == 401
        wait_for(lambda: b"Taken back" in printed.read_bytes(), 20, "the printed message")
        assert b"evt_me_345 run.preempted digits-7: Taken back.\n" in printed.read_bytes()
