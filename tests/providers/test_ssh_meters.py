"""Who stops the bill of a host by SSH: settings, commands without a shell, and a signed webhook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.machines import How, MachineRef
from supervisor.domain.profile import By, Profile, Source
from supervisor.host import processes
from supervisor.ports.opening import no_hook
from supervisor.ports.provider import MeterFailed, ProviderUnavailable
from supervisor.providers.ssh import meters, settings
from supervisor.providers.ssh.make import KIND
from supervisor.providers.ssh.meters import SshMeters, with_meter
from supervisor.providers.ssh.presets import preset
from supervisor.providers.ssh.settings import SshSettings, meter_of
from supervisor.settings.values import parse
from supervisor.wiring.outlets import send_hook
from supervisor.wording.profile import clock_texts
from tests.cloud.web import Request, Response, WebServer
from tests.waiting import wait_for

REF = MachineRef("lab", "gpu1", "m-1", "id-1")
ARGS = "import sys; print(sys.argv[1:])"


def of(**values: object) -> SshMeters:
    s = SshSettings(**{"ssh_hosts": ("gpu1",), **values})  # type: ignore[arg-type]
    settings.check(s)
    return SshMeters(s, no_hook)


def commanded(*words: str, **values: object) -> SshMeters:
    return of(ssh_meter_command=words, ssh_meter_confirm=words, **values)


@pytest.mark.parametrize(
    ("values", "how"),
    [
        ({}, None),
        ({"ssh_preset": "runpod"}, How.ASK),
        ({"ssh_meter_command": ("stop",)}, How.COMMAND),
        ({"ssh_meter_webhook": "https://hooks.example.org/x"}, How.WEBHOOK),
        ({"ssh_meter_command": ("stop",), "ssh_meters": {"gpu1": "ask"}}, How.ASK),
        ({"ssh_preset": "runpod", "ssh_meters": {"gpu1": "none"}}, None),
    ],
)
def test_who_stops_the_bill_of_a_host(values: dict[str, object], how: How | None) -> None:
    s = SshSettings(ssh_hosts=("gpu1", "gpu2"), **values)  # type: ignore[arg-type]
    settings.check(s)
    assert meter_of(s, "gpu1") is how
    assert set(SshMeters(s, no_hook).by_zone) >= ({"gpu1"} if how else set())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"ssh_meters": {"gpu9": "ask"}}, "gpu9"),
        ({"ssh_meters": {"gpu1": "command"}}, "gpu1 = command needs ssh_meter_command"),
        ({"ssh_meters": {"gpu1": "webhook"}}, "gpu1 = webhook needs ssh_meter_webhook"),
        ({"ssh_meter_webhook": "http://hooks.example.org"}, "ssh_meter_webhook: expected https://"),
        ({"ssh_meter_secret": "hunter2"}, "expected env:NAME or file:/PATH"),
    ],
)
def test_what_could_not_stop_a_bill_is_refused(values: dict[str, object], text: str) -> None:
    with pytest.raises(SettingsRefused, match=text) as refusal:
        of(**values)
    assert "hunter2" not in str(refusal.value)


def test_a_command_is_a_list_of_words_or_a_text_that_is_split_like_one() -> None:
    read = partial(parse, "ssh_meter_command", KIND.fields["ssh_meter_command"], origin="file", rules=KIND.rules)
    assert read(raw=["stop", "{host}", "a b"]) == ("stop", "{host}", "a b")
    assert read(raw="stop {host} 'a b'") == ("stop", "{host}", "a b")
    for wrong in (7, ["stop", 7], "stop 'a", {"stop": "x"}):
        with pytest.raises(SettingsRefused, match="the words of a command"):
            read(raw=wrong)


def test_the_verbs_are_those_of_the_profile_and_a_command_without_the_verb_has_one_way() -> None:
    assert of(ssh_preset="runpod").by_zone["gpu1"].verbs == ("terminate", "stop")
    assert commanded("pod", "{verb}", "{host}", ssh_preset="runpod").by_zone["gpu1"].verbs == ("terminate", "stop")
    fixed = commanded("pod", "{host}", ssh_preset="runpod").by_zone["gpu1"]
    assert (fixed.verbs, fixed.verb, fixed.confirms) == (("terminate",), "terminate", True)
    assert not of(ssh_meter_command=("pod",)).by_zone["gpu1"].confirms
    assert of(ssh_meter_command=("pod",)).by_zone["gpu1"].verb == "give back", "of a box that nobody knows"
    known = of(ssh_preset="runpod", ssh_facts={"meter_stop": "stop"}).by_zone["gpu1"]
    assert (known.verb, known.verbs) == ("stop", ("stop", "terminate")), "the user knows better"


def test_host_and_verb_are_words_that_no_shell_reads() -> None:
    words = (sys.executable, "-c", ARGS, "{host}", "pod/{host}", "{verb}", "$(id); `id`", "*")
    text = commanded(*words).stop(REF, "shut down; rm -rf /", "digits")
    assert text == "exit code 0: ['gpu1', 'pod/gpu1', 'shut down; rm -rf /', '$(id); `id`', '*']"


def test_the_command_gets_the_environment_without_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_ALERT_SECRET", "ours")
    monkeypatch.setenv("POD_API_KEY", "theirs")
    program = "import os; print('SPOT_ALERT_SECRET' in os.environ, os.environ['POD_API_KEY'], os.read(0, 1))"
    assert commanded(sys.executable, "-c", program).stop(REF, "x", "digits") == "exit code 0: False theirs b''"


def test_an_exit_code_of_a_verb_is_a_failure_and_of_a_read_an_answer() -> None:
    bad = commanded("/bin/sh", "-c", "echo first; echo no such pod >&2; exit 3")
    with pytest.raises(MeterFailed, match="exit code 3: no such pod"):
        bad.stop(REF, "x", "digits")
    assert bad.read(REF, "x") == (True, "exit code 3: no such pod")
    assert commanded("/bin/true").read(REF, "x") == (False, "exit code 0")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("/nowhere/stop",), "/nowhere/stop cannot be started: No such file"),
        (("/bin/sh", "-c", "kill -9 $$"), "was ended by signal 9"),
        (("/bin/sleep", "3600"), "has not ended within 0.3 s"),
    ],
)
def test_what_gives_no_exit_code_was_not_read(
    words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "COMMAND_S", 0.3)
    for call in (commanded(*words).read, partial(commanded(*words).stop, run_id="digits")):
        with pytest.raises(MeterFailed, match=text):
            call(REF, "x")


def test_a_command_that_left_the_settings_is_named() -> None:
    with pytest.raises(MeterFailed, match="ssh_meter_confirm is not in the settings"):
        of(ssh_meter_command=("/bin/true",)).read(REF, "x")


def test_a_command_at_its_deadline_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "COMMAND_S", 1.0)
    file = tmp_path / "pid"
    with pytest.raises(MeterFailed, match="has not ended"):
        commanded("/bin/sh", "-c", f"sleep 3600 & echo $! > {file}; wait").stop(REF, "x", "digits")
    pid = int(file.read_text())
    wait_for(lambda: (found := processes.read(pid)) is None or not found.alive, what="the child to end")


def test_a_command_that_leaves_something_behind_is_over_when_it_ends() -> None:
    """A pipe would stay open as long as the child does."""
    began = time.monotonic()
    assert commanded("/bin/sh", "-c", "sleep 5 & echo started").stop(REF, "x", "digits") == "exit code 0: started"
    assert time.monotonic() - began < 4


def test_hidden_characters_of_a_command_are_shown() -> None:
    assert "exit code 0: a⟨U+001B⟩[31mb" in commanded("/usr/bin/printf", "a\\033[31mb\\n").stop(REF, "x", "digits")


# --- the webhook ------------------------------------------------------------------------------------------------------


class Receiver:
    def __init__(self) -> None:
        self.answer = Response(202)
        self.requests: list[Request] = []
        self.server = WebServer(self._take)

    def _take(self, request: Request) -> Response:
        self.requests.append(request)
        return self.answer


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.close()


def hooked(receiver: Receiver, **values: object) -> SshMeters:
    s = SshSettings(ssh_hosts=("gpu1",), ssh_meter_webhook=receiver.server.url + "/stop/hunter2", **values)  # type: ignore[arg-type]
    return SshMeters(s, partial(send_hook, "sup"))


def test_the_webhook_is_signed_and_has_one_id_for_all_repeats(receiver: Receiver, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("any old text\n")
    secret.chmod(0o600)
    meter = hooked(receiver, ssh_meter_secret=f"file:{secret}")
    assert meter.stop(REF, "terminate", "digits") == "HTTP 202"
    meter.stop(REF, "terminate", "digits")
    meter.stop(replace(REF, name="m-2"), "terminate", "digits")
    first, again, other = receiver.requests
    body = Webhook(b"any old text").verify(first.body, dict(first.headers))
    assert (body["type"], body["data"]["run_id"]) == ("run.stop_meter", "digits")
    details = {"host": "gpu1", "verb": "terminate", "machine": "m-1", "provider": "lab"}
    assert body["data"]["details"] == details
    ids = [request.headers["webhook-id"] for request in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


def test_a_webhook_that_is_not_accepted_was_not_carried_out(receiver: Receiver) -> None:
    receiver.answer = Response(500)
    with pytest.raises(MeterFailed, match=r"HTTP 500 from 127\.0\.0\.1") as failure:
        hooked(receiver).stop(REF, "terminate", "digits")
    assert "hunter2" not in str(failure.value)
    with pytest.raises(MeterFailed, match="ssh_meter_secret: NOT_SET is not set"):
        hooked(receiver, ssh_meter_secret="env:NOT_SET").stop(REF, "terminate", "digits")
    assert "NOT_SET" not in os.environ


def test_a_host_without_a_meter_is_not_stopped() -> None:
    with pytest.raises(ProviderUnavailable, match="no way to stop the bill of gpu9"):
        commanded("/bin/true").stop(replace(REF, zone="gpu9"), "x", "digits")
    with pytest.raises(MeterFailed, match="a person stops the bill of gpu1"):
        of(ssh_preset="runpod").stop(REF, "terminate", "digits")


def box(host: str = "", **values: object) -> Profile:
    """The profile of this provider, or of one host."""
    s = SshSettings(**{"ssh_hosts": ("gpu1", "gpu2"), **values})  # type: ignore[arg-type]
    settings.check(s)
    return with_meter(preset(s.ssh_preset), s, [host] if host else s.ssh_hosts, "2026-11-26")


def dangers(profile: Profile) -> list[str]:
    return clock_texts(profile, None)


def test_a_box_of_ones_own_is_not_said_to_be_billed() -> None:
    asked = "if it costs nothing, say so: ssh_meters = HOST=none; else set ssh_prices"
    assert dangers(box()) == [f"It is unknown whether it is billed; {asked}."]
    free = box(ssh_meters={"gpu1": "none", "gpu2": "none"})
    assert (dangers(free), free.verbs, free.meter_stop.source) == ([], (), Source.USER)
    assert dangers(box("gpu1", ssh_meters={"gpu1": "none"})) == []
    priced = box(ssh_prices={"gpu1": "1.2"})
    assert dangers(priced)[0].startswith("Bills, at an unknown price, until you end it (give back)")


def test_the_verbs_name_who_does_them() -> None:
    def by(profile: Profile) -> dict[str, By | None]:
        return {verb.verb: verb.by for verb in profile.verbs}

    person, command = By.PERSON, By.COMMAND
    assert by(box(ssh_preset="runpod")) == {"terminate": person, "stop": person}
    fixed = {"ssh_preset": "runpod", "ssh_meter_command": ("pod", "{host}")}
    assert by(box(**fixed)) == {"terminate": command, "stop": person}, "it does only the usual one"
    assert by(box(**{**fixed, "ssh_meter_command": ("{verb}",)})) == {"terminate": command, "stop": command}
    hook = box(ssh_preset="runpod", ssh_meter_webhook="https://hooks.example.org/x")
    assert by(hook) == {"terminate": By.WEBHOOK, "stop": By.WEBHOOK}
    mixed = {**fixed, "ssh_meters": {"gpu2": "ask"}}
    assert by(box(**mixed)) == by(preset("runpod")), "each host says its own"
    assert by(box("gpu2", **mixed)) == {"terminate": person, "stop": person}
