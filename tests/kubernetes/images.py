"""The registry as a kubelet sees it: which images cannot be pulled, in the words of containerd."""

from __future__ import annotations

import re

_REPOSITORY = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+|[a-z0-9._-]+")
GONE = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": failed to resolve reference '
    '"{image}": {image}: not found'
)
DENIED = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "{image}": failed to resolve reference '
    '"{image}": pull access denied, repository does not exist or may require authorization: server message: '
    "insufficient_scope: authorization failed"
)
AWAY = (
    'rpc error: code = DeadlineExceeded desc = failed to pull and unpack image "{image}": failed to resolve reference '
    '"{image}": failed to do request: Head "https://registry": dial tcp: i/o timeout'
)


class Images:
    """`problems`: an image, or a part of its name -> one of the texts above."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def problem(self, image: str) -> tuple[str, str] | None:
        """(reason, message) of the waiting container; None = it is pulled."""
        repository = image.partition("@")[0]
        name = repository if ":" not in repository.rpartition("/")[2] else repository.rpartition(":")[0]
        if not _REPOSITORY.fullmatch(name):
            text = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}"'
            return "InvalidImageName", f"{text}: invalid reference format"
        for part, text in self.problems.items():
            if part in image:
                return "ErrImagePull", text.format(image=image)
        return None
