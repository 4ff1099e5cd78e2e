"""Part of the wheel build: files beside the package in a checkout go into the package.

    migrations/        -> supervisor/_migrations/
    build/agent.pyz    -> supervisor/_agent.pyz     (built here from the sources at hand)
    deploy/training-image -> supervisor/_training_image
    build/vendor/      -> supervisor/dashboard/_vendor/  (third-party scripts, from `make env`)

Without those scripts the wheel is built too: its pages work without scripts. Code that needs one of these files looks
inside the package first, then at the checkout. An editable install has none inside, because it would keep using an old
copy.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilderConfig

IN_WHEEL = {
    "migrations": "supervisor/_migrations",
    "build/agent.pyz": "supervisor/_agent.pyz",
    "deploy/training-image": "supervisor/_training_image",
}
SCRIPTS, IN_DASHBOARD = "build/vendor", "supervisor/dashboard/_vendor"


class BesideThePackage(BuildHookInterface[WheelBuilderConfig]):
    """Found by hatchling through pyproject.toml (hooks.custom)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the agent, and add the files beside the package to the wheel."""
        if version == "editable":
            return
        subprocess.run([sys.executable, "-m", "tools.build_agent"], cwd=self.root, check=True)
        for source, target in IN_WHEEL.items():
            build_data["force_include"][str(Path(self.root, source))] = target
        scripts = sorted(path for path in Path(self.root, SCRIPTS).glob("*") if not path.name.startswith("."))
        for path in scripts:
            build_data["force_include"][str(path)] = f"{IN_DASHBOARD}/{path.name}"
        if not scripts:
            self.app.display_warning(
                f"{SCRIPTS} is not there (tools/fetch_assets.sh fetches it): the dashboard will have no scripts"
            )
