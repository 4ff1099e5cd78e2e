"""Hosts by SSH for a measurement: one server, a command is answered at once. It prints its port, and ends by a kill."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import asyncssh

from supervisor.host.operations import ANSWER


class Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False  # nobody is asked for a key: on loopback, for a minute


def probe(runs: int) -> str:
    machines = [
        {
            "name": f"spot-run-{number}-a1-t1", "zone": "gpu1", "supervisor_id": "supervisor-one",
            "run_id": f"run-{number}", "launch_id": "1.1.1", "created_at": 1.79e9, "gpu_ids": None,
            "machine_id": f"local:0a1b2c3d:{1000 + number}:4711", "state": "up", "record": None, "detail": "",
        }
        for number in range(runs)
    ]  # fmt: skip
    values = {
        "machines": machines, "unreadable": {}, "cards_left": None, "all_cards": None, "others": "",
        "boot_id": "0a1b2c3d-0000-0000-0000-000000000000", "uptime_s": 1e5, "at": 1.79e9, "python": "3.11.7",
        "host": "gpu1", "cores": 64, "memory_bytes": 2**38, "memory_max_bytes": None, "disk_free_bytes": 2**40,
        "disk_bytes": 2**41, "inodes_free": 10**8, "inodes": 10**9, "tmux": True, "lingers": False,
    }  # fmt: skip
    return f"\n{ANSWER}{json.dumps(values)}\n"


async def serve(folder: Path, runs: int) -> None:
    answer = probe(runs)
    key = asyncssh.generate_private_key("ssh-ed25519")

    async def command(process: asyncssh.SSHServerProcess[str]) -> None:
        await process.stdin.read()
        process.stdout.write(answer)
        process.exit(0)

    server = await asyncssh.listen("127.0.0.1", 0, server_factory=Open, server_host_keys=[key], process_factory=command)
    port = server.get_port()
    public = key.export_public_key().decode().strip()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}\n")
    print(port, flush=True)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
