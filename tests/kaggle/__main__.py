"""python -m tests.kaggle: `spot` whose Kaggle is the one at TEST_KAGGLE_URL, with sessions as short as a test."""

from __future__ import annotations

import os

from kagglesdk import kaggle_env

from supervisor.cli.main import main
from supervisor.providers.kaggle import fetching, settings

kaggle_env._env_to_endpoint[kaggle_env.KaggleEnv.PROD] = os.environ["TEST_KAGGLE_URL"]
settings.SHORTEST_S = 1.0
fetching.RETRY_S, fetching.LATE_S = 0.2, 1.0

if __name__ == "__main__":
    main()
