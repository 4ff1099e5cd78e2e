"""What survives where, on the pages of clusters: the tables are those of the profiles, which gates and people read."""

from __future__ import annotations

import re

import pytest

from supervisor.domain.profile import End, Profile, Survival
from supervisor.providers.colab.profile import profile as colab_profile
from supervisor.providers.colab.settings import ColabSettings
from supervisor.providers.kaggle.profile import profile as kaggle_profile
from supervisor.providers.kaggle.settings import KaggleSettings
from supervisor.providers.kubernetes.profile import profile as kubernetes_profile
from supervisor.providers.kubernetes.settings import KubernetesSettings
from supervisor.providers.slurm.profile import documented
from supervisor.providers.slurm.settings import SlurmSettings
from tools.project_files import ROOT

DAY = "2026-11-26"
COLUMNS = (End.PROCESS, End.REQUEUE, End.STOP, End.DESTROY)
PROFILES = {
    "slurm": documented(SlurmSettings(slurm_folder="/scratch/me/spot"), DAY, "/scratch"),
    "kubernetes": kubernetes_profile(KubernetesSettings(kubernetes_claim="checkpoints"), DAY),
    "kaggle": kaggle_profile(KaggleSettings(), DAY),
    "colab": colab_profile(ColabSettings(), DAY),
}


@pytest.mark.parametrize(("name", "profile"), PROFILES.items(), ids=PROFILES)
def test_the_matrix_of_the_page_is_that_of_the_profile(name: str, profile: Profile) -> None:
    page = (ROOT / f"docs/providers/{name}.md").read_text(encoding="utf-8")
    section = page.partition("## Where checkpoints are\n")[2].partition("\n## ")[0]
    shown = []
    for line in section.splitlines():
        if line.startswith("| `"):
            place, *cells = line.strip("|").split("|")
            shown.append(
                (re.findall(r"`([^`]+)`", place), place.partition("(")[2].strip()[:-1], [c.strip() for c in cells])
            )
    assert shown == [
        (list(tier.paths), tier.name, [str((tier.survives(end).value or Survival.VERIFY).value) for end in COLUMNS])
        for tier in profile.tiers
    ]
