"""The two formats of a log line: the same fields in both, one record per line, always machine-readable."""

import io
import json
import logging

import pytest

from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger("supervisor.test")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch):
    """`written(form, level)` configures the log; its `getvalue` is the output. The root logger is restored."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    noisy = {name: logging.getLogger(name).level for name in telemetry._QUIET}
    # basicConfig(force) closes the handlers that it finds; those of pytest are not ours to close.
    root.handlers = []
    streams = []

    def begin(form: str, least: str = "info") -> io.StringIO:
        streams.append(io.StringIO())
        telemetry.configure(least, form, streams[-1])
        return streams[-1]

    yield begin
    root.handlers = handlers
    root.setLevel(level)
    for name, before in noisy.items():
        logging.getLogger(name).setLevel(before)


FIELDS = {telemetry.ACTION: "attempt_ended", telemetry.RUN_ID: "digits-7", telemetry.ATTEMPT: 3, telemetry.ZONE: None}


def test_json(written) -> None:
    stream = written("json")
    LOG.info("Attempt %d ended.", 3, extra=FIELDS)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info", "logger": "supervisor.test", "message": "Attempt 3 ended.", "action": "attempt_ended",
        "run_id": "digits-7", "attempt": 3,
    }  # fmt: skip


def test_json_never_holds_a_number_that_is_none(written) -> None:
    stream = written("json")
    LOG.info("x", extra={"duration_s": float("nan"), "count": float("inf")})
    line = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert (line["duration_s"], line["count"]) == ("nan", "inf")


def test_plain(written) -> None:
    stream = written("plain")
    LOG.warning("Attempt 3 ended.", extra={**FIELDS, "detail": 'two "words"'})
    assert stream.getvalue().partition("Z ")[2] == (
        'WARNING attempt_ended: Attempt 3 ended. run_id=digits-7 attempt=3 detail="two \\"words\\""\n'
    )


@pytest.mark.parametrize("form", ["plain", "json"])
def test_text_of_a_run_cannot_forge_a_second_line(written, form: str) -> None:
    stream = written(form)
    LOG.info("last words: %s", "bye\n2026-01-01T00:00:00.000Z ERROR \x1b[2J\ud800", extra={"detail": "a\r\nb"})
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    stream.getvalue().encode()


def test_a_traceback_goes_along(written) -> None:
    for form in ("plain", "json"):
        stream = written(form)
        try:
            raise RuntimeError("boom")
        except RuntimeError:
            LOG.exception("It failed.", extra={telemetry.ACTION: "tick_failed"})
        assert "RuntimeError: boom" in stream.getvalue()


def test_a_traceback_shows_control_characters_as_text(written) -> None:
    stream = written("plain")
    try:
        raise RuntimeError("boom \x1b[2J\x9b31m \u202egnp.exe")
    except RuntimeError:
        LOG.exception("It failed.")
    assert "boom ⟨U+001B⟩[2J⟨U+009B⟩31m ⟨U+202E⟩gnp.exe" in stream.getvalue()


def test_libraries_that_log_every_request_are_silenced(written) -> None:
    stream = written("plain", "debug")
    logging.getLogger("httpx").info("GET https://example.org/secret-path")
    LOG.debug("ours")
    assert "secret" not in stream.getvalue()
    assert "ours" in stream.getvalue()


def test_every_name_is_defined_once() -> None:
    names = [value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str)]
    assert len(names) == len(set(names)) > 10
