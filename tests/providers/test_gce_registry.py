"""Tags become digests: the registry's own protocol, its tokens, and who never gets Google's token."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.images.registry import Registries, parse
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable
from tests.cloud.registry import RegistryFake
from tests.cloud.web import Hang, Reset, Response

OWN = "Bearer ya29.secret"


@pytest.fixture
def registry() -> Iterator[RegistryFake]:
    with RegistryFake() as fake:
        yield fake


def registries() -> Registries:
    return Registries(lambda: OWN, timeout_s=1.0)


def test_a_tag_is_pinned_to_what_it_names_now(registry: RegistryFake) -> None:
    first = registry.push("team/train", "v1", "one")
    image = f"{registry.host}/team/train:v1"
    assert registries().pin(image) == f"{registry.host}/team/train@{first}"
    second = registry.push("team/train", "v1", "two")
    assert registries().pin(image) == f"{registry.host}/team/train@{second}"
    assert first != second
    assert [method for method, _, _ in registry.requests] == ["HEAD", "HEAD"]


def test_no_tag_is_latest_and_a_digest_is_itself(registry: RegistryFake) -> None:
    digest = registry.push("train", "latest")
    assert registries().pin(f"{registry.host}/train") == f"{registry.host}/train@{digest}"
    registry.requests.clear()
    assert registries().pin(f"{registry.host}/train:v3@{digest}") == f"{registry.host}/train@{digest}"
    assert registry.requests == []


@pytest.mark.parametrize("tag", ["v2", "latest"])
def test_an_image_that_is_not_there(registry: RegistryFake, tag: str) -> None:
    registry.push("train", "v1")
    with pytest.raises(ImageMissing, match=f"train:{tag}"):
        registries().pin(f"{registry.host}/train:{tag}")


def test_the_dance_for_an_anonymous_token(registry: RegistryFake) -> None:
    registry.challenge = True
    digest = registry.push("team/train", "v1")
    assert registries().pin(f"{registry.host}/team/train:v1").endswith(digest)
    assert [path for _, path, _ in registry.requests] == [
        "/v2/team/train/manifests/v1",
        "/token",
        "/v2/team/train/manifests/v1",
    ]


def test_a_private_image_is_hidden_and_not_missing(registry: RegistryFake) -> None:
    registry.challenge, registry.accounts = True, {"somebody:else"}
    registry.push("train", "v1")
    with pytest.raises(ImageHidden, match="does not allow the supervisor to read"):
        registries().pin(f"{registry.host}/train:v1")
    registry.challenge, registry.accounts, registry.hidden = False, None, {"train"}
    with pytest.raises(ImageHidden):
        registries().pin(f"{registry.host}/train:v1")


def test_googles_token_goes_to_no_other_registry(registry: RegistryFake) -> None:
    registry.challenge = True
    registry.push("train", "v1")
    registries().pin(f"{registry.host}/train:v1")
    assert all("ya29" not in header for _, _, header in registry.requests)


def test_a_token_service_elsewhere_in_clear_text_is_not_asked(registry: RegistryFake) -> None:
    registry.challenge, registry.realm = True, "http://registry.example.com/token"
    registry.push("train", "v1")
    with pytest.raises(ImageHidden):
        registries().pin(f"{registry.host}/train:v1")


def test_an_old_registry_that_tells_no_digest(registry: RegistryFake) -> None:
    registry.tells_digest = False
    digest = registry.push("train", "v1")
    assert registries().pin(f"{registry.host}/train:v1").endswith(digest)


@pytest.mark.parametrize("answer", [Response(500), Response(429), Response(302), Reset(), Hang()])
def test_no_clear_answer_is_asked_again_later(registry: RegistryFake, answer: Response | Exception) -> None:
    registry.push("train", "v1")
    registry.fail(answer)
    with pytest.raises(ProviderUnavailable):
        registries().pin(f"{registry.host}/train:v1")
    assert registries().pin(f"{registry.host}/train:v1")


def test_a_registry_that_is_away() -> None:
    with RegistryFake() as gone:
        host = gone.host
    with pytest.raises(ProviderUnavailable, match="does not respond"):
        registries().pin(f"{host}/train:v1")


@pytest.mark.parametrize(
    ("image", "name", "url"),
    [
        ("python", "python", "https://registry-1.docker.io/v2/library/python/manifests/latest"),
        ("python:3.12", "python", "https://registry-1.docker.io/v2/library/python/manifests/3.12"),
        ("pytorch/pytorch:2", "pytorch/pytorch", "https://registry-1.docker.io/v2/pytorch/pytorch/manifests/2"),
        ("docker.io/library/python:3", "docker.io/library/python",
         "https://registry-1.docker.io/v2/library/python/manifests/3"),
        ("us-docker.pkg.dev/p/r/a/b:v1", "us-docker.pkg.dev/p/r/a/b",
         "https://us-docker.pkg.dev/v2/p/r/a/b/manifests/v1"),
        ("localhost:5000/a:b", "localhost:5000/a", "http://localhost:5000/v2/a/manifests/b"),
        ("registry.example.com:5000/a", "registry.example.com:5000/a",
         "https://registry.example.com:5000/v2/a/manifests/latest"),
    ],
)  # fmt: skip
def test_names_are_read_as_docker_reads_them(image: str, name: str, url: str) -> None:
    assert (parse(image).name, parse(image).url) == (name, url)


@pytest.mark.parametrize("image", ["", "A/b", "a b", "a:", "a@sha256:short", "a/../b", "https://a/b", "a:b/c d"])
def test_what_is_no_reference_is_missing(image: str) -> None:
    with pytest.raises(ImageMissing, match="not a reference"):
        parse(image)
