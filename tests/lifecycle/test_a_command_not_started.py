"""Exit code 127 has two meanings: no such command, or no such working directory. The sentence distinguishes them."""

from dataclasses import replace

from supervisor.contract.heartbeat import Exit
from supervisor.domain.causes import Cause
from supervisor.domain.run import Status
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, attempt, ended, pulse, run_in

NO_FOLDER = Exit(127, None, False, 0.0, "the working directory /x does not exist")
NO_COMMAND = Exit(127, None, False, 0.0, "trainer: command not found")


def sentence_of(end: Exit) -> str:
    over = replace(ended(Cause.COMMAND_NOT_FOUND, 60), exit=end)
    return status_text(run_in(Status.FAILED, cause=Cause.COMMAND_NOT_FOUND, attempt=over), NOW)


def test_a_missing_folder_is_not_reported_as_a_missing_command() -> None:
    text = sentence_of(NO_FOLDER)
    assert text.startswith("The command could not be started: the working directory /x does not exist.")
    assert "Submit it with another `workdir` and `--replace-spec`, or" in text
    assert text.count("does not exist") == 1


def test_a_missing_conda_environment_names_the_field_to_correct() -> None:
    missing = NO_FOLDER._replace(last_line="the conda environment x is not on this machine; there are: base, torch")
    text = sentence_of(missing)
    assert "could not be started: the conda environment x is not on this machine; there are: base, torch." in text
    assert "Submit it with another `conda_env` and `--replace-spec`, or" in text


def test_a_missing_virtual_environment_names_the_field_to_correct() -> None:
    text = sentence_of(NO_FOLDER._replace(last_line="the virtual environment /v is not on this machine"))
    assert "could not be started: the virtual environment /v is not on this machine." in text
    assert "Submit it with another `venv` and `--replace-spec`, or" in text


def test_code_that_cannot_be_unpacked_is_not_reported_as_an_image() -> None:
    detail = "the code bundle 0123456789ab differs from its checksum (fetched 3 times)"
    over = ended(Cause.IMAGE_ERROR, 60)
    text = status_text(run_in(Status.FAILED, cause=Cause.IMAGE_ERROR, attempt=over, detail=detail), NOW)
    assert text.startswith("The code bundle 0123456789ab differs from its checksum (fetched 3 times). Not retried")
    assert "image" not in text


def test_a_secret_that_the_agent_could_not_read_is_no_failure_of_the_command() -> None:
    """The agent has claimed before, so the attempt ran; only its exit is missing."""
    over = replace(ended(Cause.USER_ERROR, 60), running_at=NOW - 1)
    detail = "secret KEY: projects/p/secrets/key/versions/1 cannot be read: HTTP 403"
    text = status_text(run_in(Status.FAILED, cause=Cause.USER_ERROR, attempt=over, detail=detail), NOW)
    assert text.startswith(f"The command was not started: {detail}. Not retried. ")
    assert "same code" not in text


def test_a_missing_command_is_reported_as_one() -> None:
    assert sentence_of(NO_COMMAND).startswith("The command does not exist on the machine")


def test_a_missing_python_names_the_other_one() -> None:
    text = sentence_of(NO_COMMAND._replace(last_line="python: command not found"))
    assert "Submit it with `python3`, or with the `venv` of that machine, and `--replace-spec`, or" in text


def test_a_command_that_ran_and_printed_such_a_line_was_started() -> None:
    assert not NO_FOLDER._replace(ran_s=2.0).not_entered
    assert not NO_FOLDER._replace(code=1).not_entered


def test_finishing_says_what_the_agent_waits_for() -> None:
    waiting_pulse = replace(pulse(), message="runs/digits-7/baton.json is not there")
    waiting = run_in(Status.FINISHING, attempt=attempt(), pulse=waiting_pulse)
    assert "verified for 4 s (runs/digits-7/baton.json is not there)" in status_text(waiting, NOW)
