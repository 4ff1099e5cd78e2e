"""The supervisor that the pages are of: a real one with the local provider, people with tokens, and trainings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.daemon import QUICK, Daemon, running
from tests.acceptance.stories import Stories

PAGES_OF_ALL = ("/ui/runs", "/ui/zones", "/ui/machines", "/ui/alerts", "/ui/system")
TALKING = Path(__file__).with_name("talking.py")


class House:
    """`token`: the admin's. Runs belong to whose token has submitted them."""

    def __init__(self, stories: Stories) -> None:
        self.stories = stories

    @property
    def daemon(self) -> Daemon:
        return self.stories.daemon

    @property
    def token(self) -> str:
        return self.daemon.token

    def person(self, name: str, *scopes: str) -> str:
        """A token of that name for an owner of that name."""
        wish = {"name": name, "owner": name, "scopes": list(scopes or ("runs:read", "runs:write"))}
        return str(self.daemon.call("POST", "/v1/tokens", wish)["token"])

    def talks(self, run_id: str, token: str = "", **spec: object) -> Any:
        """Submit a training that writes lines and steps until it is ended; for whose token this is."""
        body = {"run_id": run_id, "spec": {"command": [sys.executable, "-S", "-u", str(TALKING)], **spec}}
        headers = {"Authorization": f"Bearer {token or self.token}"}
        answer = self.daemon.http.post(self.daemon.url + "/v1/runs", json=body, headers=headers, auth=None)
        assert answer.is_success, answer.text
        return answer.json()

    def relabel(self, run_id: str, name: str) -> None:
        """Something that happens to a run, and is told: a label of this name is set."""
        url = f"{self.daemon.url}/v1/runs/{run_id}"
        seen = {"If-Match": self.daemon.http.get(url).headers["etag"]}
        answer = self.daemon.http.patch(url, json={"labels": {name: "set"}}, headers=seen)
        assert answer.is_success, answer.text


@contextmanager
def opened(folder: Path) -> Iterator[House]:
    environ = {
        **QUICK,
        "SPOT_WEBHOOK_ALLOW_HOSTS": "127.0.0.1",
        "SPOT_COOLDOWN_MIN_S": "0.5",
        "SPOT_COOLDOWN_MAX_S": "1",
    }
    with running(folder / "data", environ) as daemon:
        yield House(Stories(daemon, folder))
