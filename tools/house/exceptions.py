"""All exceptions to the rules of this package, each with its reason.

A pattern is matched against the path from the project's root; `**` stands for any folders, also none.
"""

import re
from functools import cache
from pathlib import PurePosixPath

Table = tuple[tuple[str, str], ...]

SHORT_FILES: Table = (
    ("**/__main__.py", "an entry point: it starts what lies beside it"),
    ("supervisor/ports/**", "ports"),
    ("supervisor/api/routes/**", "routes"),
    ("supervisor/dashboard/pages/**", "routes of the dashboard"),
    ("supervisor/domain/**", "nouns: a table or a value each"),
    ("supervisor/host/refusals.py", "a table: the errors of a launch"),
    ("supervisor/host/bytecode.py", "an entry point: of a process that imports nothing else of ours"),
    ("supervisor/**/shapes/**", "tables: the shape of one answer each"),
    ("supervisor/cli/exits.py", "a table: exit codes, and the error that carries one"),
    ("supervisor/notifiers/**", "an implementation of one small port each"),
    ("supervisor/lifecycle/diagnosis/rules/**", "tables: a family of rules each"),
    ("supervisor/providers/kinds.py", "a table: the one list of providers"),
    ("supervisor/objectstores/reading.py", "a table: the one list of remote object stores"),
    ("supervisor/providers/*/traits.py", "a table each"),
    ("supervisor/providers/*/make.py", "an entry point each: it opens what lies beside it"),
    ("supervisor/providers/*/doctor.py", "checks each: loaded when the doctor asks"),
    ("supervisor/wiring/explaining.py", "an entry point: the command line reaches the rules through it"),
    ("supervisor/dashboard/mounting.py", "an entry point: it imports the pages when one is wanted"),
    ("tools/**", "a program each"),
)

# Files that stay separate although only one neighbor imports them.
OWN_FILES: Table = (
    ("supervisor/providers/*/settings.py", "each provider's folder has the same files, by plan"),
    ("supervisor/providers/*/traits.py", "the same"),
    ("supervisor/providers/*/profile.py", "the same"),
    ("supervisor/providers/*/doctor.py", "the same"),
    ("supervisor/providers/*/provider.py", "the same; it is imported only when the provider is used"),
    ("supervisor/providers/*/platform.py", "the same"),
    ("supervisor/dashboard/app.py", "imported only when a page is wanted"),
    ("supervisor/lifecycle/diagnosis/rules/*", "a family of rules each; the table puts them in their order"),
    ("supervisor/lifecycle/diagnosis/remedies.py", "a table: the closed list of remedies"),
)

# Files of one prefix that do not become a folder.
FAMILIES: Table = (("supervisor/agent/spot_*.py", "a training imports them by these names"),)

# Where a vendor may be named. The folder of a provider itself needs no line here.
VENDOR_HOMES: Table = (
    ("supervisor/objectstores/gcs/**", "Google's object store behind the port"),
    ("supervisor/agent/**/gcs*", "the agent's side of that store"),
    ("supervisor/agent/**/google*", "the agent's calls to Google, which that store uses"),
    ("supervisor/agent/store/door/**", "content goes past the door into that store, by the parts of its client"),
    ("supervisor/agent/notebook/claiming.py", "it says what each notebook service calls a session"),
    ("supervisor/services/migration/**", "the older runner ran on Google alone"),
    ("supervisor/settings/env/**", "the older runner's environment file names what it ran on"),
    ("supervisor/objectstores/reading.py", "the one list of remote object stores"),
    ("supervisor/lifecycle/diagnosis/rules/**", "the numbers of the list of gotchas, such as SLURM4"),
    ("supervisor/images/**", "this package uses a vendor's build service, docker and the registries"),
    ("supervisor/cli/files/build_image.py", "the command of that package"),
    ("supervisor/cli/server/trial*.py", "a trial is for one cloud; another cloud needs another trial"),
    ("supervisor/agent/machine/secrets.py", "the agent's side of Google's Secret Manager"),
    ("supervisor/agent/life/parts.py", "the agent's own wiring: which stores and notices a job may name"),
    ("supervisor/**/examples.json", "recorded responses with made-up data, not code"),
)


# Words of a vendor that one file may have, because its text cannot depend on the provider.
VENDOR_WORDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("supervisor/agent/machine/job.py", ("googleapi", "Google", "gce"), "fields of the file that each job is"),
    ("supervisor/agent/watch/ends.py", ("googleapi",), "the length of the notice that this cloud gives"),
    ("supervisor/api/shapes/run_spec.py", ("gcp",), "the form of a reference to a secret is part of the API"),
    ("supervisor/api/wire/reading.py", ("gcp",), "the same, in words"),
    ("supervisor/cli/options.py", ("gcp",), "the same, as an option"),
    ("supervisor/cli/runs/submit_options.py", ("gcp",), "the same, in the help of that option"),
    ("supervisor/api/shapes/bodies.py", ("gs://",), "a run of the older runner lies in its bucket"),
    ("supervisor/cli/server/importing.py", ("gs://",), "the same, in the help of the command"),
    ("supervisor/cli/main.py", ("Google",), "help texts know no supervisor, and so no provider"),
    ("supervisor/cli/machines/prices.py", ("Google",), "the same"),
    ("supervisor/cli/server/dev.py", ("Google",), "the same"),
    ("supervisor/domain/texts.py", ("Google",), "the keys of vendors are known by their forms, wherever they turn up"),
    ("supervisor/services/reading/cost.py", ("Google", "google"), "the page that its figures were read from"),
    ("supervisor/cli/files/local_inputs.py", ('name == "local"',), "where no supervisor is asked"),
    ("supervisor/dashboard/pages/spec.py", ('provider", "local") == "local"',), "as the command line takes it"),
    ("supervisor/providers/gce/machines/clean_up.sh", ("kaggle",), "a file of a login that no image may keep"),
    ("supervisor/providers/colab/cell.py", ("google",), "the address of its notebooks, and its package in a session"),
    ("supervisor/providers/colab/client.py", ("google",), "the name of the client's package"),
    ("supervisor/providers/colab/settings.py", ("gs://",), "the files of its runs may lie in a bucket"),
    ("supervisor/providers/local/provider.py", ("Google",), "says where to find what this provider does not have"),
)


def allowed_words(path: PurePosixPath) -> frozenset[str]:
    return frozenset(word for name, words, _ in VENDOR_WORDS if _compiled(name).fullmatch(str(path)) for word in words)


def reason_for(path: PurePosixPath, table: Table) -> str | None:
    """Why a file is an exception; None = it is none."""
    return next((reason for pattern, reason in table if _compiled(pattern).fullmatch(str(path))), None)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*)", pattern)
    wild = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(wild.get(part) or re.escape(part) for part in parts))
