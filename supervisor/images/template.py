"""What the product brings for a build: Dockerfile, allow-list, and the words for Cloud Build, as files of deploy/.

An installed package carries them (`supervisor/_training_image`, put there by the wheel build); a checkout has them in
deploy/training-image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import supervisor
from supervisor.images.request import BuildRequest

CONFIG = "cloudbuild.yaml"


def folder() -> Path:
    """Inside the package where it was installed, beside it in a checkout."""
    package = Path(supervisor.__file__).parent
    inside = package / "_training_image"
    return inside if inside.is_dir() else package.parent / "deploy" / "training-image"


def build_config(request: BuildRequest) -> dict[str, Any]:
    """Cloud Build's own JSON of this build, without its source: what cloudbuild.yaml says, this request's time limit
    and account."""
    config: dict[str, Any] = yaml.safe_load((folder() / CONFIG).read_text(encoding="utf-8"))
    config["timeout"] = f"{request.build_s:.0f}s"
    config["substitutions"] = substitutions(request)
    if request.account:
        config["serviceAccount"] = f"projects/{request.project}/serviceAccounts/{request.account}"
    return config


def substitutions(request: BuildRequest) -> dict[str, str]:
    return {"_IMAGE": request.image, "_MARK": request.marked, "_BUILD": request.mark}
