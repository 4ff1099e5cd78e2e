"""The one list of all kinds of providers. The first kind is the default where the settings name none.

A new kind is a folder beside this file and one line here. The imports here are light: a kind loads the libraries of its
vendor when it is used.
"""

from __future__ import annotations

from typing import Any

from supervisor.providers.colab import make as colab
from supervisor.providers.gce import make as gce
from supervisor.providers.kaggle import make as kaggle
from supervisor.providers.kubernetes import make as kubernetes
from supervisor.providers.local import make as local
from supervisor.providers.slurm import make as slurm
from supervisor.providers.ssh import make as ssh
from supervisor.settings.kinds import Kind

PROVIDERS: dict[str, Kind[Any]] = {
    "local": local.KIND,
    "gce": gce.KIND,
    "ssh": ssh.KIND,
    "slurm": slurm.KIND,
    "kubernetes": kubernetes.KIND,
    "kaggle": kaggle.KIND,
    "colab": colab.KIND,
}
