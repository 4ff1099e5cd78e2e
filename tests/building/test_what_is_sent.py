"""What travels to a build: the list is proven by listing the archive, and what each program is given."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest

from supervisor.domain.errors import ImageBuildRefused
from supervisor.images import build as ways
from supervisor.images import context
from supervisor.images.context import TIME_S, chosen, lay_out
from tests.building.scene import Scene

KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
SENT = [".spot/agent.pyz", "Dockerfile", "conf/a.yaml", "requirements.txt", "src/deep/model.py", "train.py"]
LEFT_HERE = {
    ".env": "TOKEN=x",
    "rav_spot.env": "NOTIFY_SECRET=x",
    ".git/config": "[core]",
    ".ssh/id_ed25519.py": "no code",
    "data/images.bin": "00",
    "data/train-images-idx3-ubyte": "00",
    "checkpoints/last.json": "{}",
    "my_venv/pyvenv.cfg": "home = x",
    "my_venv/lib/site.py": "pass",
    "src/__pycache__/model.cpython-311.py": "pass",
    "conf/service-account.json": "{}",
    "conf/innocent.json": '{"private_key": "%s"}' % KEY.replace("\n", "\\n"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "somebody's"
    files = {name: "x = 1\n" for name in SENT if name not in (".spot/agent.pyz", "Dockerfile")}
    for name, text in (files | LEFT_HERE).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def packed(folder: Path, room: Path) -> dict[str, tarfile.TarInfo]:
    """The archive of way 2, by name."""
    room.mkdir()
    lay_out(chosen(folder), room / "source")
    ways.pack(room / "source", room / "source.tgz")
    with tarfile.open(room / "source.tgz") as archive:
        return {member.name: member for member in archive.getmembers()}


def test_the_archive_holds_code_and_its_settings_and_nothing_else(project: Path, tmp_path: Path) -> None:
    assert sorted(packed(project, tmp_path / "room")) == SENT


def test_every_way_sends_the_same_files(scene: Scene, project: Path, tmp_path: Path) -> None:
    scene.program("gcloud", submit=True)
    scene.program("docker", push=True)
    scene.build(ways=("cloud-build",), folder=project)
    scene.build(ways=("docker",), folder=project)
    stored: list[bytes] = []
    insert = scene.builds.on_work
    scene.builds.on_work = lambda build: stored.append(staged(scene, build))
    scene.build(ways=("staged",), folder=project)
    scene.builds.on_work = insert
    with tarfile.open(fileobj=io.BytesIO(stored[0])) as archive:
        by_api = sorted(archive.getnames())
    assert scene.files("gcloud") == scene.files("docker") == by_api == SENT


def staged(scene: Scene, build: dict) -> bytes:
    source = build["source"]["storageSource"]
    stored = scene.storage.find(source["bucket"], source["object"])
    assert stored is not None
    return stored.data


def test_the_same_files_are_the_same_bytes(project: Path, tmp_path: Path) -> None:
    contents = []
    for number in (1, 2):
        room = tmp_path / str(number)
        packed(project, room)
        contents.append((room / "source.tgz").read_bytes())
        os.utime(project / "train.py", (number, number))
    assert contents[0] == contents[1]


def test_files_have_no_owner_and_programs_stay_programs(project: Path, tmp_path: Path) -> None:
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o700)
    members = packed(project, tmp_path / "room")
    assert {(member.uid, member.gid, member.uname) for member in members.values()} == {(0, 0, "")}
    assert (members["run.sh"].mode, members["train.py"].mode) == (0o755, 0o644)


def test_no_time_is_in_the_archive(project: Path, tmp_path: Path) -> None:
    (project / "link.py").symlink_to("train.py")
    members = packed(project, tmp_path / "room")
    assert {member.mtime for member in members.values()} == {TIME_S}
    header = (tmp_path / "room" / "source.tgz").read_bytes()[:8]
    assert struct.unpack("<4xI", header) == (0,)


@pytest.mark.parametrize(
    "name", [".aws/credentials", ".ssh/config", "home/.kube/config", ".docker/config.json", ".git-credentials"]
)
def test_what_people_keep_in_their_homes_stays_here(project: Path, name: str) -> None:
    (project / ".gcloudignore").write_text("data/\n")
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text("x")
    assert name in chosen(project).secrets
    (project / ".docker").mkdir(exist_ok=True)
    (project / ".docker" / "entry.sh").write_text("exec")
    assert ".docker/entry.sh" in chosen(project).files, "which is a folder of projects too"


@pytest.mark.parametrize("target", ["Dockerfile", "nowhere", "/etc/hostname", "../Dockerfile"])
def test_a_dockerfile_that_leads_elsewhere_is_refused_and_not_replaced_by_ours(project: Path, target: str) -> None:
    (project.parent / "Dockerfile").write_text("FROM scratch\n")
    (project / "Dockerfile").symlink_to(target)
    with pytest.raises(ImageBuildRefused, match=r"Dockerfile (is a link that leads out|cannot be read)"):
        chosen(project)


def test_a_list_that_never_ends_is_refused(project: Path) -> None:
    (project / ".gcloudignore").write_text("#!include:/dev/zero\n")
    with pytest.raises(ImageBuildRefused, match="/dev/zero is not a list of patterns"):
        chosen(project)


def test_secrets_are_named_and_one_may_be_taken_back_by_its_own_name(project: Path) -> None:
    (project / ".gcloudignore").write_text("data/\n!data/**\n")
    kept = chosen(project)
    assert set(kept.secrets) == {".env", "rav_spot.env", "conf/service-account.json", "conf/innocent.json"}
    (project / ".gcloudignore").write_text("!.env\n!conf/innocent.json\n")
    taken = chosen(project)
    assert {".env", "conf/innocent.json"} <= set(taken.files)
    assert set(taken.secrets) == {"rav_spot.env", "conf/service-account.json"}
    assert not any(name.startswith((".git/", "my_venv/")) for name in taken.files), "these never"


@pytest.mark.parametrize(
    ("lines", "sent"),
    [
        ("*\n!src/\n!train.py\n", ["src/deep/model.py", "train.py"]),  # gcloud's lone star: the top folder
        ("/*\n!/train.py\n", ["train.py"]),
        ("#!include:.gitignore\n*.txt\n", ["conf/a.yaml", "train.py"]),
        ("*.py\n*.txt\n!train.py\n", ["conf/a.yaml", "train.py"]),
    ],
)
def test_the_folders_own_list_decides(tmp_path: Path, lines: str, sent: list[str]) -> None:
    for name in ("train.py", "conf/a.yaml", "src/deep/model.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("src/\n.git*\n.gcloudignore\n")
    (tmp_path / ".gcloudignore").write_text(lines)
    dot_files = {".gitignore", ".gcloudignore"}
    assert [name for name in chosen(tmp_path).files if name not in dot_files] == sent


def test_git_reads_the_list_that_comes_with_spot_as_we_do(project: Path) -> None:
    """It may be copied into a folder, where others read it."""
    git = ["git", "-C", str(project), "-c", "core.excludesFile=/dev/null"]
    (project / ".git" / "config").unlink()
    subprocess.run([*git, "init", "--quiet"], check=True)
    listed = f"--exclude-from={context.brought_folder() / '.gcloudignore'}"
    listing = subprocess.run(
        [*git, "ls-files", "--others", listed], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    by_content = {"conf/innocent.json", "my_venv/lib/site.py", "my_venv/pyvenv.cfg"}  # what only we look at
    assert set(listing) - by_content == set(chosen(project).files)


def test_a_dockerfile_of_the_folder_is_used_and_ours_is_not_brought(project: Path, tmp_path: Path) -> None:
    (project / "Dockerfile").write_text("FROM scratch\n")
    (project / ".dockerignore").write_text("conf\n")
    (project / ".gcloudignore").write_text("/*\n!/train.py\n")
    members = packed(project, tmp_path / "room")
    assert sorted(members) == [".dockerignore", "Dockerfile", "train.py"]
    assert (tmp_path / "room" / "source" / "Dockerfile").read_text() == "FROM scratch\n"


def test_links_that_lead_out_stay_here(project: Path, tmp_path: Path) -> None:
    (project / "inside.py").symlink_to("src/deep/model.py")
    (project / "outside.py").symlink_to("../../etc/passwd")
    (project / "absolute.py").symlink_to(project / "train.py")
    members = packed(project, tmp_path / "room")
    assert members["inside.py"].linkname == "src/deep/model.py"
    assert not {"outside.py", "absolute.py"} & set(members)


@pytest.mark.parametrize(
    ("ignore", "text"), [("*\n", "leaves out everything"), ("#!include:absent\n", "absent cannot be read")]
)
def test_a_folder_that_cannot_be_sent_is_refused(project: Path, ignore: str, text: str) -> None:
    (project / ".gcloudignore").write_text(ignore)
    with pytest.raises(ImageBuildRefused, match=text):
        chosen(project)


def test_too_much_is_refused_with_its_size(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.images.context.MAX_BYTES", 10)
    with pytest.raises(ImageBuildRefused, match="would be sent"):
        chosen(project)


def test_a_list_that_names_nothing_would_be_seen(project: Path, tmp_path: Path) -> None:
    """The broken variant: without the list everything that is no secret travels."""
    (project / ".gcloudignore").write_text("# nothing\n")
    assert {"data/images.bin", "checkpoints/last.json"} <= set(packed(project, tmp_path / "room"))
