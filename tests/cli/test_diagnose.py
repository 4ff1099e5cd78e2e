"""`spot diagnose`: the same verdict from files alone, whatever they are; and the pages about causes."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.server import diagnose as files
from supervisor.domain.causes import Cause
from supervisor.lifecycle.diagnosis import reading

OOM = {"exit_code": 137, "oom_kill_before": 0, "oom_kill_after": 1}
LOG = """step 3
Traceback (most recent call last):
  File "train.py", line 31, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.
"""
HEADLINE = "host_oom (certain). Would it be restarted? No: the same configuration would be killed again."


def test_loose_facts_give_the_verdict_without_a_supervisor(run_cli: Any, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(OOM))
    shown = run_cli("diagnose", str(facts))
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0] == f"{facts}: {HEADLINE}"
    assert shown.lines[-1] == "  [rule U9.counter · docs/causes/host_oom.md]"
    document = json.loads(run_cli("diagnose", str(facts), "-o", "json").out)
    assert (document["verdict"]["cause"], document["ended"]) == ("host_oom", True)


def test_a_log_and_facts_together(run_cli: Any, tmp_path: Path) -> None:
    log, facts = tmp_path / "train.log", tmp_path / "facts.json"
    log.write_text("step 1\nTraceback (most recent call last):\nModuleNotFoundError: No module named 'timm'\n")
    facts.write_text('{"exit_code": 1}')
    shown = run_cli("diagnose", str(log), str(facts))
    assert shown.lines[0].startswith(f"{log}, {facts}: user_error (")
    assert "No module named 'timm'" in shown.out


def test_an_evidence_document_of_a_run(run_cli: Any, tmp_path: Path) -> None:
    kept = {
        "version": 1, "cause": "killed", "readings": {"end": [], "release": []}, "log_tail": [], "agent": None,
        "exit": {"code": None, "signal": 9, "sent_by_us": False, "ran_s": 9.0, "oom_kills": 2},
    }  # fmt: skip
    document = tmp_path / "a3.json"
    document.write_text(json.dumps(kept))
    assert run_cli("diagnose", str(document)).lines[0] == f"{document}: {HEADLINE}"
    twice = run_cli("diagnose", str(document), str(document))
    assert (twice.code, twice.out) == (2, "")
    assert "stands for itself" in twice.err


def test_standard_input(run_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(OOM).encode())))
    assert run_cli("diagnose", "-").lines[0] == f"standard input: {HEADLINE}"
    assert run_cli("diagnose", "-", "-").code == 2


def test_what_is_no_text_or_no_file_is_refused_with_a_reason(run_cli: Any, tmp_path: Path) -> None:
    binary = tmp_path / "core"
    binary.write_bytes(b"\x7fELF\0\0\0\0" * 100)
    for name, reason in (
        (str(binary), "is not a text"),
        (str(tmp_path), "is a folder. Name its files, such as"),
        (str(tmp_path / "none.log"), "cannot be read: No such file or directory"),
        ("/dev/zero", "is no file with an end"),
        ("a\0b", "cannot be read"),
    ):
        refused = run_cli("diagnose", name)
        assert (refused.code, refused.out) == (2, "")
        assert reason in refused.err
        assert "FILE_UNREADABLE" in refused.err
    assert run_cli("diagnose").code == 2


def test_what_means_nothing_is_not_explained(run_cli: Any, tmp_path: Path) -> None:
    """Broken variant: an empty file was an end for an unknown reason."""
    for content in (b"", b"step 1\nstep 2\n", b"\xff\xfe\x80 \xe4\n", b"{torn", b"[1, 2]", b'{"a": ' * 50_000):
        file = tmp_path / "x.log"
        file.write_bytes(content)
        shown = run_cli("diagnose", str(file))
        assert (shown.code, shown.err) == (0, "")
        assert "nothing in the evidence says that the run has ended" in shown.lines[0], content[:20]


def test_half_of_a_surrogate_pair_is_shown_as_a_question_mark(run_cli: Any, tmp_path: Path) -> None:
    """It is legal JSON. Broken variant: a traceback, because it cannot be printed."""
    file = tmp_path / "facts.json"
    file.write_text('{"exit_code": 1, "last_line": "ValueError: \\ud800 x"}')
    assert "ValueError: ? x" in run_cli("diagnose", str(file)).out
    assert "ValueError: ? x" in run_cli("diagnose", str(file), "-o", "json").out


def test_of_a_huge_log_both_ends_are_read(run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the whole file was in memory."""
    for name, size in (("PIECE_BYTES", 1000), ("HEAD_BYTES", 2000), ("TAIL_BYTES", 3000)):
        monkeypatch.setattr(files, name, size)
    file = tmp_path / "train.log"
    file.write_bytes(b"first line\n" + b"x" * 20_000 + b"\nModuleNotFoundError: No module named 'timm'\n")
    (tmp_path / "facts.json").write_text('{"exit_code": 1}')
    shown = run_cli("diagnose", str(file), str(tmp_path / "facts.json"))
    assert "No module named 'timm'" in shown.out
    assert shown.err == f"{file}: 15.1 kB in its middle were not read; its beginning and its end were.\n"


def test_a_pipe_of_any_length_is_read_once_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("PIECE_BYTES", 1000), ("HEAD_BYTES", 2000), ("TAIL_BYTES", 3000)):
        monkeypatch.setattr(files, name, size)
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(b"head" + b"x" * 50_000 + b"tail")

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reader, "rb") as pipe:
        log, left_out = files._ends(pipe)
    thread.join()
    assert (log[:4], log[-4:]) == (b"head", b"tail")
    assert len(log) - 1 + left_out == 50_008
    assert 4000 <= len(log) <= 5001


def test_the_pages_of_the_causes_are_those_that_the_tables_draw(run_cli: Any, tmp_path: Path) -> None:
    drawn = tmp_path / "causes"
    shown = run_cli("docs", "causes", str(drawn))
    assert (shown.code, shown.out) == (0, f"{len(Cause) + 1} pages in {drawn}\n")
    kept = Path(__file__).parents[2] / "docs" / "causes"
    names = {path.name for path in drawn.iterdir()}
    assert names == {path.name for path in kept.iterdir()}
    stale = [name for name in sorted(names) if (drawn / name).read_text() != (kept / name).read_text()]
    assert stale == [], "write them again: spot docs causes docs/causes"


def test_a_rule_that_changes_would_be_seen_on_its_page(run_cli: Any, tmp_path: Path) -> None:
    """The broken variant: one rule fewer."""
    from supervisor.cli.server.docs import causes_markdown
    from supervisor.cli.server.server import rules_of_causes

    rules = rules_of_causes()
    whole = causes_markdown(rules)
    rules["host_oom"] = [rule for rule in rules["host_oom"] if rule["rule"] != "U9.counter"]
    changed = causes_markdown(rules)
    assert [name for name in whole if whole[name] != changed[name]] == ["host_oom.md"]


def test_a_folder_that_cannot_be_written(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run_cli("docs", "causes", str(tmp_path / "file" / "causes"))
    assert refused.code != 0


def test_every_fact_that_the_page_names_is_read() -> None:
    """A name that the reader does not know would be ignored without a word."""
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text()
    table = page.partition("| names | what |\n")[2].partition("\n\n")[0]
    names = [name for row in table.splitlines() for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])]
    assert {"exit_code", "oom_kill_before", "xid", "platform_state", "free_bytes"} <= set(names)
    base = {"exit_code": 1, "oom_kill_after": 9, "oom_kill_before": 3}
    for name in names:
        read = reading.of_files(b"", {key: value for key, value in base.items() if key != name})
        changed = [
            reading.of_files(b"", {**base, name: value}) != read for value in (7, "notice", "cut_off", [5], True)
        ]
        assert any(changed), name


def test_the_page_shows_a_real_verdict(run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text(LOG)
    Path("facts.json").write_text('{"exit_code": 1, "ran_s": 95, "step": 3}')
    page = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text(encoding="utf-8")
    on_page = page.partition("$ spot diagnose train.log facts.json\n")[2].partition("```")[0]
    assert run_cli("diagnose", "train.log", "facts.json").out == on_page
