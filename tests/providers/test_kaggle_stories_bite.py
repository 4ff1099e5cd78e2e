"""The stories of Kaggle's sessions notice a provider that does not keep them, and the fake a field of nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.providers.kaggle import api, survey
from supervisor.providers.kaggle.provider import KaggleProvider
from supervisor.providers.kaggle.pushing import Pusher
from tests.kaggle.wire import NotInTheClient, check, classes
from tests.providers import test_kaggle_stories as stories
from tests.providers.kaggle_subject import KaggleSubject

Story = Callable[[KaggleSubject], None]
BROKEN: tuple[tuple[str, Any, str, Any, Story], ...] = (
    (
        "a second push beside a running session",
        KaggleProvider,
        "_refuse_second",
        lambda self, request, seen: None,
        stories.test_the_next_session_of_a_run_is_not_pushed_while_one_runs,
    ),
    (
        "the newest version in place of ours",
        api,
        "version_label",
        lambda number: "v2",
        stories.test_the_state_of_our_version_counts_not_that_of_an_edit_by_hand,
    ),
    (
        "what the list does not have is gone",
        survey.Surveyor,
        "_unlisted",
        lambda self, listed: ({}, {}),
        stories.test_a_late_list_deletes_nothing,
    ),
    (
        "a notebook with another first line is somebody else's",
        survey,
        "is_from_us",
        lambda source: False,
        stories.test_of_a_notebook_whose_first_line_was_edited_nobody_can_tell_whose_it_is,
    ),
    (
        "a push that may have been done is repeated at once",
        Pusher,
        "wait_until_clear",
        lambda self, request, is_new: None,
        stories.test_a_push_that_may_still_appear_is_not_repeated_at_once,
    ),
)


@pytest.mark.parametrize(("what", "owner", "name", "broken", "story"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_broken_provider_fails_its_story(
    what: str, owner: Any, name: str, broken: Any, story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = KaggleSubject(tmp_path)
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        story(subject)
    subject.close()


def test_a_field_that_the_client_does_not_have_fails_the_exchange() -> None:
    request, response = classes("SaveKernel")
    check(request, {"slug": "ada/x", "text": "{}"}, "here")
    for cls, body in ((request, {"slugg": "ada/x"}), (response, {"kernel_id": 7})):
        with pytest.raises(NotInTheClient, match="has no field"):
            check(cls, body, "here")
    with pytest.raises(NotInTheClient, match="cannot read"):
        check(classes("GetKernelSessionStatus")[1], {"status": "PAUSED"}, "here")
    with pytest.raises(NotInTheClient, match="no field answer"):
        check(classes("ListKernels")[1], {"kernels": [{"id": 1, "answer": 2}]}, "here")
    with pytest.raises(NotInTheClient, match="no method"):
        classes("StopKernel")
