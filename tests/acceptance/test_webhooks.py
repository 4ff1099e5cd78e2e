"""A real supervisor tells a real receiver: signed, also when it is killed in the very moment of sending."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from tests.acceptance.canaries import answers_with
from tests.acceptance.daemon import QUICK, Daemon, running
from tests.cloud.web import Request, Reset, Response, WebServer
from tests.waiting import wait_for

INTERNAL = {**QUICK, "SPOT_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}


class Receiver:
    """Takes what is signed with its secret. `strike` is called once, with a message in hand and no answer given."""

    def __init__(self) -> None:
        self.secret = ""
        self.seen: list[tuple[str, Any]] = []
        self.strike = threading.Event()
        self.daemon: Daemon | None = None
        self.server = WebServer(self._take)

    def _take(self, request: Request) -> Response:
        told = Webhook(self.secret).verify(request.body, dict(request.headers))
        self.seen.append((request.headers["webhook-id"], told))
        if self.strike.is_set() and self.daemon is not None:
            self.strike.clear()
            os.kill(self.daemon.pid, 9)
            raise Reset
        return Response(204)

    def kinds(self, run_id: str) -> list[str]:
        return [told["data"]["kind"] for _, told in self.seen if told["data"]["run_id"] == run_id]


def test_a_kill_between_sending_and_settling_loses_nothing(tmp_path: Path) -> None:
    receiver = Receiver()
    with running(tmp_path / "data", INTERNAL) as daemon:
        url = f"{receiver.server.url}/hook-t0ken"
        made = daemon.call("POST", "/v1/webhooks", {"url": url, "everything": True})
        receiver.secret, receiver.daemon = made["secret"], daemon
        here = f"/v1/webhooks/{made['webhook_id']}"
        assert daemon.call("POST", f"{here}/test") == {"delivered": True, "status": 204, "detail": ""}
        daemon.submit("first", command=["true"])
        wait_for(lambda: "completed" in receiver.kinds("first"), 60, "the end of the first run to be told")

        receiver.strike.set()
        daemon.submit("second", command=["true"])
        wait_for(lambda: not receiver.strike.is_set(), 60, "a message in whose middle it dies")
        daemon.kill()
        daemon.start()
        wait_for(lambda: "completed" in receiver.kinds("second"), 60, "the end of the second run to be told")
        ids = [message_id for message_id, _ in receiver.seen]
        assert len(ids) > len(set(ids)), "what may have been lost came again, with its id"

        def over() -> list[Any]:
            found = daemon.call("GET", f"{here}/deliveries")["deliveries"]
            return found if {one["state"] for one in found} == {"delivered"} else []

        sent = wait_for(over, 30, "all deliveries to be settled")
        assert {(one["run_id"], one["kind"]) for one in sent} >= {("first", "completed"), ("second", "completed")}
        assert answers_with(daemon, ["hook-t0ken", receiver.secret]) == []
        assert "t0ken" not in (daemon.data_dir / "serve.log").read_text()
        assert "t0ken" not in json.dumps(made)
    receiver.server.close()


def test_without_leave_of_the_settings_nothing_inside_is_reached(tmp_path: Path) -> None:
    asked: list[Request] = []

    def take(request: Request) -> Response:
        asked.append(request)
        return Response(204)

    inside = WebServer(take)
    with running(tmp_path / "data") as daemon:
        for url in (inside.url, inside.url.replace("http", "https"), f"https://localhost:{inside.url[-5:]}/"):
            answer = daemon.http.post(f"{daemon.url}/v1/webhooks", json={"url": url})
            assert (answer.status_code, answer.json()["code"]) == (422, "URL_REFUSED")
    assert asked == []
    inside.close()
