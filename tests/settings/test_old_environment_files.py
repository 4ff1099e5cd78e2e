"""Environment files of the older runner: every known key, its timeout rule, and lines that are not KEY=value."""

from pathlib import Path

import pytest

from supervisor.domain.errors import InvalidTimeouts, SettingsRefused
from supervisor.settings import loading as settings
from supervisor.settings.env import file as settings_env_file
from supervisor.wiring import settings as wired

# Every key of the older runner, with a value that it accepts.
ALL_KEYS = {
    "PROJECT": "my-project", "REGION": "us-east1", "SA": "worker@my-project", "IMAGE": "registry/image:1",
    "BUCKET": "my-bucket", "ZONE": "us-east1-c", "FALLBACK_ZONES": "(us-east1-b us-east1-c us-east1-d)",
    "MACHINE_TYPE": "n1-standard-8", "GPU_TYPE": "nvidia-tesla-t4", "BOOT_DISK_SIZE": "100", "GPU_TIMEOUT_SEC": "1200",
    "MAX_RUNTIME_SEC": "172800", "POLL_INTERVAL": "120", "HEARTBEAT_STALE_SEC": "600", "HEARTBEAT_STALE_MAX": "3",
    "PROGRESS_STALL_POLLS": "10", "MAX_RESTARTS": "3", "RESTART_BACKOFF_SEC": "60",
    "WALL_CLOCK_DEADLINE": "2030-01-01T00:00:00Z", "DEADLINE_TZ": "America/New_York",
    "OWNER_LOCK_STALE_SEC": "300", "METADATA_PREFIX": "spot",
    "RUNNER_LABEL": "spot-runner", "CONTAINER_NAME": "training", "CONDA_ENV": "base", "SYNC_INTERVAL_SEC": "180",
    "DISCORD_WEBHOOK_URL": "https://example.org/hook", "NOTIFY_SECRET": "projects/p/secrets/hook/versions/latest",
    "LOG_LEVEL": "INFO",
    "DATA_DISK_ENABLED": "true", "DATA_DISK_NAME": "d", "DATA_DISK_SIZE_GB": "500", "DATA_DISK_TYPE": "pd-ssd",
    "DATA_DISK_DEVICE_NAME": "spot-data", "DATA_DISK_MOUNT_PATH": "/data", "DATA_DISK_FS_TYPE": "ext4",
    "RUNNER_DIR": "/opt/runner", "JOB_COMMAND": "python train.py",
}  # fmt: skip
CLOUD = {
    "PROJECT": ("gce_project", "my-project"),
    "SA": ("gce_service_account", "worker@my-project"),
    "IMAGE": ("default_image", "registry/image:1"),
    "BUCKET": ("store_url", "gs://my-bucket"),
    "ZONE": ("gce_zones", ("us-east1-c", "us-east1-b", "us-east1-d")),
    "FALLBACK_ZONES": ("gce_zones", ("us-east1-c", "us-east1-b", "us-east1-d")),
    "MACHINE_TYPE": ("gce_shapes", {"t4": "n1-standard-8+1xnvidia-tesla-t4"}),
    "GPU_TYPE": ("gce_shapes", {"t4": "n1-standard-8+1xnvidia-tesla-t4"}),
    "BOOT_DISK_SIZE": ("gce_boot_disk_gb", 100),
    "DATA_DISK_ENABLED": ("gce_data_disk", "d"),
    "DATA_DISK_NAME": ("gce_data_disk", "d"),
    "DATA_DISK_SIZE_GB": ("gce_data_disk_gb", 500),
    "DATA_DISK_TYPE": ("gce_data_disk_type", "pd-balanced"),  # of a new disk: this one is there already
    "DATA_DISK_MOUNT_PATH": ("gce_data_disk_mount", "/data"),
    "DATA_DISK_FS_TYPE": ("gce_data_disk_fs", "ext4"),
}
MAPPED = {
    "GPU_TIMEOUT_SEC": ("gpu_timeout_s", 1200.0),
    "MAX_RUNTIME_SEC": ("max_runtime_s", 172800.0),
    "POLL_INTERVAL": ("poll_interval_s", 120.0),
    "HEARTBEAT_STALE_SEC": ("silence_s", 600.0),
    "PROGRESS_STALL_POLLS": ("stall_polls", 10),
    "MAX_RESTARTS": ("max_attempts", 4),
    "RESTART_BACKOFF_SEC": ("recovery_backoff_s", 60.0),
    "LOG_LEVEL": ("log_level", "info"),
    "DISCORD_WEBHOOK_URL": ("alert_url", "https://example.org/hook"),
}


def load(tmp_path: Path, text: str) -> settings.Settings:
    env_file = tmp_path / "runner.env"
    env_file.write_text(text, encoding="utf-8")
    return wired.load(environ={"HOME": "/h"}, env_file=env_file)


@pytest.mark.parametrize("key", [key for key in ALL_KEYS if key != "PROJECT"])
def test_every_key_is_mapped_or_left_out_with_its_reason(key: str, tmp_path: Path) -> None:
    value = ALL_KEYS[key]
    quoted = value if value.startswith("(") else f'"{value}"'
    # The older rule ties this key to the stall window, whose default is too short for it.
    tied = "PROGRESS_STALL_POLLS=10\n" if key == "GPU_TIMEOUT_SEC" else ""
    known = load(tmp_path, f"{key}={quoted}\n{tied}")
    entry = settings_env_file.OLD_KEYS[key]
    assert entry.reason
    if key in MAPPED:
        setting, expected = MAPPED[key]
        assert entry.setting == setting
        assert known.value(setting) == expected
        assert known.origins[setting].endswith(f"runner.env {key}")
        assert known.warnings == ()
    else:
        reason = entry.reason
        if key in CLOUD:
            assert entry.setting == CLOUD[key][0]
            reason = "it describes Google Cloud machines, and the file names no PROJECT"
        else:
            assert entry.setting is None
        (warning,) = known.warnings
        assert f"line 1: {key} is left out: {reason}" in warning
        assert set(known.origins.values()) == {"default"}


def test_the_table_holds_no_key_that_is_not_tried_above() -> None:
    assert set(settings_env_file.OLD_KEYS) - {"BOOT_DISK_TYPE"} == set(ALL_KEYS)


def test_a_whole_file(tmp_path: Path) -> None:
    known = load(tmp_path, "".join(f"{k}={v if v.startswith('(') else repr(v)}\n" for k, v in ALL_KEYS.items()))
    mapped = MAPPED | CLOUD
    assert {setting: known.value(setting) for setting, _ in mapped.values()} == dict(mapped.values())
    assert known.stall.boot_timeout_s == 1500.0
    assert known.provider == "gce"
    assert len(known.warnings) == len(ALL_KEYS) - len(mapped)


def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, "\n\nMY_OWN_KEY=1\n").warnings
    assert "line 3: MY_OWN_KEY is not a known key and is ignored" in warning


def test_an_empty_value_is_no_value(tmp_path: Path) -> None:
    known = load(tmp_path, 'POLL_INTERVAL=\nWALL_CLOCK_DEADLINE=""\n')
    assert (known.knobs.poll_interval_s, known.warnings) == (30.0, ())


def test_a_secret_of_the_file_is_shown_nowhere(tmp_path: Path) -> None:
    known = load(tmp_path, "NOTIFY_SECRET=hunter2\nDISCORD_WEBHOOK_URL=https://example.org/hunter2\n")
    assert "hunter2" not in repr(known)


@pytest.mark.parametrize(
    ("text", "boot_timeout_s"),
    [
        ("GPU_TIMEOUT_SEC=1200\nPOLL_INTERVAL=120\nPROGRESS_STALL_POLLS=10", 1500.0),
        ("GPU_TIMEOUT_SEC=600\nPOLL_INTERVAL=120\nPROGRESS_STALL_POLLS=6", 900.0),
        ("GPU_TIMEOUT_SEC=600\nPOLL_INTERVAL=120\nPROGRESS_STALL_POLLS=20", 2400.0),
        # For the rule, missing values are the older runner's own defaults: 120 s, 6 polls, 600 s.
        ("POLL_INTERVAL=100", 1500.0),
        ("PROGRESS_STALL_POLLS=10\nGPU_TIMEOUT_SEC=1200", 1500.0),
        ("LOG_LEVEL=INFO", 1500.0),
    ],
)
def test_the_boot_limit_follows_from_the_old_timeouts(tmp_path: Path, text: str, boot_timeout_s: float) -> None:
    known = load(tmp_path, text)
    assert known.stall.boot_timeout_s == boot_timeout_s


@pytest.mark.parametrize(
    ("text", "product", "gpu"),
    [
        ("POLL_INTERVAL=120\nPROGRESS_STALL_POLLS=6\nGPU_TIMEOUT_SEC=1200", "120 x 6 = 720 s", "1200 s"),
        ("GPU_TIMEOUT_SEC=1200", "120 x 6 = 720 s", "1200 s"),
        ("POLL_INTERVAL=30", "30 x 6 = 180 s", "600 s"),
    ],
)
def test_a_stall_window_shorter_than_the_gpu_timeout_is_refused(
    tmp_path: Path, text: str, product: str, gpu: str
) -> None:
    with pytest.raises(InvalidTimeouts) as refused:
        load(tmp_path, text)
    assert product in refused.value.detail
    assert f"GPU_TIMEOUT_SEC = {gpu}" in refused.value.detail


def test_quotes_arrays_comments_and_export_are_read_without_a_shell() -> None:
    text = """
    # a comment with 'an open quote
    export PROJECT=one   # behind it
    REGION='two # not a comment $HOME'
    SA="three \\" and \\$4"; IMAGE=a'b'"c"\\ d#e
    FALLBACK_ZONES=(us-east1-b  # why
      "us-east1 c"
      us-east1-d)
    set -euo pipefail
    JOB_COMMAND="line one
    line two"
    BUCKET=
    ZONE=$(gcloud config get-value zone)
    """
    heard: list[tuple[int, str]] = []
    lines = settings_env_file.parse(text, lambda number, what: heard.append((number, what)))
    found = {line.key: line.value for line in lines}
    assert found["PROJECT"] == "one"
    assert found["REGION"] == "two # not a comment $HOME"
    assert found["SA"] == 'three " and $4'
    assert found["IMAGE"] == "abc d#e"
    assert found["FALLBACK_ZONES"] == "us-east1-b us-east1 c us-east1-d"
    assert found["JOB_COMMAND"].split("\n")[0] == "line one"
    assert found["BUCKET"] == ""
    assert [line.key for line in lines if line.shell] == ["ZONE"]
    assert heard[0] == (9, "not KEY=value; ignored, nothing here is run.")


@pytest.mark.parametrize("value", ["$HOME", "`id`", '"${X:-5}"', "$(touch /tmp/never)"])
def test_a_mapped_key_that_needs_a_shell_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingsRefused, match="line 1: the value of POLL_INTERVAL needs a shell"):
        load(tmp_path, f"POLL_INTERVAL={value}\n")


@pytest.mark.parametrize("text", ["ZONE='open\n", "FALLBACK_ZONES=(a b\n", 'X="\\"'])
def test_text_that_never_closes_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsRefused, match="is not closed"):
        load(tmp_path, text)


def test_a_number_that_is_none_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="line 1: MAX_RESTARTS is not a whole number"):
        load(tmp_path, "MAX_RESTARTS=many")
    with pytest.raises(SettingsRefused, match=r"poll_interval_s \(env-file .*POLL_INTERVAL\)"):
        load(tmp_path, "POLL_INTERVAL=often")


def test_keys_further_up_are_filled_in_and_nothing_else_is() -> None:
    text = """
    PROJECT=p
    REGION="us-east1"
    IMAGE="${REGION}-docker.pkg.dev/$PROJECT/rav/train:latest"
    SA=worker@${PROJECT}.iam.gserviceaccount.com
    FALLBACK_ZONES=("${REGION}-b" $REGION-c)
    BUCKET='$PROJECT'
    ZONE=$LATER
    LATER=x
    MACHINE_TYPE=$(id)
    GPU_TYPE=$MACHINE_TYPE
    """
    lines = {line.key: line for line in settings_env_file.parse(text, lambda number, what: None)}
    assert lines["IMAGE"].value == "us-east1-docker.pkg.dev/p/rav/train:latest"
    assert lines["SA"].value == "worker@p.iam.gserviceaccount.com"
    assert lines["FALLBACK_ZONES"].value == "us-east1-b us-east1-c"
    assert lines["BUCKET"].value == "$PROJECT"
    assert [key for key, line in lines.items() if line.shell] == ["ZONE", "MACHINE_TYPE", "GPU_TYPE"]


def test_a_disk_for_each_run_is_made_as_the_older_runner_did(tmp_path: Path) -> None:
    file = "PROJECT=p\nBUCKET=my-bucket\nDATA_DISK_ENABLED=true\nDATA_DISK_NAME=\n"
    known = load(tmp_path, file)
    assert (known.value("gce_data_disk"), known.value("gce_data_disk_zone"), known.value("gce_data_disk_gb")) == (
        "new",
        "",
        500,
    )
    assert known.warnings == ()
    known = load(tmp_path, file + "DATA_DISK_SIZE_GB=200GB\nDATA_DISK_TYPE=pd-ssd\nDATA_DISK_MOUNT_PATH=/data\n")
    assert (known.value("gce_data_disk_gb"), known.value("gce_data_disk_type")) == (200, "pd-ssd")
    assert known.value("gce_data_disk_mount") == "/data"


def test_our_own_variables_in_a_file_count_as_in_the_environment(tmp_path: Path) -> None:
    known = load(tmp_path, "PROJECT=p\nBUCKET=my-bucket\nSPOT_POLL_INTERVAL_S=45\nSPOT_GCE_PROJECT=${PROJECT}-2\n")
    assert (known.knobs.poll_interval_s, known.value("gce_project")) == (45, "p-2")
    assert known.origins["poll_interval_s"].endswith(" SPOT_POLL_INTERVAL_S")
    assert "env-file" in known.origins["poll_interval_s"]
    assert known.warnings == ()


def test_a_misspelt_variable_of_ours_in_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="did you mean SPOT_POLL_INTERVAL"):
        load(tmp_path, "SPOT_POLL_INTERVALS=45")
    with pytest.raises(SettingsRefused, match="SPOT_STORE_URL needs a shell"):
        load(tmp_path, "SPOT_STORE_URL=$(cat bucket)")


def test_a_mark_in_front_of_the_file_does_not_hide_its_first_key(tmp_path: Path) -> None:
    file = tmp_path / "old.env"
    file.write_bytes(b"\xef\xbb\xbfLOG_LEVEL=DEBUG\r\n")
    known = wired.load({}, environ={}, env_file=str(file))
    assert (known.log.log_level.upper(), known.warnings) == ("DEBUG", ())
