"""The bills of hosts by SSH: a command, a webhook or a person stops them, and a command may read that they have ended.

Commands run on the supervisor's computer, not on the host: a host cannot stop its own bill, and one that is gone cannot
be asked. No shell reads their words; `{host}` and `{verb}` are replaced inside of a word. A command gets the
environment of the service without its own settings, because the tool of a rental finds its key there.

A webhook is a message in the standard form, with one id for all repeats: a receiver can drop what it has seen.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from supervisor.domain.machines import How, MachineRef, Meter
from supervisor.domain.profile import UNKNOWN, By, Fact, Profile, Source, merge
from supervisor.domain.texts import clause, visible
from supervisor.machinefolder import secrets
from supervisor.ports.notifier import DeliveryFailed, Notification
from supervisor.ports.opening import Hook
from supervisor.ports.provider import MeterFailed, ProviderUnavailable
from supervisor.providers.ssh.presets import GENERIC, of_user, preset
from supervisor.providers.ssh.settings import NO_DAY, NO_METER, SshSettings, meter_of

COMMAND_S = 50.0
TEXT_MAX, OUTPUT_BYTES = 200, 4096
HOST_WORD, VERB_WORD = "{host}", "{verb}"
UNPRICED = "if it costs nothing, say so: ssh_meters = HOST=none; else set ssh_prices"
GIVE_BACK = "give back"  # where the profile of the hosts names no verb
STOP_KIND = "stop_meter"  # the type of the message is run.stop_meter


class SshMeters:
    """Meters of ports/provider.py. `hook`: sends the message of a webhook."""

    def __init__(self, s: SshSettings, hook: Hook) -> None:
        self._settings, self._hook = s, hook
        profile = merge(preset(s.ssh_preset), of_user(s.ssh_facts, NO_DAY))
        self.by_zone: Mapping[str, Meter] = {
            host: _meter(s, how, profile) for host in s.ssh_hosts if (how := meter_of(s, host)) is not None
        }

    def stop(self, ref: MachineRef, verb: str, run_id: str) -> str:
        meter = self._meter(ref)
        if meter.how is How.COMMAND:
            code, text = _run("ssh_meter_command", self._settings.ssh_meter_command, ref.zone, verb)
            if code != 0:
                raise MeterFailed(text)
            return text
        if meter.how is How.WEBHOOK:
            return self._post(ref, verb, run_id)
        raise MeterFailed(f"a person stops the bill of {ref.zone}")

    def read(self, ref: MachineRef, verb: str) -> tuple[bool, str]:
        self._meter(ref)
        code, text = _run("ssh_meter_confirm", self._settings.ssh_meter_confirm, ref.zone, verb)
        return code != 0, text

    def _meter(self, ref: MachineRef) -> Meter:
        meter = self.by_zone.get(ref.zone)
        if meter is None:
            raise ProviderUnavailable(f"the settings name no way to stop the bill of {ref.zone}")
        return meter

    def _post(self, ref: MachineRef, verb: str, run_id: str) -> str:
        reference = self._settings.ssh_meter_secret
        try:
            secret = secrets.read(reference).strip() if reference else ""
        except secrets.SecretUnreadable as error:
            raise MeterFailed(f"ssh_meter_secret: {error}") from None
        number = int.from_bytes(hashlib.sha256(f"{ref.name}/{verb}".encode()).digest()[:6], "big")
        details = {"host": ref.zone, "verb": verb, "machine": ref.name, "provider": ref.provider}
        text = f"Stop the bill of {ref.zone}: {verb}."
        message = Notification(number, 0, run_id, STOP_KIND, text, time.time(), details)
        try:
            status = self._hook(self._settings.ssh_meter_webhook, secret, message)
        except (DeliveryFailed, ValueError) as error:
            raise MeterFailed(str(error)) from None
        return f"HTTP {status}"


def _meter(s: SshSettings, how: How, profile: Profile) -> Meter:
    """A command that does not get the verb does only the usual one."""
    usual = profile.meter_stop.value or GIVE_BACK
    others = tuple(verb.verb for verb in profile.verbs if verb.verb != usual)
    if how is How.COMMAND and not any(VERB_WORD in word for word in s.ssh_meter_command):
        others = ()
    return Meter(how, usual, (usual, *others), confirms=bool(s.ssh_meter_confirm))


def with_meter(profile: Profile, s: SshSettings, hosts: Sequence[str], on: str) -> Profile:
    """The profile as the settings say: who gives these hosts back, or that nobody is billed for them. Unchanged where
    they differ in that. `on`: the day of the settings, YYYY-MM-DD."""
    hows = {meter_of(s, host) for host in hosts}
    if len(hows) != 1:
        return profile
    how = hows.pop()
    if how is not None:
        meter = _meter(s, how, profile)
        verbs = (replace(verb, by=_BY[how] if verb.verb in meter.verbs else By.PERSON) for verb in profile.verbs)
        return replace(profile, verbs=tuple(verbs))
    if all(s.ssh_meters.get(host) == NO_METER for host in hosts):
        stays = Fact(False, Source.USER, on, "ssh_meters: the host stays")
        return replace(profile, meter_stop=Fact("", Source.USER, on, "ssh_meters"), irreversible=stays, verbs=())
    priced = any(host in s.ssh_prices for host in hosts)
    if priced or s.ssh_preset != GENERIC or "meter_stop" in s.ssh_facts:
        return profile
    return replace(profile, meter_stop=Fact(None, note=UNPRICED), irreversible=UNKNOWN)


_BY = {How.COMMAND: By.COMMAND, How.WEBHOOK: By.WEBHOOK, How.ASK: By.PERSON}


def _run(setting: str, argv: Sequence[str], host: str, verb: str) -> tuple[int, str]:
    """(exit code, the code with the last line of the output). Raises MeterFailed where it gives no exit code. The
    output goes to a file: a pipe would stay open as long as anything that the command has left behind."""
    if not argv:
        raise MeterFailed(f"{setting} is not in the settings")
    words = [word.replace(HOST_WORD, host).replace(VERB_WORD, verb) for word in argv]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        except OSError as error:
            raise MeterFailed(f"{words[0]} cannot be started: {error.strerror}") from None
        try:
            code = process.wait(COMMAND_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise MeterFailed(f"{words[0]} has not ended within {COMMAND_S:g} s") from None
        if code < 0:
            raise MeterFailed(f"{words[0]} was ended by signal {-code}")
        output.seek(max(0, output.tell() - OUTPUT_BYTES))
        lines = output.read(OUTPUT_BYTES).decode("utf-8", "replace").strip().splitlines()
    last = f": {clause(visible(lines[-1][:TEXT_MAX]))}" if lines else ""
    return code, f"exit code {code}{last}"
