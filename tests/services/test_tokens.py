"""Creating, listing and revoking tokens, and the admin token of the first start."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from supervisor.domain import callers
from supervisor.domain.callers import LOCAL, Caller, Caps, Scope, Token
from supervisor.domain.errors import Conflict, InvalidRequest, SettingsRefused, TokenNotFound
from supervisor.services.access import tokens as service
from supervisor.services.access.data_folder import ensure_admin_token
from supervisor.services.access.tokens import TokenRequest, asker_json, create, listing, revoke
from tests.services.bed import Bed

OPS = Caller(owner="ops", actor="olga", request_id="r-7")


def found(bed: Bed, text: str) -> Token | None:
    return bed.store.tokens.find(callers.digest(bed.store.secret, text))


# --- made, listed, revoked -------------------------------------------------------------------------------------------


def test_the_token_is_in_one_response_and_stored_nowhere(any_bed: Bed) -> None:
    made = create(any_bed.parts, TokenRequest("ci", expires_in_s=60.0, max_active_runs=4), OPS)
    assert callers.is_token(made["token"])
    [shown] = listing(any_bed.parts)["tokens"]
    assert shown == {key: value for key, value in made.items() if key != "token"}
    assert (shown["owner"], shown["scopes"], shown["valid"]) == ("ops", ["runs:read", "runs:write"], True)
    history = any_bed.store.events(None, 0, 10)
    assert made["token"] not in repr((history, any_bed.store.tokens.newest(9)))
    [event] = [stored.event for stored in history]
    assert (event.kind, event.actor, event.data["request_id"]) == ("token_created", "olga", "r-7")
    assert event.data["token_id"] == made["token_id"]
    assert event.data["max_active_runs"] == 4


def test_two_tokens_are_never_the_same(bed: Bed) -> None:
    texts = {create(bed.parts, TokenRequest("ci"), LOCAL)["token"] for _ in range(20)}
    assert len(texts) == 20


def test_chance_comes_in_as_an_argument(bed: Bed) -> None:
    made = create(bed.parts, TokenRequest("ci"), LOCAL, lambda size: b"\x07" * size)
    assert (made["token"], made["token_id"]) == (callers.write(b"\x07" * 32), "tok-070707070707")


def test_revoking_twice_is_revoking_once(any_bed: Bed) -> None:
    made = create(any_bed.parts, TokenRequest("ci"), OPS)
    identity = any_bed.services.identity
    first = revoke(any_bed.parts, identity, made["token_id"], OPS)
    any_bed.clock.advance(60)
    assert revoke(any_bed.parts, identity, made["token_id"], OPS) == first
    assert (first["valid"], first["revoked_at"] is None) == (False, False)
    kinds = [str(stored.event.kind) for stored in any_bed.store.events(None, 0, 10)]
    assert kinds == ["token_created", "token_revoked"]


def test_an_unknown_token_is_not_repeated(any_bed: Bed) -> None:
    for wrong in ("tok-000000000000", "", "tok-", "x" * 4000, "tok-\x00", "\udcff", "' OR 1=1 --"):
        with pytest.raises(TokenNotFound) as refused:
            revoke(any_bed.parts, any_bed.services.identity, wrong, OPS)
        assert not wrong or wrong not in refused.value.detail


def test_the_supervisors_name_is_refused(bed: Bed) -> None:
    for wish in (TokenRequest("supervisor"), TokenRequest("ci", owner="supervisor")):
        with pytest.raises(InvalidRequest, match="own name"):
            create(bed.parts, wish, LOCAL)


def test_valid_tokens_are_bounded_and_a_revoked_one_makes_room(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_VALID", 2)
    first = create(bed.parts, TokenRequest("one"), LOCAL)
    create(bed.parts, TokenRequest("two"), LOCAL)
    with pytest.raises(Conflict, match="spot token ls"):
        create(bed.parts, TokenRequest("three"), LOCAL)
    revoke(bed.parts, bed.services.identity, first["token_id"], LOCAL)
    create(bed.parts, TokenRequest("three"), LOCAL)


def test_tokens_that_count_no_more_are_forgotten_after_their_time(any_bed: Bed, folder: Path) -> None:
    """Except the data folder's token: without its row the next start would create another one."""
    store, now = any_bed.store, any_bed.clock.now()
    of_folder = found(any_bed, started(any_bed, folder))
    assert of_folder is not None
    made = {
        name: create(any_bed.parts, TokenRequest(name, expires_in_s=expires_s), OPS)["token_id"]
        for name, expires_s in (("short", 60.0), ("revoked", None), ("long", 91 * 86_400.0), ("good", None))
    }
    for token_id in (made["revoked"], of_folder.token_id):
        revoke(any_bed.parts, any_bed.services.identity, token_id, OPS)
    store.prune(now + 89 * 86_400.0, 1000)
    assert len(store.tokens.newest(9)) == 5
    store.prune(now + 91 * 86_400.0, 1000)
    assert {one.name for one in store.tokens.newest(9)} == {"long", "good", "local"}
    started(any_bed, folder)
    assert len(store.tokens.newest(9)) == 3


# --- the first start -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


def started(bed: Bed, folder: Path, given: str = "") -> str:
    """The token in the folder after one more start. `given`: the setting admin_token."""
    bed.clock.advance(10)
    ensure_admin_token(bed.store, folder, bed.clock.now(), given)
    return (folder / "admin-token").read_text().strip()


def test_the_first_start_leaves_a_token_that_only_its_owner_reads(any_bed: Bed, folder: Path) -> None:
    before = os.umask(0)
    try:
        token = started(any_bed, folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "admin-token").stat().st_mode) == 0o600
    made = found(any_bed, token)
    assert made is not None
    assert (made.scopes, made.owner, made.name) == ({Scope.ADMIN}, "local", "local")
    assert [path.name for path in folder.iterdir()] == ["admin-token"]


def test_the_next_start_leaves_everything_as_it_is(any_bed: Bed, folder: Path) -> None:
    token = started(any_bed, folder)
    assert started(any_bed, folder) == token
    assert len(any_bed.store.tokens.newest(9)) == 1


def test_a_lost_token_is_replaced_and_the_one_before_revoked(any_bed: Bed, folder: Path) -> None:
    path = folder / "admin-token"
    for lost in (None, "", "sup_half", callers.write(b"\x05" * 32), "\x00 garbage"):
        before = started(any_bed, folder)
        path.unlink()
        if lost is not None:
            path.write_text(lost)
        after = started(any_bed, folder)
        assert after != before
        made, gone = found(any_bed, after), found(any_bed, before)
        assert made is not None
        assert gone is not None
        assert (made.revoked_at, gone.revoked_at) == (None, any_bed.clock.now())


def test_another_folder_of_the_same_database_has_a_token_of_its_own(bed: Bed, folder: Path, tmp_path: Path) -> None:
    """Two replicas on one database: neither revokes the other's."""
    one = started(bed, folder)
    (tmp_path / "two").mkdir()
    two = started(bed, tmp_path / "two")
    assert one != two
    assert all(token.revoked_at is None for token in bed.store.tokens.newest(9))


def test_a_token_that_was_revoked_on_purpose_stays_so(bed: Bed, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = started(bed, folder)
    made = found(bed, token)
    assert made is not None
    revoke(bed.parts, bed.services.identity, made.token_id, OPS)
    assert started(bed, folder) == token
    assert len(bed.store.tokens.newest(9)) == 1
    assert "is revoked" in caplog.text
    assert token not in caplog.text


def test_a_file_that_others_could_read_is_made_private(
    bed: Bed, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = started(bed, folder)
    (folder / "admin-token").chmod(0o644)
    assert started(bed, folder) == token
    assert stat.S_IMODE((folder / "admin-token").stat().st_mode) == 0o600
    assert "private now" in caplog.text


def test_the_next_start_fixes_one_that_was_interrupted_before_the_file(
    bed: Bed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(old: object, new: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            started(bed, folder)
    assert list(folder.iterdir()) == []
    token = started(bed, folder)
    valid = [one for one in bed.store.tokens.newest(9) if one.revoked_at is None]
    assert valid == [found(bed, token)]


def test_an_unwritable_folder_is_reported(bed: Bed, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (folder / "admin-token").mkdir()
    with pytest.raises(SettingsRefused, match="admin-token"):
        started(bed, folder)


# --- the token of the settings ---------------------------------------------------------------------------------------

GIVEN = callers.write(b"\x09" * 32)


def test_replicas_share_the_token_of_the_settings(any_bed: Bed, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    for replica in (folder, tmp_path / "two", folder):
        assert started(any_bed, replica, GIVEN) == GIVEN, "where `spot` finds it"
        assert stat.S_IMODE((replica / "admin-token").stat().st_mode) == 0o600
    [made] = any_bed.store.tokens.newest(9)
    assert (made.scopes, made.owner, made.valid(any_bed.clock.now())) == ({Scope.ADMIN}, "local", True)
    assert found(any_bed, GIVEN) == made
    assert [str(stored.event.kind) for stored in any_bed.store.events(None, 0, 10)] == ["token_created"]


def test_two_replicas_that_store_it_at_once_leave_one_row(any_bed: Bed, folder: Path) -> None:
    """The second one has looked before the first one wrote."""
    store, find = any_bed.store, any_bed.store.tokens.find
    started(any_bed, folder, GIVEN)
    (folder / "admin-token").unlink()
    with pytest.MonkeyPatch.context() as late:
        late.setattr(store.tokens, "find", lambda digest: None)
        assert started(any_bed, folder, GIVEN) == GIVEN
    assert store.tokens.find == find
    assert len(store.tokens.newest(9)) == 1


def test_it_replaces_the_folders_own_which_is_revoked(any_bed: Bed, folder: Path) -> None:
    own = started(any_bed, folder)
    assert started(any_bed, folder, GIVEN) == GIVEN
    before, after = found(any_bed, own), found(any_bed, GIVEN)
    assert before is not None
    assert after is not None
    assert (before.revoked_at is None, after.revoked_at is None) == (False, True)


def test_one_that_was_revoked_is_not_stored_again(
    any_bed: Bed, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also long after, when rows of revoked tokens are deleted, and in a folder that has never seen it."""
    started(any_bed, folder, GIVEN)
    made = found(any_bed, GIVEN)
    assert made is not None
    revoke(any_bed.parts, any_bed.services.identity, made.token_id, OPS)
    any_bed.store.prune(any_bed.clock.now() + 91 * 86_400.0, 1000)
    (tmp_path / "two").mkdir()
    started(any_bed, tmp_path / "two", GIVEN)
    [still] = any_bed.store.tokens.newest(9)
    assert not still.valid(any_bed.clock.now())
    assert "set another admin_token" in caplog.text
    assert GIVEN not in caplog.text


@pytest.mark.parametrize("text", ["hunter2", GIVEN[:-1] + "!", GIVEN + "x"])
def test_another_text_is_refused_and_not_repeated(bed: Bed, folder: Path, text: str) -> None:
    with pytest.raises(SettingsRefused, match="spot token generate") as refused:
        started(bed, folder, text)
    assert text not in refused.value.detail
    assert list(folder.iterdir()) == []


def test_an_administrator_has_no_cap(bed: Bed) -> None:
    """It could create a token without one."""
    for caps in (Caps(usd_per_day=1.0), Caps(usd_per_run=1.0), Caps(plans_only=True)):
        with pytest.raises(InvalidRequest, match="scope admin"):
            create(bed.parts, TokenRequest("ci", scopes=frozenset({Scope.ADMIN}), caps=caps), OPS)


def test_a_token_shows_its_caps(bed: Bed) -> None:
    made = create(bed.parts, TokenRequest("ci", caps=Caps(20.0, 5.0)), OPS)
    assert (made["max_usd_per_day"], made["max_usd_per_run"], made["plans_only"]) == (20.0, 5.0, False)
    token = bed.store.tokens.get(made["token_id"])
    assert token is not None
    assert token.caller("").caps == Caps(20.0, 5.0)
    assert asker_json(bed.parts, token.caller(""))["counted_usd"] == 0.0
