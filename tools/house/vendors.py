"""Files outside a provider's folder that name the provider, or the vendor behind it.

The providers are the folders of supervisor/providers. Every text counts: code, comments, pages. A provider's words are
the name of its folder and, for a vendor with several names, those of VENDORS; they count as words and as parts of
identifiers (`GcsStore`, `gce_zones`). A name that is also a plain word (`local`) counts only as a string beside the
word `provider`, or as the value of a constant of that name: `provider == "local"`, `LOCAL = "local"`. One such file is
right: the list of all providers.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tools.house.exceptions import VENDOR_HOMES, allowed_words, reason_for
from tools.house.violations import Violation
from tools.project_files import project_files

VENDORS = {"gce": ("gce", "gcs", "gcp", "gs://", "google", "gcloud")}
PLAIN_WORDS = frozenset({"local", "ssh"})
TEXTS = (".py", ".html", ".js", ".css", ".json", ".sh", ".svg")


def vendor_names(root: Path) -> Iterator[Violation]:
    """One violation a file."""
    providers = root / "supervisor" / "providers"
    folders = [path for path in providers.glob("*") if path.is_dir() and path.name != "__pycache__"]
    patterns = [(folder, _pattern(folder.name)) for folder in sorted(folders)]
    for path in project_files(root / "supervisor", *TEXTS):
        shown_as = PurePosixPath(path.relative_to(root))
        if reason_for(shown_as, VENDOR_HOMES):
            continue
        foreign = [pattern for folder, pattern in patterns if not path.is_relative_to(folder)]
        text = path.read_text(encoding="utf-8")
        matches = (match for pattern in foreign for match in pattern.finditer(text))
        words_here = allowed_words(shown_as)
        names = sorted((match.start(), match[0]) for match in matches if match[0] not in words_here)
        if names:
            words = ", ".join(dict.fromkeys(name.strip() for _, name in names))
            line = text.count("\n", 0, names[0][0]) + 1
            yield Violation("vendor-names", shown_as, line, f"{len(names)} names of providers or vendors: {words}")


def _pattern(name: str) -> re.Pattern[str]:
    if name in PLAIN_WORDS:
        quoted = rf"""["']{name}["']"""
        return re.compile(rf"""provider\b.*{quoted}|\b{name.upper()}\b.*= {quoted}""")
    return re.compile("|".join(_spellings(word) for word in (name, *VENDORS.get(name, ()))))


def _spellings(word: str) -> str:
    """Lower case, capitalized and upper case; not inside a longer plain word, except `googleapis`."""
    if not word.isalpha():
        return re.escape(word)
    end = r"(?:apis?)?(?![a-z])"
    return f"(?<![a-z]){word}{end}|{word.capitalize()}{end}|(?<![A-Z]){word.upper()}(?![a-z])"
