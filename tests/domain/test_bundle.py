"""Archives made by hand, most of them hostile: none may name a path outside, and none may grow without end."""

from __future__ import annotations

import gzip
import hashlib
import io
import posixpath
import tarfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contract import bundle
from supervisor.contract.bundle import BundleRefused, Member, Opened, Tree, link_problem, path_problem

Entry = tuple[tarfile.TarInfo, bytes]


def entry(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, len(content)
    return info, content


def tar_of(*entries: Entry, form: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def pieces(raw: bytes, size: int = 1000) -> Iterator[bytes]:
    return (raw[at : at + size] for at in range(0, len(raw), size))


def opened(raw: bytes) -> tuple[dict[str, bytes], Opened]:
    found = Opened(pieces(raw))
    return {member.path: b"".join(content) for member, content in found.files()}, found


def refused(raw: bytes) -> str:
    with pytest.raises(BundleRefused) as told:
        opened(raw)
    return str(told.value)


GOOD = tar_of(
    entry("a/run.sh", b"echo\n" * 900, mode=0o755),
    entry("b.py", b"pass\n"),
    entry("empty"),
    entry("latest", kind=tarfile.SYMTYPE, link="a/run.sh"),
    entry("ä" * 90 + "/" + "x" * 120, b"long"),
)


def test_a_good_archive_is_read_as_it_was_written() -> None:
    content, found = opened(gzip.compress(GOOD))
    assert content["a/run.sh"] == b"echo\n" * 900
    assert content["ä" * 90 + "/" + "x" * 120] == b"long"
    assert found.sha256 == hashlib.sha256(GOOD).hexdigest()
    members = found.tree.members
    assert members["a/run.sh"] == Member("a/run.sh", 4500, True)
    assert members["b.py"] == Member("b.py", 5, False)
    assert members["latest"].link == "a/run.sh"
    assert found.tree.size == 4509


def test_the_hash_is_of_the_tar_whatever_gzip_made_of_it() -> None:
    hashes = {opened(gzip.compress(GOOD, level))[1].sha256 for level in (0, 1, 9)}
    assert hashes == {hashlib.sha256(GOOD).hexdigest()}


def test_unread_contents_are_hashed_too() -> None:
    found = Opened(pieces(gzip.compress(GOOD)))
    assert len([member for member, _ in found.files()]) == 5
    assert found.sha256 == hashlib.sha256(GOOD).hexdigest()


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_the_archives_of_other_programs_are_read_too(form: int) -> None:
    raw = tar_of(entry("a", kind=tarfile.DIRTYPE), entry("a/" + "x" * 90, b"1"), form=form)
    assert opened(gzip.compress(raw))[0] == {"a/" + "x" * 90: b"1"}


@pytest.mark.parametrize(
    ("hostile", "word"),
    [
        ([entry("../out", b"1")], "'../out'"),
        ([entry("/etc/cron.d/x", b"1")], "'/etc/cron.d/x'"),
        ([entry("a/../../b", b"1")], "does not stay inside"),
        ([entry("./a", b"1")], "does not stay inside"),
        ([entry("a//b", b"1")], "does not stay inside"),
        ([entry("a\nb", b"1")], "control characters"),
        ([entry("x" * 300, b"1")], "too long"),
        ([entry("a/" * 600 + "b", b"1")], "too long"),
        ([entry("l", kind=tarfile.SYMTYPE, link="/etc/passwd")], "/etc/passwd"),
        ([entry("a/l", kind=tarfile.SYMTYPE, link="../../x")], "out of the folder"),
        ([entry("a", kind=tarfile.LNKTYPE, link="b")], "neither a file nor"),
        ([entry("dev", kind=tarfile.CHRTYPE)], "neither a file nor"),
        ([entry("pipe", kind=tarfile.FIFOTYPE)], "neither a file nor"),
        ([entry("a", b"1"), entry("a", b"2")], "twice"),
        ([entry("a", b"1"), entry("a/b", b"2")], "below 'a'"),
        ([entry("a/b", b"1"), entry("a", b"2")], "the folder of 'a/b'"),
        ([entry("up", kind=tarfile.SYMTYPE, link="."), entry("up/x", b"2")], "below 'up'"),
        ([entry("a/x", b"1"), entry("a", kind=tarfile.SYMTYPE, link="b")], "the folder of 'a/x'"),
    ],
)
def test_a_path_that_could_lead_out_is_refused(hostile: list[Entry], word: str) -> None:
    assert word in refused(gzip.compress(tar_of(*hostile)))


@pytest.mark.parametrize(
    ("path", "target", "fine"),
    [
        ("l", "a", True),
        ("l", "a/./b", True),
        ("a/l", "../b", True),
        ("a/b/l", "../../c", True),
        ("l", ".", True),
        ("l", "..", False),
        ("a/l", "../..", False),
        ("l", "d/../../x", False),
        ("l", "d/..", False),  # where d is a link to the top, this would be outside
        ("l", "/a", False),
        ("l", "a\x00b", False),
        ("l", "", False),
        ("l", "./" * 3000 + "a", False),
    ],
)
def test_links_stay_inside(path: str, target: str, fine: bool) -> None:
    assert (link_problem(path, target) is None) == fine


def test_no_chain_of_allowed_links_leads_out() -> None:
    """The kernel's own path walk, over every pair of links that are allowed together."""
    targets = [".", "..", "a", "a/b", "a/..", "../a", "b/a", "b", "../..", "b/../..", "a/b/../../.."]
    for first in targets:
        for second in targets:
            links = {"b": first, "a/b": second}
            if any(link_problem(path, target) is not None for path, target in links.items()):
                continue
            for start in ("b", "a/b", "b/b", "b/a/b", "a/b/b"):
                assert not _leaves(start, links), (links, start)


def test_the_walk_finds_paths_that_a_check_of_the_text_would_allow() -> None:
    """Broken on purpose: a rule that only checks where the text of the target leads."""
    links = {"b": ".", "a/b": "../b/.."}
    assert all(
        not posixpath.normpath(posixpath.join(posixpath.dirname(p), t)).startswith("..") for p, t in links.items()
    )
    assert _leaves("a/b", links)
    assert link_problem("a/b", links["a/b"]) is not None


def _leaves(path: str, links: dict[str, str]) -> bool:
    done: list[str] = []
    left, steps = path.split("/"), 0
    while left and steps < 100:
        part, steps = left.pop(0), steps + 1
        if part == "..":
            if not done:
                return True
            done.pop()
        elif part != ".":
            target = links.get("/".join([*done, part]))
            if target is None:
                done.append(part)
            else:
                left = [*target.split("/"), *left]
    return False


def test_a_refusal_is_always_short() -> None:
    for hostile in (
        entry("x" * 100_000 + "/../y"),
        entry("x" * 100_000, kind=tarfile.FIFOTYPE),
        entry("l", kind=tarfile.SYMTYPE, link="/" + "x" * 100_000),
        entry("l", kind=tarfile.SYMTYPE, link="../" * 30_000),
    ):
        assert len(refused(gzip.compress(tar_of(hostile)))) < 300


def test_names_that_are_not_text_are_refused() -> None:
    assert "UTF-8" in (path_problem("a\udcff") or "")
    assert path_problem("a/ä.py") is None


def test_few_bytes_do_not_become_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_TAR_BYTES", 3_000_000)
    bomb = gzip.compress(tar_of(entry("zeros", bytes(50_000_000))))
    assert len(bomb) < 100_000
    taken = 0

    def counted() -> Iterator[bytes]:
        nonlocal taken
        for piece in pieces(bomb, 512):
            taken += len(piece)
            yield piece

    with pytest.raises(BundleRefused, match="unpacks to more than"):
        list(Opened(counted()).files())
    assert taken < len(bomb) / 4, "it is not unpacked to its end first"


def test_sizes_and_numbers_are_bounded() -> None:
    tree = Tree()
    tree.add(Member("a", bundle.MAX_BYTES))
    with pytest.raises(BundleRefused, match="more than 100 MB"):
        tree.add(Member("b", 1))
    many = Tree()
    for number in range(bundle.MAX_FILES):
        many.add(Member(str(number)))
    with pytest.raises(BundleRefused, match="more than 20000 files"):
        many.add(Member("more"))


def test_damaged_archives_are_refused() -> None:
    whole = gzip.compress(GOOD)
    assert refused(whole[:-4]) == "the archive ends too early"
    assert refused(whole[: len(whole) // 2]) == "the archive ends too early"
    assert refused(b"") == "the archive ends too early"
    assert "not a gzip" in refused(b"plain text, no archive")
    assert "something follows" in refused(whole + b"more")
    assert "something follows" in refused(whole + gzip.compress(GOOD))
    broken = bytearray(whole)
    broken[-6] ^= 1  # the checksum of the gzip
    assert "damaged" in refused(bytes(broken))
    assert "not a tar" in refused(gzip.compress(b"x" * 5000))
    assert refused(gzip.compress(GOOD[:3000])) != ""


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
@pytest.mark.parametrize("before", [b"", GOOD[: -tarfile.RECORDSIZE // 2]])
def test_headers_upon_headers_are_refused(kind: bytes, before: bytes) -> None:
    """The library reads each of them inside the previous one, even when it opens the archive."""
    info, content = entry("more", b"12 abc=defg\n", kind)
    header = info.tobuf() + content.ljust(tarfile.BLOCKSIZE, b"\0")
    assert "not a tar" in refused(gzip.compress(before + header * 3000 + GOOD, 1))


def test_bytes_after_the_last_member_belong_to_the_hash() -> None:
    longer = GOOD + b"hidden" * 1000
    assert opened(gzip.compress(longer))[1].sha256 == hashlib.sha256(longer).hexdigest()


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8))
def test_no_header_breaks_the_reader(at: int, patch: bytes) -> None:
    """Any content of the tar is read or refused, and no name leads out."""
    raw = GOOD[:at] + patch + GOOD[at + len(patch) :]
    try:
        content, found = opened(gzip.compress(raw, 1))
    except BundleRefused:
        return
    assert found.sha256 == hashlib.sha256(raw).hexdigest()
    assert all(path_problem(path) is None for path in content)


def test_the_errors_of_the_source_pass() -> None:
    def away() -> Iterator[bytes]:
        yield gzip.compress(GOOD, 0)[:2000]
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        list(Opened(away()).files())
