"""The settings of alerts: accepted addresses, secrets in files, and that neither is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from supervisor.cli.server.server import config
from supervisor.domain.errors import SettingsRefused
from supervisor.ports.notifier import Form
from supervisor.settings import loading as settings
from supervisor.wiring import outlets
from supervisor.wiring import settings as wired

URL = "https://discord.com/api/webhooks/1/hunter2"


def load(**environ: str) -> settings.Settings:
    return wired.load(environ={"HOME": "/h", **environ})


@pytest.mark.parametrize(
    "url", ["http://example.org/x", "ftp://example.org", "https://u:hunter2@example.org/", "hunter2", "https://h:x/"]
)
def test_an_unsafe_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingsRefused, match="alert_url: expected https://HOST/PATH") as caught:
        load(SPOT_ALERT_URL=url)
    assert "hunter2" not in str(caught.value)


def test_with_an_address_announcements_have_one_more_way() -> None:
    assert outlets.CHANNELS == ("log", "webhooks")
    assert outlets.alert_target(load()) is None
    target = outlets.alert_target(load(SPOT_ALERT_URL=URL))
    assert target is not None
    assert (target.url, target.form, target.trusted) == (URL, Form.DISCORD, True)
    assert "hunter2" not in repr(target)
    assert outlets.alert_way(load(), "me") is None


@pytest.mark.parametrize("hosts", ["Example.org", "a b/", "a:b", "a:123456", "http://a"])
def test_a_host_that_cannot_be_meant_so_is_refused(hosts: str) -> None:
    with pytest.raises(SettingsRefused, match="webhook_allow_hosts"):
        load(SPOT_WEBHOOK_ALLOW_HOSTS=hosts)


def test_hosts_may_have_a_port() -> None:
    known = load(SPOT_WEBHOOK_ALLOW_HOSTS="127.0.0.1:9000, hooks.corp")
    assert known.alerts.webhook_allow_hosts == ("127.0.0.1:9000", "hooks.corp")
    assert load().alerts.webhook_allow_hosts == ()


def test_the_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    known = load(SPOT_ALERT_URL=URL, SPOT_ALERT_SECRET=f"file:{file}")
    with pytest.raises(SettingsRefused, match="cannot be read: No such file"):
        outlets.alert_way(known, "me")
    file.write_text("\n")
    with pytest.raises(SettingsRefused, match="is empty"):
        outlets.alert_way(known, "me")
    file.write_text("whsec_c2VjcmV0\n")
    assert outlets.alert_way(known, "me") is not None


def test_a_secret_that_cannot_be_meant_so_is_refused() -> None:
    with pytest.raises(SettingsRefused, match="must continue in base64"):
        outlets.alert_way(load(SPOT_ALERT_URL=URL, SPOT_ALERT_SECRET="whsec_ä"), "me")
    with pytest.raises(SettingsRefused, match="file: needs the whole path"):
        load(SPOT_ALERT_SECRET="file:here")


@pytest.mark.parametrize("arguments", [["show"], ["show", "--origin"], ["show", "-o", "json"]])
def test_config_show_shows_only_the_host(arguments: list[str]) -> None:
    environ = {"SPOT_ALERT_URL": URL, "SPOT_ALERT_SECRET": "s3cr3t"}
    result = CliRunner().invoke(config, arguments, env=environ)
    assert result.exit_code == 0
    assert "https://discord.com/***" in result.output
    assert "hunter2" not in result.output
    assert "s3cr3t" not in result.output
