"""The claim of a notebook: which session this is, what it gets for its ticket, and what it lacks.

What a session lacks (its accelerator, the way to the object store) is reported at once, because hours of it would cost
the user's quota. What cannot be read is not missing: then the agent finds out.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from typing import Any, Dict, Mapping, Optional, Sequence
from urllib.parse import quote, urljoin, urlsplit

from supervisor.agent.facts.attempt_facts import gpu_facts
from supervisor.agent.machine.folder import read_text
from supervisor.agent.machine.processes import boot_id, stat_fields
from supervisor.agent.store.door.client import Door, DoorPass, code_of, is_safe, object_of, text_of, wait
from supervisor.agent.store.door.store import SCHEME
from supervisor.agent.store.googleapi import Retries, RetryPolicy
from supervisor.agent.store.httpclient import HttpClient, Request, Response, Unreachable
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.stores.bucket import is_passing
from supervisor.contract.stores.promise import ABSENT, StoreUnavailable

CLAIM_FOR_S, PROBE_FOR_S = 90.0, 30.0
FACT_CHARS = 120
PROBE, PROBE_BYTES = ".probe", 16 << 20  # never written; so large that it would go past the supervisor
LEAST_S = 60.0  # a session that is nearly over still saves what it has
# What people read about a claim that was refused.
REFUSED = {
    "TICKET_USED": "another session has used the ticket of this cell, in another tab or in a copy of this notebook. "
    "That one trains; a new session needs a new cell from the page of the run",
    "TICKET_EXPIRED": "the ticket of this cell is too old: copy a new cell from the page of the run",
    "TICKET_REFUSED": "this supervisor does not know the ticket of this cell: copy a new one from the page of the run",
    "LAUNCH_OVER": "the supervisor does not wait for this session any more: the run is over, or goes on elsewhere",
}
# Variables that say which session this is. None of them holds a key.
KAGGLE = (
    "KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_CONTAINER_NAME", "KAGGLE_DOCKER_IMAGE", "KAGGLE_GCP_ZONE", "KAGGLE_URL_BASE",
)  # fmt: skip
COLAB = ("COLAB_RELEASE_TAG", "COLAB_BACKEND_VERSION", "COLAB_GPU", "TPU_ACCELERATOR_TYPE")
# kaggle_NAME-SESSION-webtier: the number is the id that a session is canceled with (seen in public code, not promised).
_KAGGLE_SESSION = re.compile(r"-(\d+)-[a-z]+\Z")


class Refused(Exception):
    """Nothing was started; the text is for the reader of the cell."""


def claimed(
    url: str, ticket: str, claimant: str, session: Mapping[str, str], policy: Optional[RetryPolicy] = None
) -> Dict[str, Any]:
    """The response to the claim, with its `date`. Raises Refused."""
    if not is_safe(url):
        raise Refused("the address of the supervisor is neither https nor on this machine: %s" % url)
    client, retries = HttpClient(url), Retries(policy or RetryPolicy(CLAIM_FOR_S))
    body = json.dumps({"ticket": ticket, "claimant": claimant, "session": dict(session)}).encode()
    path = urlsplit(url).path.rstrip("/") + "/v1/claims"
    request = Request("POST", path, body, {"Content-Type": "application/json"})
    while True:
        try:
            response = client.call(request)
            if not is_passing(response.status):
                break
            problem = text_of(response)
        except Unreachable as error:
            problem = str(error)
        try:
            retries.wait(problem)
        except Unreachable:
            raise Refused(
                "the session has no network to the supervisor (%s). Where it is off, switch it on: on Kaggle Internet, "
                "in the settings of the notebook, which needs a verified phone number" % problem
            ) from None
    client.close()
    return _claim_of(response)


def _claim_of(response: Response) -> Dict[str, Any]:
    if response.status != 200:
        raise Refused(REFUSED.get(code_of(response)) or "the supervisor refused the claim: %s" % text_of(response))
    try:
        claim = json.loads(response.body)
        parse_launch_id(claim["launch_id"])
        if not isinstance(claim["job"], dict):
            raise TypeError("no job")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("the supervisor's response to the claim cannot be understood") from None
    return {**claim, "date": response.headers.get("date")}


def job_of(claim: Mapping[str, Any], url: str, claimant: str) -> Dict[str, Any]:
    """job.json of the claim. The machine's id is the claimant, unless the provider has named another one."""
    job = {"version": 1, "name": "notebook", "machine_id": claimant, **claim["job"], "shows_beats": True}
    for name in ("run_id", "launch_id"):
        job.setdefault(name, claim.get(name))
    job.setdefault("store_url", "%s%s/%s" % (SCHEME, claim.get("door"), job["run_id"]))
    job.setdefault("server_url", url)
    most_s = job.get("session_max_s")
    if most_s is not None:
        left_s = float(most_s) - session_age_s()
        job["machine_max_s"] = max(LEAST_S, min(left_s, float(job.get("machine_max_s") or left_s)))
    return job


def session_facts(environ: Mapping[str, str]) -> Dict[str, str]:
    """What the platform calls this session; texts for people and for its provider, and never a key."""
    host = os.uname().nodename
    facts = {"platform": "jupyter", "id": host, "host": host, "python": "%d.%d.%d" % sys.version_info[:3]}
    if "KAGGLE_KERNEL_RUN_TYPE" in environ or "KAGGLE_CONTAINER_NAME" in environ:
        match = _KAGGLE_SESSION.search(environ.get("KAGGLE_CONTAINER_NAME", ""))
        facts.update(platform="kaggle", id=match.group(1) if match else "")
    elif any(name in environ for name in COLAB):
        facts["platform"] = "colab"
    for name in (*KAGGLE, *COLAB):
        if environ.get(name):
            facts[name.lower()] = environ[name]
    cards, _ = gpu_facts(None)
    facts["gpus"] = _counted(cards.get("gpus") or ()).replace("×", "x")  # in ASCII
    return {name: value[:FACT_CHARS] for name, value in facts.items() if value}


def session_age_s(proc: str = "/proc") -> float:
    """Since the start of the first process of this container; 0 where that cannot be read."""
    try:
        ticks = int(stat_fields(1, proc)[19])
        up_s = float(read_text(os.path.join(proc, "uptime")).split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, up_s - ticks / os.sysconf("SC_CLK_TCK"))


# --- what the session lacks -------------------------------------------------------------------------------------------


def accelerator_problem(job: Mapping[str, Any]) -> str:
    """ "" where the session has what the job was promised, or where that cannot be read: then the agent counts."""
    promised, model = int(job.get("gpus") or 0), str(job.get("gpu_model") or "")
    facts, unknown = gpu_facts(None) if promised else ({}, "")
    if not promised or unknown:
        return ""
    cards = [str(name) for name in facts.get("gpus") or ()]
    wanted = "%d × %s" % (promised, model or "GPU")
    if not cards:
        return "the session has no GPU, and %s was asked for: choose it for the notebook, or another shape" % wanted
    if len(cards) < promised or not all(model.lower() in name.lower() for name in cards):
        return "the accelerator was not taken: %s was asked for, and the session has %s" % (wanted, _counted(cards))
    return ""


def _counted(cards: Sequence[str]) -> str:
    return ", ".join("%d × %s" % (cards.count(name), name) for name in sorted(set(cards)))


def store_problem(job: Mapping[str, Any], door_pass: DoorPass, policy: Optional[RetryPolicy] = None) -> str:
    """Why the bucket behind the door is out of reach for this session; "" where it is not, or where there is none. The
    door names an address there for an upload, which is never sent. An unavailable store is no such reason: the agent
    waits for it."""
    url = str(job["store_url"])
    if not url.startswith(SCHEME):
        return ""
    door = Door(url[len(SCHEME) :], door_pass, policy or RetryPolicy(PROBE_FOR_S))
    about = {"key": runfiles.folder(str(job["run_id"])) + PROBE, "size": PROBE_BYTES, "if_generation": ABSENT}
    body, headers = json.dumps({**about, "metadata": {}}).encode(), {"Content-Type": "application/json"}
    try:
        response = door.call("looking for the object store", "POST", "/uploads", headers=headers, body=body)
        address = object_of(response, "").get("url") if response.status == 200 else None
        if not isinstance(address, str) or not is_safe(address):
            return ""
        retries = door.retries()
        while True:
            try:
                with door.elsewhere(urljoin(address, "/"), {}):
                    return ""  # whatever it says
            except Unreachable as error:
                wait(retries, "the session has no network to the object store", str(error))
    except StoreUnavailable as error:
        return str(error) if str(error).startswith("the session") else ""
    finally:
        door.close()


def no_start(job: Mapping[str, Any], boot: str, problem: str) -> Beat:
    """The beat of a session that starts nothing, as a start-up script's."""
    return Beat(
        run_id=str(job["run_id"]),
        attempt=parse_launch_id(str(job["launch_id"]))[1],
        launch_id=str(job["launch_id"]),
        machine_id=str(job["machine_id"]),
        boot_id=boot,
        sequence=1,
        phase=heartbeat.BOOT,
        nonce=str(job.get("nonce") or ""),
        left=heartbeat.NO_START,
        message=problem[: heartbeat.MAX_TEXT],
    )


def report(job: Mapping[str, Any], problem: str) -> None:
    """One beat that says why this session leaves."""
    beat = no_start(job, boot_id(), problem)
    text = heartbeat.encode_within(beat, heartbeat.MAX_STORED_BYTES)
    url, retries = str(job["server_url"]), Retries(RetryPolicy(PROBE_FOR_S))
    path = "%s/v1/runs/%s/heartbeat" % (urlsplit(url).path.rstrip("/"), quote(beat.run_id, safe=""))
    client = HttpClient(url)
    with suppress(Unreachable):  # then the supervisor knows from the end of the session
        while True:
            try:
                if client.call(Request("POST", path, text, {"Content-Type": "application/json"})).status == 200:
                    break
                retries.wait("the beat was not taken")
            except Unreachable as error:
                retries.wait(str(error))
    client.close()
