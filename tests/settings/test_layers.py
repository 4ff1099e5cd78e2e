"""The origins of settings: flag, environment, file, old environment file, default; and wrong names."""

from dataclasses import fields
from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.policies import Knobs, Limits, StallLimits
from supervisor.providers.gce import traits as gce
from supervisor.providers.local import traits as local
from supervisor.providers.local.settings import offers
from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired

HOME = {"HOME": "/home/someone"}


def local_offers(known):
    return offers("local", known.kinds["local"])


def load(environ=None, **rest):
    return wired.load(environ={**HOME, **(environ or {})}, **rest)


def test_defaults_need_nothing() -> None:
    known = load()
    assert known.data_dir == Path("/home/someone/.local/state/spot-supervisor")
    assert known.database_url == "sqlite:////home/someone/.local/state/spot-supervisor/supervisor.db"
    assert known.store_url == "file:///home/someone/.local/state/spot-supervisor/objects"
    assert (known.access.host, known.access.port, known.knobs.poll_interval_s) == ("127.0.0.1", 8787, 30.0)
    assert set(known.origins) == set(known.flat)
    assert set(known.origins.values()) == {"default"}
    assert known.warnings == ()


def test_the_state_folder_follows_xdg_but_only_if_it_is_absolute() -> None:
    assert load({"XDG_STATE_HOME": "/var/state"}).data_dir == Path("/var/state/spot-supervisor")
    assert load({"XDG_STATE_HOME": "state"}).data_dir == Path("/home/someone/.local/state/spot-supervisor")


def test_each_layer_wins_over_the_next(tmp_path: Path) -> None:
    file, env_file = tmp_path / "spot.toml", tmp_path / "runner.env"
    file.write_text("poll_interval_s = 3\nstall_polls = 33\nquota_retry_s = 333\nport = 3000\n")
    env_file.write_text("POLL_INTERVAL=400\nPROGRESS_STALL_POLLS=44\nLOG_LEVEL=DEBUG\nRESTART_BACKOFF_SEC=4\n")
    environ = {"SPOT_POLL_INTERVAL_S": "2", "SPOT_PORT": "2000", "SPOT_STALL_POLLS": "22"}
    known = load(environ, flags={"port": "1000", "poll_interval_s": None}, file=file, env_file=env_file)
    found = {name: (known.value(name), known.origins[name]) for name in ("port", "poll_interval_s", "quota_retry_s")}
    assert found == {
        "port": (1000, "flag --port"),
        "poll_interval_s": (2.0, "environment SPOT_POLL_INTERVAL_S"),
        "quota_retry_s": (333.0, f"file {file}"),
    }
    assert (known.stall.polls, known.log.log_level) == (22, "debug")
    assert known.origins["recovery_backoff_s"] == f"env-file {env_file} RESTART_BACKOFF_SEC"


def test_the_short_name_of_the_poll_interval_is_known_and_the_full_one_wins() -> None:
    assert load({"SPOT_POLL_INTERVAL": "1"}).knobs.poll_interval_s == 1.0
    assert load({"SPOT_POLL_INTERVAL": "1", "SPOT_POLL_INTERVAL_S": "2"}).knobs.poll_interval_s == 2.0


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("SPOT_POLL_INTERVL", "SPOT_POLL_INTERVAL"),
        ("SPOT_DATADIR", "SPOT_DATA_DIR"),
        ("SPOT_PROT", "SPOT_PORT"),
        ("SPOT_SILENCE", "SPOT_SILENCE_S"),
        ("SPOT_RUNID", "SPOT_RUN_ID"),
        ("SPOT_LOCAL_ZONE", "SPOT_LOCAL_ZONES"),
    ],
)
def test_a_close_miss_is_refused_with_the_name_that_is_meant(wrong: str, meant: str) -> None:
    with pytest.raises(SettingsRefused, match=f"{wrong} is not a setting; did you mean {meant}"):
        load({wrong: "1"})


def test_another_unknown_name_is_a_warning() -> None:
    known = load({"SPOT_FAVOURITE_COLOUR": "blue", "SPOTLIGHT": "on"})
    assert known.warnings == ("SPOT_FAVOURITE_COLOUR is not a setting of the supervisor and is ignored.",)


def test_the_names_a_training_sees_are_no_settings_and_no_mistakes() -> None:
    environ = dict.fromkeys(settings.OTHER_NAMES, "x")
    assert load(environ) == load()


def test_the_file_must_hold_settings_only(tmp_path: Path) -> None:
    file = tmp_path / "spot.toml"
    for text, message in (
        ("silence = 200", "silence is not a setting; did you mean silence_s"),
        ("[server]\nport = 1", "server is not a setting; `spot config show` lists"),
        ("port = ", "cannot read the settings file"),
    ):
        file.write_text(text)
        with pytest.raises(SettingsRefused, match=message):
            load(file=file)
    with pytest.raises(SettingsRefused, match="cannot read the settings file"):
        load(file=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "65536"), ("PORT", "-1"), ("PORT", "8787.5"), ("POLL_INTERVAL_S", "0"), ("POLL_INTERVAL_S", "nan"),
        ("POLL_INTERVAL_S", "inf"), ("POLL_INTERVAL_S", "1e99"), ("POLL_INTERVAL_S", "-3"), ("POLL_INTERVAL_S", "soon"),
        ("STALL_POLLS", "0"), ("STALL_POLLS", "ten"), ("DATA_DIR", " "), ("LOG_LEVEL", "loud"), ("LOG_FORMAT", "xml"),
        ("ALLOWED_HOSTS", ","), ("INSECURE_LOOPBACK", "maybe"), ("MACHINE_PREFIX", "Spot"),
        ("LOCAL_ZONES", ","), ("LOCAL_ZONES", "a,a"), ("LOCAL_ZONES", "A B"), ("LOCAL_CAPACITY", "local-a"),
        ("LOCAL_CAPACITY", "local-a=-1"), ("LOCAL_CAPACITY", "elsewhere=1"), ("LOCAL_PRICES", "cpu=1"),
        ("LOCAL_PRICES", "cpu=-1/2"), ("LOCAL_PRICES", "cpu=nan/1"), ("LOCAL_PRICES", "gpu=1/2"),
        ("STORE_URL", "gs://bucket"), ("STORE_URL", "file://relative"), ("DATABASE_URL", "mysql://h/db"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsRefused, match=name.lower()):
        load({f"SPOT_{name}": value})


def test_a_refusal_does_not_repeat_a_possible_secret() -> None:
    with pytest.raises(SettingsRefused) as refused:
        load({"SPOT_DATABASE_URL": "postgres://u:hunter2@h/db\x00"})
    assert "hunter2" not in str(refused.value)


def test_zones_shapes_capacity_and_prices_make_the_offers() -> None:
    known = load(
        {
            "SPOT_LOCAL_ZONES": "z-1, z-2",
            "SPOT_LOCAL_SHAPES": "big small",
            "SPOT_LOCAL_CAPACITY": "z-1=0 z-2=2",
            "SPOT_LOCAL_PRICES": "big=0.5/2",
        }
    )
    assert known.value("local_capacity") == {"z-1": 0, "z-2": 2}
    offers = [(o.placement.spot, o.placement.shape, o.placement.zone, o.price_usd_per_h) for o in local_offers(known)]
    assert offers == [
        (True, "big", "z-1", 0.5), (True, "big", "z-2", 0.5), (True, "small", "z-1", 0.0), (True, "small", "z-2", 0.0),
        (False, "big", "z-1", 2.0), (False, "big", "z-2", 2.0), (False, "small", "z-1", 0.0),
        (False, "small", "z-2", 0.0),
    ]  # fmt: skip


def test_tables_of_the_file_mean_the_same_as_the_text_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "spot.toml"
    file.write_text(
        'local_zones = ["a", "b"]\n[local_capacity]\na = 1\n[local_prices]\ncpu = [0.1, 0.3]\n', encoding="utf-8"
    )
    by_file = load(file=file)
    by_text = load({"SPOT_LOCAL_ZONES": "a,b", "SPOT_LOCAL_CAPACITY": "a=1", "SPOT_LOCAL_PRICES": "cpu=0.1/0.3"})
    assert local_offers(by_file) == local_offers(by_text)
    assert by_file.value("local_capacity") == by_text.value("local_capacity") == {"a": 1}


def test_the_defaults_of_limits_are_those_of_the_domain() -> None:
    """RULES section 4 is in the domain; another default here would be a second truth."""
    known = load()
    assert (known.knobs, known.stall, known.limits) == (Knobs(""), StallLimits(), Limits())


def test_each_knob_reaches_the_decisions() -> None:
    for field in fields(Knobs):
        if field.name not in ("supervisor_id", "machine_prefix"):
            known = load({settings.env_name(field.name): "61", "SPOT_SILENCE_S": "183", "SPOT_COOLDOWN_MIN_S": "1"})
            assert getattr(known.knobs, field.name) == (1 if field.name == "cooldown_min_s" else 61)
    assert load({"SPOT_MACHINE_PREFIX": "demo"}).knobs.machine_prefix == "demo"


def test_the_log_pace_is_fast_on_this_computer_unless_it_is_set() -> None:
    assert settings.agent_paces(load(), local.TRAITS)["log_chunk_s"] == 1.0
    assert settings.agent_paces(load(), gce.TRAITS)["log_chunk_s"] == 300.0
    assert settings.agent_paces(load({"SPOT_LOG_CHUNK_S": "20"}), local.TRAITS)["log_chunk_s"] == 20.0


def test_this_computer_waits_for_no_gpu() -> None:
    assert settings.gpu_timeout_s(load(), local.TRAITS) == 0.0
    assert settings.gpu_timeout_s(load(), gce.TRAITS) == 1200.0
