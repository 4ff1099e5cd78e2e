"""The supervisor that the pages are of: a real one with the local provider, people with tokens, and trainings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.daemon import QUICK, Daemon, running
from tests.acceptance.stories import Stories

TALKING = Path(__file__).with_name("talking.py")
FULL_ZONE = "local-full"  # has room for nothing: runs that are asked to be there wait
AT_HOME = {
    **QUICK,
    "SPOT_COOLDOWN_MIN_S": "0.5",
    "SPOT_COOLDOWN_MAX_S": "1",
    "SPOT_LOCAL_ZONES": f"local-a,local-b,local-c,{FULL_ZONE}",
    "SPOT_LOCAL_CAPACITY": f"{FULL_ZONE}=0",
    "SPOT_WEBHOOK_ALLOW_HOSTS": "127.0.0.1",
}


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

    def submit(self, run_id: str, token: str, **spec: object) -> None:
        """In the name of whose token this is."""
        headers = {"Authorization": f"Bearer {token}"}
        wish = {"run_id": run_id, "spec": spec}
        answer = self.daemon.http.post(f"{self.daemon.url}/v1/runs", json=wish, headers=headers, auth=None)
        assert answer.is_success, answer.text

    def talks(self, run_id: str, token: str, **spec: object) -> None:
        """Submit a training that writes lines and steps until it is ended."""
        self.submit(run_id, token, command=[sys.executable, "-S", "-u", str(TALKING)], **spec)

    def relabel(self, run_id: str, name: str) -> None:
        """An event of a run: a label of this name is set."""
        url, whatever = f"{self.daemon.url}/v1/runs/{run_id}", {"If-Match": "*"}
        answer = self.daemon.http.patch(url, json={"labels": {name: "set"}}, headers=whatever)
        assert answer.is_success, answer.text


@contextmanager
def opened(folder: Path) -> Iterator[House]:
    with running(folder / "data", AT_HOME) as daemon:
        yield House(Stories(daemon, folder))
