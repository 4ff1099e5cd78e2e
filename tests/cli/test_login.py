"""spot attach, spot tunnel: the user's own ssh with checked words, and nothing that a server could make up."""

from __future__ import annotations

import os
import shlex

import click
import pytest

from supervisor.cli.machines import login

SSH = "/usr/bin/ssh"


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def execv(path: str, words: list[str]) -> None:
        assert path == words[0]
        commands.append(words)
        raise click.exceptions.Exit(0)  # the process would be that command now

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(login.shutil, "which", lambda name: SSH if name == "ssh" else None)
    return commands


def serve(
    api, command: str | None = "ssh gpu1", folder: str | None = "~/.spot-machines/machines/spot-7-a1", **files: str
) -> None:
    answer = {"run_id": "llm-a", "machine": "spot-7-a1", "zone": "gpu1", "command": command, "folder": folder, **files}
    api.respond("GET", "/v1/runs/llm-a/login", answer)


def test_a_shell_in_the_folder_of_the_machine(api, spot, became) -> None:
    serve(api)
    assert spot("attach", "llm-a", "-F", "/my/config").code == 0
    assert became[0][:7] == [SSH, "-F", "/my/config", "-t", "--", "gpu1", became[0][6]]
    words = became[0][6]
    assert words.startswith("cd ~/.spot-machines/machines/spot-7-a1 && if command -v tmux")
    window = "'tail -n 50 -F work/output.log & tail=$!; $SHELL -l; kill $tail'"
    assert f"exec tmux new-session -A -s spot-7-a1 {window}; else tail" in words


def test_a_port_on_loopback_only(api, spot, became) -> None:
    serve(api)
    ended = spot("tunnel", "llm-a", "6006")
    assert "127.0.0.1:6006 leads to port 6006 of spot-7-a1 until Ctrl-C" in ended.err
    assert became[0] == [
        SSH, "-N", "-L", "127.0.0.1:6006:127.0.0.1:6006", "-o", "ExitOnForwardFailure=yes", "-o",
        "ServerAliveInterval=15", "--", "gpu1",
    ]  # fmt: skip
    spot("tunnel", "llm-a", "6006", "--local", "7007")
    assert became[1][3] == "127.0.0.1:7007:127.0.0.1:6006"


def test_the_files_of_a_supervisor_on_this_computer_count(api, spot, became, tmp_path) -> None:
    config, known = tmp_path / "ssh_config", tmp_path / "known_hosts"
    for file in (config, known):
        file.touch(0o600)
    serve(api, ssh_config=str(config), ssh_known_hosts=str(known))
    spot("tunnel", "llm-a", "6006")
    assert became[-1][1:5] == ["-F", str(config), "-o", f"UserKnownHostsFile={known}"]
    spot("attach", "llm-a", "-F", "/my/config")
    assert became[-1][1:4] == ["-F", "/my/config", "-t"], "the user's word wins"


@pytest.mark.parametrize("why", ["others may write it", "it is a link", "it is not there", "it has unusual letters"])
def test_a_file_that_another_may_have_made_never_counts(api, spot, became, tmp_path, why: str) -> None:
    target, config = tmp_path / "target", tmp_path / ("a %h" if why == "it has unusual letters" else "config")
    target.touch(0o600)
    if why == "it is a link":
        config.symlink_to(target)
    elif why != "it is not there":
        config.touch()
        config.chmod(0o622 if why == "others may write it" else 0o600)
    serve(api, ssh_config=str(config))
    spot("attach", "llm-a")
    assert became[-1][1:3] == ["-t", "--"]


def test_a_file_that_a_supervisor_elsewhere_names_never_counts(api, spot, became, tmp_path, monkeypatch) -> None:
    config = tmp_path / "config"
    config.touch(0o600)
    serve(api, ssh_config=str(config))
    monkeypatch.setattr(login, "LOOPBACK", ())
    spot("attach", "llm-a")
    assert became[-1][1:3] == ["-t", "--"]


def test_the_run_may_be_left_out(api, spot, became) -> None:
    serve(api)
    api.respond("GET", "/v1/runs", {"runs": [{"run_id": "llm-a", "status": "running"}]})
    assert spot("tunnel", "6006").code == 0
    assert spot("attach").code == 0
    assert len(became) == 2


@pytest.mark.parametrize("port", ["0", "65536", "six", "-1"])
def test_a_port_is_a_number(api, spot, became, port: str) -> None:
    serve(api)
    assert spot("tunnel", "llm-a", "--", port).code == 2
    assert became == []


@pytest.mark.parametrize(
    "command",
    ["ssh -oProxyCommand=touch${IFS}x", "ssh gpu1 -oProxyCommand=x", "ssh gpu1;x", "./ssh gpu1", "ssh  gpu1", "sh x"],
)
def test_words_of_a_server_are_never_run(api, spot, became, command: str) -> None:
    serve(api, command)
    for words in (("attach", "llm-a"), ("tunnel", "llm-a", "6006")):
        ended = spot(*words)
        assert became == []
        assert ended.out.startswith(command.partition(" ")[0]), "it is shown"


@pytest.mark.parametrize("folder", ["~/x; touch y", "$(touch y)", "~root/x y", "~/`y`", "/x'y"])
def test_a_folder_of_a_server_is_never_a_command(api, spot, became, folder: str) -> None:
    serve(api, folder=folder)
    ended = spot("attach", "llm-a")
    assert (ended.code, became) == (1, [])
    assert "has an unusual name" in ended.err


def test_another_program_is_shown_with_what_to_append(api, spot, became) -> None:
    serve(api, "gcloud compute ssh spot-7-a1 --zone=us-east1-c --project=p", folder=None)
    shown = spot("tunnel", "llm-a", "6006").out.strip()
    assert shlex.split(shown)[:7] == [
        "gcloud", "compute", "ssh", "spot-7-a1", "--zone=us-east1-c", "--project=p", "--",
    ]  # fmt: skip
    assert "-L 127.0.0.1:6006:127.0.0.1:6006" in shown
    assert spot("attach", "llm-a").out.strip().endswith("--project=p -- -t")
    assert became == []


def test_a_command_that_is_whole_is_shown_as_it_is(api, spot, became) -> None:
    command = "kubectl exec -it job/spot-7-a1 -c training -- /bin/sh  # in spot"
    serve(api, command, folder="/spot/machines/spot-7-a1")
    assert spot("attach", "llm-a").out.strip() == command
    ended = spot("tunnel", "llm-a", "6006")
    assert (ended.code, ended.out) == (1, "")
    assert "open a port with it too" in ended.err
    assert became == []


def test_the_computer_of_the_supervisor(api, spot, became, tmp_path) -> None:
    folder = tmp_path / "machines" / "spot-7-a1"
    folder.mkdir(parents=True)
    serve(api, None, str(folder))
    assert spot("attach", "llm-a").code == 0
    assert became[0][:2] == ["/bin/sh", "-c"]
    assert became[0][2].startswith(f"cd {folder} && ")
    assert "open 127.0.0.1:6006 there" in spot("tunnel", "llm-a", "6006").err
    serve(api, None, "/nowhere/machines/spot-7-a1")
    assert "is a folder of the supervisor's computer" in spot("attach", "llm-a").err


def test_no_machine_and_no_ssh(api, spot, became, monkeypatch: pytest.MonkeyPatch) -> None:
    api.refuse("GET", "/v1/runs/llm-a/login", 404, "EVIDENCE_NOT_FOUND", "llm-a has no machine now.")
    assert spot("attach", "llm-a").code == 5
    serve(api)
    monkeypatch.setattr(login.shutil, "which", lambda name: None)
    ended = spot("attach", "llm-a")
    assert (ended.code, "no ssh on this computer" in ended.err) == (1, True)
