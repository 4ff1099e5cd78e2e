"""Masks: every usual form, overlapping values, and a stream that is cut anywhere gives the same as the whole text."""

import base64
import json
import logging
import re
import textwrap
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.agent.machine.masking import SHORT, Masker, MaskingFormatter, MaskStream
from tests.properties import examples

KEY = "wb/Zürich+key 90=ab\\c"
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0B==\nabc\n-----END KEY-----\n"


BODY = base64.b64encode(bytes((31 * n + n // 7) % 256 for n in range(600))).decode()  # of a key made up here
PRIVATE = f"-----BEGIN PRIVATE KEY-----\n{textwrap.fill(BODY, 64)}\n-----END PRIVATE KEY-----\n"
ACCOUNT = json.dumps(
    {
        "type": "service_account",
        "project_id": "our-project",
        "private_key_id": "0123456789abcdef0123",
        "private_key": PRIVATE,
        "client_email": "train@our-project.example",
        "token_uri": "https://oauth2.example.com/token",
    },
    indent=2,
)


def flow(masker: Masker, pieces: list[bytes]) -> bytes:
    stream = MaskStream(masker)
    return b"".join(stream.feed(piece) for piece in pieces) + stream.end()


@pytest.mark.parametrize(
    "shown",
    [
        KEY,
        json.dumps({"key": KEY}),
        json.dumps({"key": KEY}, ensure_ascii=False),
        repr(KEY),
        quote(KEY),
        "https://host/?key=" + quote(KEY, safe="") + "&more=1",
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        "Basic " + base64.b64encode(b"me:" + KEY.encode()).decode(),
        "Basic " + base64.b64encode(b"user:" + KEY.encode() + b"@tail").decode(),
    ],
)
def test_every_usual_form_of_a_value_is_masked(shown: str) -> None:
    masked = Masker({"WANDB": KEY}).text(f"before {shown} after")
    assert (masked[:7], masked[-6:]) == ("before ", " after")
    assert "[secret WANDB]" in masked
    assert KEY[:8] not in masked
    assert shown[-20:] not in masked


def test_each_long_line_of_a_value_is_masked_and_short_ones_are_left() -> None:
    masked = Masker({"PEM": PEM}).text("got MIIEvQIBADANBgkq, hkiG9w0B== and abc")
    assert masked == "got [secret PEM], [secret PEM] and abc"
    assert Masker({"PEM": PEM}).text(f"<{PEM}>") == "<[secret PEM]>"


def runs_of(text: str, part: str, length: int = 12) -> list[str]:
    """The stretches of `text` that `part` also shows, apart from line breaks and quotes."""
    joined = re.sub("%0[AaDd]", "", part)
    plain = "".join(char for char in joined if char not in " \t\r\n\"',\\")
    return [text[at : at + length] for at in range(len(text) - length) if text[at : at + length] in plain]


def wrapped(coded: str) -> list[str]:
    """As programs write long base64: `base64`, MIME, openssl, YAML, JSON, repr, a list of lines."""
    lines = textwrap.wrap(coded, 76)
    return [
        "\n".join(lines) + "\n",
        "\r\n".join(lines) + "\r\n",
        "\n".join(textwrap.wrap(coded, 64)),
        "".join(f"          {line}\n" for line in textwrap.wrap(coded, 40)),
        json.dumps("\n".join(lines)),
        json.dumps(json.dumps("\r\n".join(lines))),
        repr(base64.encodebytes(base64.b64decode(coded))),
        json.dumps(lines, indent=4),
        coded.replace("/", "\\/"),
        quote("\n".join(lines), safe="+/="),
        "%0d%0a".join(lines),
    ]


@pytest.mark.parametrize("value", [PRIVATE, ACCOUNT, KEY * 9], ids=["PEM", "service account", "text"])
@pytest.mark.parametrize("shape", range(11))
def test_wrapped_base64_of_a_value_is_masked_also_in_pieces(value: str, shape: int) -> None:
    masker = Masker({"K": value})
    coded = base64.b64encode(b"me:"[: shape % 3] + value.encode() + b"!").decode()
    text = f"step 1\n{wrapped(coded)[shape]}\nstep 2\n"
    whole = masker.text(text)
    assert runs_of(coded, whole) == []
    assert whole.startswith("step 1\n")
    assert whole.endswith("step 2\n")
    data = text.encode()
    for size in (7, 13, 77, 1000):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert flow(masker, pieces).decode() == whole, size
    for limit in (40, 700):
        cut = data[: len(data) * 2 // 3]
        assert runs_of(coded, masker.tail(cut[-(limit + masker.longest) :], limit).decode()) == [], limit


@pytest.mark.parametrize(
    "shown",
    [
        ACCOUNT,
        PRIVATE,
        json.dumps(json.loads(ACCOUNT)),
        json.dumps({"outer": json.dumps(json.loads(ACCOUNT))}),
        repr(json.loads(ACCOUNT)),
        repr(PRIVATE),
        PRIVATE.replace("\n", "\\n"),
        PRIVATE.splitlines()[4],
        BODY,
        "\n".join(textwrap.wrap(BODY, 76)),
        quote(PRIVATE),
        "id 0123456789abcdef0123",
    ],
)
def test_every_form_of_a_service_accounts_key_is_masked(shown: str) -> None:
    masker = Masker({"GOOGLE": ACCOUNT})
    for text in (masker.text(f"<{shown}>"), flow(masker, [bytes([b]) for b in f"<{shown}>".encode()]).decode()):
        assert runs_of(BODY, text) == []
        assert "0123456789abcdef" not in text
        assert "[secret GOOGLE]" in text


def test_the_public_fields_of_a_service_account_stay() -> None:
    text = "service_account train@our-project.example https://oauth2.example.com/token gs://our-project/runs"
    assert Masker({"GOOGLE": ACCOUNT}).text(text) == text


def test_a_line_of_the_log_is_not_held_back_for_its_last_characters() -> None:
    stream = MaskStream(Masker({"GOOGLE": ACCOUNT}))
    for last in "ABCDefgh0123+/=. ":
        line = f"epoch 3 of 10, loss {last}\n".encode()
        assert stream.feed(line) == line


def test_values_that_overlap_are_all_covered() -> None:
    masker = Masker({"A": "abcdefgh", "B": "fghijklm"})
    assert masker.text("-abcdefghijklm-") == "-[secret A]-"
    assert flow(masker, [b"-abcdefgh", b"ijklm-"]) in (b"-[secret A]-", b"-[secret A][secret B]-")


def test_a_mark_is_not_searched_for_another_value() -> None:
    assert Masker({"TOKEN": "abcdefgh", "X": "secret", "Y": "TOKEN"}).text("abcdefgh") == "[secret TOKEN]"


def test_a_masker_without_secrets_changes_nothing() -> None:
    masker = Masker({})
    assert masker.text("a\udc80b") == "a\udc80b"
    assert masker.data(b"\xff") == b"\xff"
    assert flow(masker, [b"ab", b"c"]) == b"abc"
    assert masker.tail(b"abcdef", 2) == b"ef"
    assert Masker({"K": KEY}).text("a\udc80b") == "a\udc80b"


def test_masked_json_has_masked_keys_and_values_and_is_otherwise_the_same() -> None:
    masked = Masker({"K": KEY}).json({KEY: [1, None, (KEY, 2.5)], "plain": {"deep": f"x{KEY}"}})
    assert masked == {"[secret K]": [1, None, ["[secret K]", 2.5]], "plain": {"deep": "x[secret K]"}}
    assert Masker({"K": "when"}).json({"when": ["when", {"when": 1}]}, keys=False) == {
        "when": ["[secret K]", {"when": 1}]
    }


def test_a_tail_never_begins_or_ends_inside_a_value() -> None:
    masker = Masker({"K": "0123456789"})
    data = b"...0123456789 some words and 0123456789 here 012345678"
    for limit in range(1, len(data) + 1):
        kept = masker.tail(data[-(limit + masker.longest) :], limit)
        assert (kept.count(b"0123"), kept.count(b"6789")) == (0, 0), limit
    assert masker.tail(b"0123456789 end", 8) == b"[secret K] end"


def test_a_stream_gives_a_lines_rest_soon_and_the_value_never() -> None:
    stream = MaskStream(Masker({"K": "step-secret-value"}))
    assert (stream.feed(b"now at s"), stream.holds) == (b"now at ", True)
    assert (stream.rest(), stream.holds, stream.rest()) == (b"s", False, b"")
    assert stream.feed(b"tep") == b""  # too much of it to be shown
    assert stream.rest() == b""
    assert stream.feed(b"-secret-value!") == b"[secret K]!"
    assert stream.feed(b"s") + stream.rest() + stream.feed(b"o") + stream.end() == b"so"


def test_a_torn_value_at_the_end_of_a_stream_counts_as_one() -> None:
    assert flow(Masker({"K": "abcdefgh"}), [b"x abcdefg"]) == b"x [secret K]"
    assert flow(Masker({"K": "abcdefgh"}), [b"x abc"]) == b"x abc"


def test_a_short_value_that_begins_a_wrapped_one_is_never_shown() -> None:
    stream = MaskStream(Masker({"SHORT": "aaa\n", "LONG": "aaaaaaaa\n"}))
    assert stream.feed(b"aaa\n") == b""
    assert stream.end() == b"[secret SHORT]"


_secrets = st.lists(st.text("ab\nc", min_size=4, max_size=12), min_size=1, max_size=3)
_text = st.lists(st.sampled_from(["a", "b", "c", "\n", "0", "1", "2"]), max_size=40)


@settings(max_examples=examples(100, 300), deadline=None)
@given(_secrets, _text, st.data())
def test_a_stream_cut_anywhere_shows_no_more_than_the_whole_does(
    values: list[str], parts: list[str], data: st.DataObject
) -> None:
    masker = Masker({str(number): value for number, value in enumerate(values)})
    whole = "".join(values[int(p) % len(values)] if p.isdigit() else p for p in parts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    stream, out = MaskStream(masker), b""
    for piece in pieces:
        out += stream.feed(piece)
        if data.draw(st.booleans()):
            out += stream.rest()
    out += stream.end()
    assert not any(value.encode() in out for value in values)
    plain = bytearray(whole)
    for begin, end, _ in masker.spans(whole):
        plain[begin:end] = b"\0" * (end - begin)
    # Of a masked value no more than its short beginning may be seen.
    assert _letters(out) <= _letters(bytes(plain)) + out.count(b"[secret ") * SHORT
    if b"\0" not in plain and masker.beginning(whole)[0] == len(whole):
        assert out == whole


def _letters(text: bytes) -> int:
    """The letters that no mark has."""
    return sum(text.count(letter) for letter in (b"a", b"b", b"\n"))


def test_the_agents_own_console_is_masked_with_its_tracebacks() -> None:
    formatter = MaskingFormatter(Masker({"K": "very-secret-value"}), "%(message)s")
    try:
        raise ValueError("refused very-secret-value")
    except ValueError as error:
        caught = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("agent", logging.ERROR, __file__, 1, "with %s", ("very-secret-value",), caught)
    text = formatter.format(record)
    assert "very-secret-value" not in text
    assert text.startswith("with [secret K]")
    assert "refused [secret K]" in text
