"""The start-up script and images: pulled, refused, or without the Python that the agent needs."""

import pytest

from tests.cloud.vm import Scene
from tests.providers.startup_rig import IMAGE, StartupRig

GOOGLES = "europe-west4-docker.pkg.dev/p/team/digits@sha256:" + "1" * 64


def pulls(calls: list[list[str]]) -> int:
    return sum(call[0] == "pull" for call in calls)


def test_an_image_that_never_comes_is_asked_for_once(rig: StartupRig) -> None:
    words = "manifest for digits:7 not found: manifest unknown: manifest unknown"
    rig.boot(Scene(pulls=(words,)))
    vm = rig.given_up("no_image", f"{IMAGE.partition('@')[0]} cannot be pulled: {words}")
    assert pulls(vm.calls("docker")) == 1


def test_a_registry_that_stumbles_is_asked_again(rig: StartupRig) -> None:
    stumbles = (
        "Get https://registry.example/v2/: net/http: TLS handshake timeout",
        "denied: Quota exceeded for quota metric 'Requests per project per region'",
    )
    vm = rig.boot(Scene(pulls=(*stumbles, "ok")))
    rig.ended(vm)
    assert pulls(vm.calls("docker")) == 3
    assert "retry in 1 s: Get https://registry.example/v2/: net/http: TLS handshake timeout" in vm.serial()
    assert rig.seen()["command"] == "true"


@pytest.mark.parametrize(
    "words",
    [
        'denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource',
        "Head https://eu.gcr.io/v2/p/digits/manifests/7: unauthorized: authentication failed",
    ],
)
def test_a_pull_that_is_denied_is_asked_again_for_three_minutes(rig: StartupRig, words: str) -> None:
    """A role that was granted a minute ago has not reached every registry yet."""
    vm = rig.boot(Scene(pulls=(words,) * 9 + ("ok",), hurry=500))
    rig.ended(vm)
    pauses = [int(line.split("retry in ")[1].split()[0]) for line in vm.lines() if '"retry in ' in line]
    assert sum(pauses) == 180
    assert rig.seen()["command"] == "true"


def test_a_pull_that_stays_denied_is_the_images_fault(rig: StartupRig) -> None:
    rig.boot(Scene(pulls=("denied: Permission denied",), hurry=500))
    rig.given_up("no_image", "cannot be pulled: denied: Permission denied")


def test_a_registry_that_stays_away_is_no_fault_of_the_image(rig: StartupRig) -> None:
    rig.boot(Scene(pulls=("dial tcp 10.0.0.1:443: i/o timeout",), hurry=500))
    vm = rig.given_up("no_start", "cannot be pulled", "i/o timeout")
    assert pulls(vm.calls("docker")) == 10


def test_a_pull_that_hangs_is_given_up(rig: StartupRig) -> None:
    """Nothing else ends it when the supervisor is away, and the machine would bill to its last hour."""
    whole = rig.script
    rig.script = whole.replace("PULL_S=1800 ", "PULL_S=1 ")
    assert rig.script != whole
    rig.boot(Scene(pulls=("hang",)))
    rig.given_up("no_start", f"{IMAGE.partition('@')[0]} cannot be pulled: the pull took more than 1 s")


@pytest.mark.parametrize(
    ("image", "host"),
    [
        (GOOGLES, "https://europe-west4-docker.pkg.dev"),
        ("eu.gcr.io/p/digits:7", "https://eu.gcr.io"),
        ("registry.example/gcr.io/digits:7", None),
    ],
)
def test_googles_registries_get_the_machines_token(rig: StartupRig, image: str, host: str | None) -> None:
    vm = rig.boot(spot_image_ref=image)
    rig.ended(vm)
    wanted = [["login", "-u", "oauth2accesstoken", "--password-stdin", host]] if host else []
    assert [call for call in vm.calls("docker") if call[0] == "login"] == wanted
    assert "ya29." not in vm.serial()
    assert rig.seen()["command"] == "true"


@pytest.mark.parametrize(("python", "words"), [("", "python3: not found"), ("3.6.9", "python3 is: Python 3.6.9")])
def test_an_image_without_a_python_for_the_agent(rig: StartupRig, python: str, words: str) -> None:
    rig.boot(Scene(python=python))
    rig.given_up("no_image", "no Python 3.8 or newer in this image", words)


def test_an_image_without_a_shell(rig: StartupRig) -> None:
    rig.boot(Scene(refusal='127 exec: "/bin/sh": no such file or directory'))
    rig.given_up("no_image", "the image has no /bin/sh that can be started")
