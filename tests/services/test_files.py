"""Files of a run that can be listed and read: the baton's files, logs, evidence, the bundle; nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Done, FileEntry, Pointer
from supervisor.contract.runfiles import LeftOut, SavedFile, SavedResults, encode_saved, manifest_sha256
from supervisor.domain.errors import FileChanged, FileUnknown, RangeRefused, Unavailable
from supervisor.domain.run import Files, Outcome, Run
from supervisor.domain.status import Status
from supervisor.services.files.files import HASHED_BYTES, PAGE_MAX, list_files
from supervisor.services.files.filestream import CutShort, open_file
from tests.services.bed import Bed

ID = "digits-7"
FOLDER = runfiles.folder(ID)
MODEL, PLOT = b"model" * 100, b"plot"
HOSTILE = [
    "baton.json",
    "results",
    "results/",
    "results/g1/../../baton.json",
    "results/g1/../g1/model.npz",
    "results//g1/model.npz",
    "/results/g1/model.npz",
    "results/./g1/model.npz",
    "logs/../baton.json",
    "logs/a1/../../baton.json",
    "evidence/..",
    "logs/%2e%2e/baton.json",
    "../other-run/results/g1/model.npz",
    "code/../runs/digits-7/baton.json",
    "code/" + "0" * 64 + ".tar.gz",
    "instances/1.json",
    ".stop",
    "run_manifest.json",
    "checkpoints/999-a1/in-flight",
    "results/g2/model.npz",
    "logs/\x00",
    "logs/a1/\n",
    "logs/" + "x" * 600,
]


def entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(name, len(data), hashlib.sha256(data).hexdigest())


def put_all(bed: Bed, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        bed.objects.put(FOLDER + path, data)


def write_baton(bed: Bed, **fields: Any) -> None:
    bed.objects.put(runfiles.baton(ID), batons.encode(Baton("sup", 1, **fields)))


def furnished(bed: Bed, finished: bool = True) -> Run:
    """A run with one or two files of each kind."""
    bed.submit(ID)
    put_all(
        bed,
        {
            "results/g1/model.npz": MODEL,
            "results/g1/plots/a.png": PLOT,
            "checkpoints/100-a1/state": b"100",
            "checkpoints/50-a1/state": b"50",
            "checkpoints/999-a1/in-flight": b"half",
            "logs/a1/00000000.log": b"line\n",
            "evidence/a1.json": b"{}",
            "instances/1.json": b"{}",
            "run_manifest.json": b"{}",
        },
    )
    prefix = runfiles.results(ID, 1)
    files = (entry("model.npz", MODEL), entry("plots/a.png", PLOT))
    write_baton(
        bed,
        checkpoint=Pointer(100, FOLDER + "checkpoints/100-a1/", (entry("state", b"100"),)),
        best=(Pointer(50, FOLDER + "checkpoints/50-a1/", (entry("state", b"50"),)),),
        previous=(Pointer(50, FOLDER + "checkpoints/50-a1/", (entry("state", b"50"),)),),
        done=Done("1.1.1", prefix, files) if finished else None,
    )
    if not finished:
        return bed.run(ID)
    outcome = Outcome(manifest_sha256(files), 2, len(MODEL) + len(PLOT), bed.clock.now(), 100)
    return bed.end(ID, Status.COMPLETED, files=Files(outcome=outcome))


def listed(bed: Bed, run: Run, *kinds: str, **more: Any) -> list[tuple[str, bool]]:
    answer = list_files(bed.objects, run, kinds, **more)
    return [(file["path"], file["sha256"] is not None) for file in answer["files"]]


def read(bed: Bed, run: Run, path: str, range_: str = "", if_range: str = "") -> bytes:
    return b"".join(open_file(bed.objects, run, path, range_=range_, if_range=if_range).chunks)


def test_every_kind_is_listed_with_its_metadata(bed: Bed) -> None:
    run = furnished(bed)
    assert listed(bed, run) == [
        ("checkpoints/100-a1/state", True),
        ("checkpoints/50-a1/state", True),
        ("evidence/a1.json", True),
        ("logs/a1/00000000.log", True),
        ("results/g1/model.npz", True),
        ("results/g1/plots/a.png", True),
    ]
    answer = list_files(bed.objects, run, ["results"])
    assert answer["complete"] is True
    assert run.files.outcome is not None
    assert answer["results_sha256"] == run.files.outcome.results_sha256
    model = answer["files"][0]
    assert (model["kind"], model["size"], model["sha256"]) == ("results", 500, entry("", MODEL).sha256)
    assert model["updated"].endswith("Z")


def test_unfinished_results_are_listed_without_checksums(bed: Bed) -> None:
    run = furnished(bed, finished=False)
    assert listed(bed, run, "results") == [("results/g1/model.npz", False), ("results/g1/plots/a.png", False)]
    answer = list_files(bed.objects, run, ["results"])
    assert (answer["complete"], answer["results_sha256"]) == (False, None)
    assert read(bed, run, "results/g1/model.npz") == MODEL


def test_the_work_of_an_earlier_generation_is_not_this_ones(bed: Bed) -> None:
    run = replace(furnished(bed), generation=2, files=Files())
    assert listed(bed, run, "results") == []
    with pytest.raises(FileUnknown):
        open_file(bed.objects, run, "results/g1/model.npz")


def test_a_listing_comes_in_pages(bed: Bed) -> None:
    run = furnished(bed)
    seen: list[str] = []
    after = ""
    while True:
        answer = list_files(bed.objects, run, (), 2, after)
        assert len(answer["files"]) <= 2
        seen += [file["path"] for file in answer["files"]]
        if answer["next_cursor"] is None:
            break
        after = answer["next_cursor"]
    assert seen == sorted(seen)
    assert len(seen) == 6


def test_pages_of_very_many_files_cost_no_listing_each(bed: Bed) -> None:
    run = furnished(bed)
    files = tuple(entry(f"part-{n:05d}", b"") for n in range(PAGE_MAX + 1))
    write_baton(bed, done=Done("1.1.1", runfiles.results(ID, 1), files))
    before, seen, after = bed.objects.calls["pages"], [], ""
    while after is not None:
        page = list_files(bed.objects, run, ("results",), 400, after)
        seen += [file["path"] for file in page["files"]]
        after = page["next_cursor"]
    assert seen == [f"results/g1/{one.name}" for one in files]
    assert bed.objects.calls["pages"] == before


def test_many_logs_are_listed_without_reading_them(bed: Bed) -> None:
    run = furnished(bed)
    put_all(bed, {"logs/a1/00000001.log": b"x" * HASHED_BYTES})
    assert listed(bed, run, "logs") == [("logs/a1/00000000.log", False), ("logs/a1/00000001.log", False)]


def test_the_code_bundle_of_the_run(bed: Bed) -> None:
    run = furnished(bed)
    run = replace(run, policy=replace(run.policy, code="ab" * 32))
    assert listed(bed, run, "code") == []
    bed.objects.put(runfiles.code("ab" * 32), b"tar")
    assert listed(bed, run, "code") == [(f"code/{'ab' * 32}.tar.gz", False)]
    assert read(bed, run, f"code/{'ab' * 32}.tar.gz") == b"tar"
    with pytest.raises(FileUnknown):
        open_file(bed.objects, furnished_again(run), f"code/{'ab' * 32}.tar.gz")


def furnished_again(run: Run) -> Run:
    """The same run without a bundle."""
    return replace(run, policy=replace(run.policy, code=None))


@pytest.mark.parametrize("path", HOSTILE)
def test_nothing_else_can_be_read(bed: Bed, path: str) -> None:
    run = furnished(bed)
    with pytest.raises(FileUnknown):
        open_file(bed.objects, run, path)


def test_could_not_read_is_not_empty(bed: Bed) -> None:
    run = furnished(bed)
    bed.objects.fail_reads = True
    with pytest.raises(Unavailable):
        list_files(bed.objects, run, ())
    bed.objects.fail_reads = False
    odd = batons.encode(Baton("sup", 1, done=Done("of nobody", "p/", ())))
    for raw in (b"{torn", odd):
        bed.objects.put(runfiles.baton(ID), raw)
        with pytest.raises(Unavailable, match="cannot be parsed"):
            list_files(bed.objects, run, ("results",))
        with pytest.raises(Unavailable):
            open_file(bed.objects, run, "results/g1/model.npz")


def test_a_pull_of_many_files_reads_their_list_once(bed: Bed, monkeypatch: Any) -> None:
    """Broken variant: the baton with 10,000 files was parsed for each file."""
    run, decode, seen = furnished(bed), batons.decode, []
    monkeypatch.setattr(batons, "decode", lambda raw: seen.append(raw) or decode(raw))
    for path, data in (("results/g1/model.npz", MODEL), ("results/g1/plots/a.png", PLOT)) * 2:
        assert read(bed, run, path) == data
    assert len(seen) <= 1
    write_baton(bed)
    with pytest.raises(FileUnknown):
        open_file(bed.objects, run, "checkpoints/100-a1/state")


@pytest.mark.parametrize(
    ("range_", "begin", "end"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=10-", 10, 500),
        ("bytes=-7", 493, 500),
        ("bytes=490-9999", 490, 500),
        ("bytes=-9999", 0, 500),
    ],
)
def test_a_range(bed: Bed, range_: str, begin: int, end: int) -> None:
    found = open_file(bed.objects, furnished(bed), "results/g1/model.npz", range_=range_)
    assert (found.begin, found.end, found.size, found.part) == (begin, end, 500, True)
    assert b"".join(found.chunks) == MODEL[begin:end]
    assert found.sha256 == entry("", MODEL).sha256, "of the whole file"


@pytest.mark.parametrize("range_", ["bytes=500-", "bytes=9999-10000", "bytes=-0"])
def test_a_range_behind_the_end(bed: Bed, range_: str) -> None:
    with pytest.raises(RangeRefused):
        open_file(bed.objects, furnished(bed), "results/g1/model.npz", range_=range_)


@pytest.mark.parametrize("range_", ["bytes=0-1,5-6", "lines=1-2", "bytes=9-3", "bytes=-", "bytes=a-b", "x"])
def test_another_form_of_range_is_ignored(bed: Bed, range_: str) -> None:
    found = open_file(bed.objects, furnished(bed), "results/g1/model.npz", range_=range_)
    assert (found.part, found.end) == (False, 500)


def test_a_range_of_another_content_is_not_given(bed: Bed) -> None:
    run = furnished(bed)
    tag = open_file(bed.objects, run, "results/g1/model.npz").tag
    assert open_file(bed.objects, run, "results/g1/model.npz", range_="bytes=5-", if_range=tag).part
    put_all(bed, {"results/g1/model.npz": b"n" * 500})
    again = open_file(bed.objects, run, "results/g1/model.npz", range_="bytes=5-", if_range=tag)
    assert (again.part, again.begin, again.tag == tag) == (False, 0, False)


def test_an_object_that_changes_while_it_is_opened_is_opened_again(bed: Bed, monkeypatch: Any) -> None:
    run, plain = furnished(bed), bed.objects.read
    changes = [b"second" * 10]

    def read_then_change(key: str, *part: Any) -> Any:
        chunks = list(plain(key, *part))
        if key.endswith("00.log") and changes:
            bed.objects.put(key, changes.pop())
        return iter(chunks)

    monkeypatch.setattr(bed.objects, "read", read_then_change)
    found = open_file(bed.objects, run, "logs/a1/00000000.log")
    assert (found.size, b"".join(found.chunks)) == (60, b"second" * 10)
    changes += [b"a", b"b", b"c"]
    with pytest.raises(FileChanged):
        open_file(bed.objects, run, "logs/a1/00000000.log")


def test_a_stream_that_ends_early_breaks(bed: Bed, monkeypatch: Any) -> None:
    run = furnished(bed)
    monkeypatch.setattr(bed.objects, "read", lambda key, *part: iter([b"only"]))
    with pytest.raises(CutShort):
        read(bed, run, "logs/a1/00000000.log")


def saved(bed: Bed, content: bytes, left_out: tuple[LeftOut, ...] = ()) -> FileEntry:
    """A manifest of results in the store, with its files."""
    key = runfiles.saved_result(ID, "1.2.1", 3, "ab")
    bed.objects.put(key, content)
    file = entry("a\udcff.csv", content)
    manifest = SavedResults(2, 120, (SavedFile(file.name, file.size, file.sha256, key),), (), left_out)
    name = runfiles.saved_result(ID, "1.2.1", 4, "manifest.json")
    bed.objects.put(name, encode_saved(manifest))
    return FileEntry(name, 0, "")


def test_until_the_work_is_done_the_last_saved_results_count(bed: Bed) -> None:
    bed.submit(ID)
    run = bed.run(ID)
    newest = saved(bed, b"120 rows", (LeftOut("big.bin", "too large"),))
    write_baton(bed, checkpoint=Pointer(120, FOLDER + "checkpoints/120-a2/", (), newest))
    answer = list_files(bed.objects, run, ["results"])
    assert [(file["path"], file["size"]) for file in answer["files"]] == [("results/g1/a%FF.csv", 8)]
    assert answer["partial_results"] == {
        "attempt": 2,
        "step": 120,
        "left_out": [{"name": "big.bin", "why": "too large"}],
    }
    assert read(bed, run, "results/g1/a%FF.csv") == b"120 rows"
    assert answer["results_sha256"] is None


def test_results_saved_at_an_end_count_before_those_of_a_checkpoint(bed: Bed) -> None:
    bed.submit(ID)
    write_baton(
        bed,
        checkpoint=Pointer(100, FOLDER + "checkpoints/100-a1/", (), FileEntry("nowhere", 1, "")),
        last=saved(bed, b"newest"),
    )
    assert read(bed, bed.run(ID), "results/g1/a%FF.csv") == b"newest"


def test_a_manifest_names_no_object_of_another_run(bed: Bed) -> None:
    """A training can write the manifest. Readers of this run's files could read another run's files through it."""
    bed.submit(ID)
    theirs = "runs/another/baton.json"
    bed.objects.put(theirs, b"nonce of another run")
    up = runfiles.saved_results(ID) + "1.2.1/1-/../../../../../another/baton.json"
    files = (SavedFile("theirs", 20, "", theirs), SavedFile("up", 20, "", up))
    name = runfiles.saved_result(ID, "1.2.1", 4, "manifest.json")
    raw = encode_saved(SavedResults(2, 120, files))
    bed.objects.put(name, raw)
    write_baton(bed, last=FileEntry(name, len(raw), ""))
    assert list_files(bed.objects, bed.run(ID), ["results"])["files"] == []
    for path in ("results/g1/theirs", "results/g1/up"):
        with pytest.raises(FileUnknown):
            read(bed, bed.run(ID), path)
    elsewhere = "runs/another/results/saved/1.1.1/1-manifest.json"
    bed.objects.put(elsewhere, raw)
    write_baton(bed, last=FileEntry(elsewhere, len(raw), ""))
    assert list_files(bed.objects, bed.run(ID), ["results"])["partial_results"] is None


def test_a_newer_file_of_the_final_upload_counts_before_a_saved_one(bed: Bed) -> None:
    bed.submit(ID)
    run = bed.run(ID)
    write_baton(bed, last=saved(bed, b"saved"))
    bed.clock.advance(5)
    put_all(bed, {"results/g1/a%FF.csv": b"final", "results/g1/b.csv": b"b"})
    assert read(bed, run, "results/g1/a%FF.csv") == b"final"
    assert [path for path, _ in listed(bed, run, "results")] == ["results/g1/a%FF.csv", "results/g1/b.csv"]


def test_verified_results_are_not_partial_and_a_lost_manifest_hides_nothing_else(bed: Bed) -> None:
    run = furnished(bed)
    assert list_files(bed.objects, run, ["results"])["partial_results"] is None
    write_baton(bed, last=FileEntry("runs/digits-7/results/saved/1.1.1/1-manifest.json", 1, ""))
    assert list_files(bed.objects, run, ["results"])["partial_results"] is None
    assert [path for path, _ in listed(bed, run, "results")] == ["results/g1/model.npz", "results/g1/plots/a.png"]
