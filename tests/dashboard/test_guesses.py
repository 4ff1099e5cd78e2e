"""Guesses of tokens, too many requests, and what no response reveals."""

from __future__ import annotations

import logging

import pytest

from supervisor.api.wire.deps import Services, with_tokens
from supervisor.api.wire.rates import Rates
from supervisor.domain.callers import write
from tests.dashboard.document import read
from tests.dashboard.looking import Looking
from tests.dashboard.raw import OURS, raw, sign_in
from tests.services.bed import Bed


def test_guesses_are_limited_by_the_address_they_come_from(bed: Bed, token: str) -> None:
    looking = Looking(with_tokens(bed.services, Rates(20.0, 40.0)))
    statuses = [sign_in(looking, write(bytes([n]) * 32), **OURS).status for n in range(101)]
    assert statuses == [401] * 100 + [429]
    told = sign_in(looking, write(b"x" * 32), **OURS)
    assert int(told.headers["retry-after"]) >= 1
    page = read(told.body.decode())
    assert "Repeat this one in 1 s" in page.one("p", role="alert").text
    assert page.all("input", name="token"), "it can be tried again"
    assert sign_in(looking, token, **OURS).status == 429, "the right one is not told from the others"
    assert sign_in(looking, token, peer="10.0.0.9", **OURS).status == 303, "others notice nothing of it"
    assert sign_in(looking, token, **OURS).status == 303, "nor does whoever was good before"
    bed.clock.advance(1.0)
    assert sign_in(looking, token, **OURS).status == 303
    for bad in ("", "sup_", "€" * 60, "a" * 5000, "sup_" + "A" * 49, "x\r\nSet-Cookie: a=b"):
        assert sign_in(looking, bad, **OURS).status in (401, 429)


def test_who_asks_too_often_is_told_when_to_come_back(bed: Bed, token: str) -> None:
    looking = Looking(with_tokens(bed.services, Rates(0.5, 2.0)))
    told = [raw(looking, "/ui/v1/meta", cookie=f"spot-8787={token}") for _ in range(2)]
    assert [one.status for one in told] == [200, 200]
    page = raw(looking, "/ui/alerts", cookie=f"spot-8787={token}")
    assert (page.status, page.headers["retry-after"]) == (429, "2")
    assert "Repeat this one in 2 s" in read(page.body.decode()).one("p", role="alert").text


def test_the_token_is_told_nowhere(asked: Services, token: str, caplog: pytest.LogCaptureFixture) -> None:
    looking = Looking(asked)
    with caplog.at_level(logging.DEBUG):
        told = [sign_in(looking, token, **OURS), sign_in(looking, token[:-1] + "_", **OURS)]
        told += [sign_in(looking, token, origin="http://evil.example")]
        for target in ("/ui/runs", "/ui/sign-in", "/ui/nothing", "/ui/runs/nobody", f"/ui/v1/runs?x={1}"):
            told.append(raw(looking, target, cookie=f"spot-8787={token}"))
    for one in told:
        assert token[:40] not in one.body.decode()
        assert token[:40] not in str({**one.headers, "set-cookie": ""})
    assert token[:40] not in caplog.text
    assert token[:40] in told[0].cookies[0]
