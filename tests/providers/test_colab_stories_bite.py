"""The stories of Colab notice a provider that does not keep them, and the fake a word that the client does not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.colab import provider, states
from supervisor.providers.colab.client import Listing
from supervisor.providers.colab.kept import Kept
from supervisor.providers.colab.provider import ColabProvider
from tests.fakes.colab_client import Account, UnknownWord, run
from tests.providers.colab_subject import ColabSubject
from tests.providers.test_colab_stories import TestClient as Clients
from tests.providers.test_colab_stories import TestPastedCells as Cells

Story = Callable[[Any, ColabSubject], None]
LAUNCH_ALONE = property(lambda kept: ("digits", kept.launch_id))
BROKEN: tuple[tuple[str, Any, str, Any, Story, bool], ...] = (
    (
        "an empty list without a login is a list",
        Listing,
        "has",
        lambda listing, name: name in listing.sessions,
        Clients.test_without_a_login_an_empty_list_is_no_list,
        False,
    ),
    (
        "what the client has told once is forgotten",
        Listing,
        "has",
        lambda listing, name: True if name in listing.sessions else False if listing.complete else None,
        Clients.test_a_session_that_colab_ended_is_doubted_at_once,
        False,
    ),
    (
        "a claim is found by its launch id alone",
        Kept,
        "key",
        LAUNCH_ALONE,
        Cells.test_a_pasted_cell_is_another_launchs_alone,
        True,
    ),
    (
        "a ticket is never renewed",
        provider,
        "RENEW_S",
        -1e9,
        Cells.test_a_ticket_lives_for_a_while_and_the_next_one_is_made_when_somebody_asks,
        True,
    ),
    (
        "one missing beat is an end",
        states,
        "SILENT_S",
        100.0,
        Cells.test_a_closed_notebook_is_doubted_once_two_beats_are_missing,
        True,
    ),
    (
        "each repeat asks for the claims",
        ColabProvider,
        "_waits_for_person",
        lambda self, request: False,
        Cells.test_a_wait_of_hours_sends_nothing_of_its_own,
        True,
    ),
)


@pytest.mark.parametrize(
    ("what", "owner", "name", "broken", "story", "is_pasted"), BROKEN, ids=[row[0] for row in BROKEN]
)
def test_a_broken_provider_fails_its_story(
    what: str,
    owner: Any,
    name: str,
    broken: Any,
    story: Story,
    is_pasted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = ColabSubject(tmp_path, **({"colab_ways": ("cell",)} if is_pasted else {}))
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception, ProviderUnavailable)):
        story(None, subject)


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "--json"),
        ("new", "-s", "a", "--gpu", "T4", "--detach"),
        ("list",),
        ("exec", "-s", "a", "--code", "x"),
    ],
    ids=" ".join,
)
def test_a_word_that_the_client_does_not_have_fails_the_call(words: tuple[str, ...]) -> None:
    with pytest.raises(UnknownWord):
        run(words, "", Account(), lambda name, code: "")
