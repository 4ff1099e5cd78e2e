"""No log line contains a secret, and all other text stays as it was written."""

import io
import json
import logging
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import redaction
from supervisor.telemetry.redaction import DOTS, hidden, hidden_field, is_secret

ALNUM = "abcdefghijkLMNOPQRSTUVWxyz0123456789"
CORE = st.text(ALNUM, min_size=32, max_size=48)  # so long that chance never writes it
# How a secret appears: by its own form, or after a word that announces it. The core must be nowhere.
SAID: tuple[Callable[[str], str], ...] = (
    "sup_{}".format,
    "whsec_{}==".format,
    "ticket_digits-7_1.1.1_1764212345_{}".format,
    "pass_digits-7_1.1.1_1764212345_{}".format,
    "Authorization: Bearer {}".format,
    "authorization: Basic {}".format,
    "{{'authorization': 'Bearer {}'}}".format,
    "Cookie: session={}".format,
    "ghp_{}".format,
    "sk-{}".format,
    "xoxb-{}".format,
    "CANARY_API_KEY={}".format,
    "HF_TOKEN={}".format,
    "DB_PASSWORD='{} and more'".format,
    'token="{}"'.format,
    '{{"nonce": "{}", "step": 5}}'.format,
    r"{{\"api_key\": \"{}\"}}".format,
    "{{'env': {{'AWS_SECRET': '{}'}}}}".format,
    "https://hooks.slack.com/services/T0/B0/{}".format,
    "https://discord.com/api/webhooks/1/{}".format,
    "https://example.org/in/webhook/{}".format,
    "https://example.org/v1/{}?x=1".format,
    "https://example.org/?sig={}".format,
    "https://user:{}@example.org/x".format,
    "postgresql+psycopg://spot:{}@db:5432/spot".format,
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----".format,
)
ORDINARY = (
    "Attempt 3 in us-east1-d ended as preempted: the cloud's record says so.",
    "max_tokens=4096 n_tokens: 5 tokenizer=bpe loss=0.25 key=7",
    "Token: what is it? The token was refused (secret none). password:",
    "token_id=tok_1 author: somebody; authority=x; the key of a run is 12",
    "http://127.0.0.1:8787/v1/runs/bert-large-uncased-20261122-a?page_size=50&cursor=abcdefgh12345678901234567",
    "gs://bucket/runs/digits-7/checkpoints/0123456789abcdef0123456789abcdef.npz",
    "https://storage.googleapis.com/storage/v1/b/bucket/o?prefix=beats%2F",
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "token=None secret=false 'password': null",
    "    password = request.headers.get(name)\n    raise Refused(token)",
    "eighteen ghosts asked asia's tax-free risk-averse desk-",
)


class Line:
    """Its own logger, in one format, without changing the process's loggers."""

    def __init__(self, form: str) -> None:
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(telemetry.JsonFormatter() if form == "json" else telemetry.PlainFormatter())
        self.log = logging.Logger("test")  # noqa: LOG001 - outside of the tree of loggers
        self.log.addHandler(handler)

    @property
    def text(self) -> str:
        return self.stream.getvalue()


def in_message(line: Line, said: str) -> None:
    line.log.info("it said %s".replace("%s", said.replace("%", "%%")))


def in_arguments(line: Line, said: str) -> None:
    line.log.info("it said %s and %r", said, {"deep": [said]})


def in_arguments_that_do_not_fit(line: Line, said: str) -> None:
    line.log.info("only %d", said)


def in_fields(line: Line, said: str) -> None:
    line.log.info("x", extra={"detail": said, "spec": {"command": [said, ("x", said)]}, "raw": said.encode()})


def in_an_exception(line: Line, said: str) -> None:
    try:
        try:
            raise ValueError(said)
        except ValueError as error:
            raise RuntimeError(f"again: {said}") from error
    except RuntimeError:
        line.log.exception("it failed")


PLACES = (in_message, in_arguments, in_arguments_that_do_not_fit, in_fields, in_an_exception)


@pytest.mark.parametrize("form", ["plain", "json"])
@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=40)
@given(core=CORE, say=st.sampled_from(SAID))
def test_a_planted_secret_is_nowhere(
    form: str, place: Callable[[Line, str], None], core: str, say: Callable[[str], str]
) -> None:
    line = Line(form)
    place(line, say(core))
    assert core not in line.text
    assert line.text.endswith("\n")


@pytest.mark.parametrize("place", PLACES)
def test_without_the_rules_each_of_these_would_be_seen(
    place: Callable[[Line, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "hidden", lambda text: text)
    monkeypatch.setattr(telemetry, "hidden_field", lambda name, value: str(value))
    line, core = Line("json"), "abcdefgh0123456789abcdefgh0123456789"
    place(line, f"sup_{core}")
    assert (core in line.text) != (place is in_arguments_that_do_not_fit)  # that logger shows no values at all


@pytest.mark.parametrize("number", range(len(redaction._RULES)))
def test_each_rule_is_needed(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    core = "abcdefgh0123456789ABCDEFGH0123456789"
    assert all(core not in hidden(say(core)) for say in SAID)
    rules = redaction._RULES
    monkeypatch.setattr(redaction, "_RULES", rules[:number] + rules[number + 1 :])
    assert any(core in hidden(say(core)) for say in SAID)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert hidden(text) == text


WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789 .,:=/()[]{}'\"%&?", max_size=200).filter(
    lambda text: not any(word in text for words, _ in redaction._RULES for word in words)
)


@given(WORDS)
def test_text_without_any_of_the_words_is_never_touched(text: str) -> None:
    assert hidden(text) == text


def test_own_secrets_of_the_process_are_hidden_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_own", ())
    redaction.hide("https://example.org/tell", "two words", "file:/etc/secret", "", "short")
    line = Line("plain")
    in_an_exception(line, "POST https://example.org/tell with two words")
    assert not any(own in line.text for own in ("example.org", "two words"))
    assert hidden("file:/etc/secret is short") == "file:/etc/secret is short"


def test_fields_are_hidden_by_their_names_and_keep_their_types() -> None:
    spec = {"env": {"HF_AUTH": "x", "EPOCHS": "40"}, "password": ["p"], "steps": 5, "rate": float("inf"), "on": True}
    assert hidden_field("spec", spec) == {
        "env": {"HF_AUTH": DOTS, "EPOCHS": "40"}, "password": [DOTS], "steps": 5, "rate": "inf", "on": True,
    }  # fmt: skip
    assert [name for name in ("token_id", "key", "run_id", "author", "tokens") if is_secret(name)] == []
    assert [name for name in ("token", "api_key", "nonce", "X_PAT", "DB_DSN") if not is_secret(name)] == []


def test_a_value_that_cannot_be_formatted_loses_no_line() -> None:
    class Shy:
        def __str__(self) -> str:
            raise RuntimeError("sup_abcdefgh0123456789")

    line, endless = Line("json"), list[object]()
    endless.append(endless)
    line.log.info("here", extra={"thing": Shy(), "endless": endless})
    told = json.loads(line.text)
    assert told["thing"] == "(RuntimeError while showing a Shy)"
    assert str(told["endless"]).count("[") == redaction.DEEPEST


def test_half_a_secret_at_the_cut_is_not_shown() -> None:
    core = "abcdefgh0123456789" * 4
    for ahead in range(0, len(core) + 8, 5):
        text = "x " * ((redaction.LINE_MAX - ahead) // 2) + f"sup_{core}"
        assert core[:8] not in hidden(text)
    assert len(hidden("word " * redaction.LINE_MAX)) <= redaction.LINE_MAX


def attacks() -> Iterator[str]:
    for part in (
        "TOKEN=", "token='", '"token":"', "://a:", "https://", "sk-", "bearer ", "-----BEGIN ", '_key=\\"', "xoxb-",
        "token= ", "token\\\\\\ ", "authorization ", "a&sig=", "PRIVATE KEY-----",
    ):  # fmt: skip
        yield part * (2 * redaction.LINE_MAX // len(part))
    yield "https://a?" + "&=" * redaction.LINE_MAX


def test_no_text_takes_long() -> None:
    """65,536 characters of the worst case take 12 ms here; a backtracking rule would take minutes."""
    for text in attacks():
        since = time.process_time()
        hidden(text)
        assert time.process_time() - since < 1.0, text[:20]
