"""What a run was asked for, as text to copy, and what its newest machine is started with.

Values of the environment are covered where the spec is only looked at; the texts to copy hold them, folded, because
without them another run would begin.
"""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.pages import run as run_page
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.shaping import spec_text

SCRIPT = "startup-script"  # its name in the metadata of a machine


async def show(request: Request, api: Api) -> Response:
    path = f"/v1/runs/{request.path_params['run_id']}"
    run, told, launch = await api.together(
        run_page.of(request, api), api.get(f"{path}/spec"), api.get(f"{path}/launch")
    )
    spec, (script, rest) = told["spec"], _launch_texts(launch["launch"])
    return await rendering.page(
        request,
        "run_spec.html",
        run=run,
        tab="spec",
        spec=told,
        looked=spec_text.as_yaml(spec_text.masked(spec)),
        names=sorted(spec.get("env", {})),
        secrets=spec.get("secrets", {}),
        texts=(
            ("cli", "CLI", spec_text.as_command(spec)),
            ("curl", "curl", spec_text.as_curl(spec)),
            ("yaml", "YAML", spec_text.as_yaml(spec)),
        ),
        launch=launch,
        script=script,
        rest=rest,
    )


def _launch_texts(launch: Json | None) -> tuple[str, str]:
    """(the start-up script, "" = a machine of this kind has none; all else as JSON)"""
    if launch is None:
        return "", ""
    packed = launch.get("unpacked") or {}  # shown unpacked, and not a second time
    metadata = {name: value for name, value in (launch.get("metadata") or {}).items() if name not in packed}
    script = str(metadata.pop(SCRIPT, ""))
    rest = {**launch, **({"metadata": metadata} if metadata else {})}
    return script, json.dumps(spec_text.masked(rest), indent=2, ensure_ascii=False)
