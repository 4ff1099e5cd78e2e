"""tools/house: each rule finds a break in a small tree and accepts a good one; each figure counts right."""

from pathlib import Path

import pytest

from tools.house.exceptions import VENDOR_WORDS
from tools.house.figures import figures
from tools.house.repeats import repeated_pairs
from tools.house.rules import LIMITS, RULES, beyond, counts, hints, read_limits, violations, write_limits
from tools.house.tree import read_tree
from tools.house.vendors import vendor_names

LONG = "x = 1\n" * 60
SIX = "a, b, c, d, e, f"


def write(root: Path, files: dict[str, str]) -> Path:
    """`room/name` is supervisor/room/name.py."""
    for name, text in files.items():
        path = root / "supervisor" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def broken(root: Path) -> dict[str, int]:
    return {rule: count for rule, count in counts(violations(root)).items() if count}


@pytest.mark.parametrize(
    ("files", "rule", "count"),
    [
        ({"room/short": LONG[:-6]}, "short-files", 1),
        ({"room/f": LONG + f"def f({SIX}): ...\n"}, "positional-arguments", 1),
        ({"room/f": LONG + f"async def f({SIX}, *, g): ...\n"}, "positional-arguments", 1),
        ({"room/f": LONG + "def f(a, b, c, /, d, e, f): ...\n"}, "positional-arguments", 1),
        ({"room/f": LONG + f"class A:\n    def f(self, {SIX}): ...\n"}, "positional-arguments", 1),
        ({"room/a": LONG, "room/b": LONG + "from supervisor.room import a\n"}, "one-importer", 1),
        ({"room/a": LONG, "room/b": LONG + "def f():\n    import supervisor.room.a\n"}, "one-importer", 1),
        ({"room/a": LONG, "room/b": LONG + "from supervisor.room.a import x\n"}, "one-importer", 1),
        ({f"room/{name}": LONG for name in "abcdefghijklmnopqrstuv"}, "crowded-folders", 2),
        ({"room/x_a": LONG, "room/x_b": LONG, "room/x_c_d": LONG}, "prefix-families", 3),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, files: dict[str, str], rule: str, count: int) -> None:
    assert broken(write(tmp_path, files)) == {rule: count}


@pytest.mark.parametrize(
    "line",
    [
        "told = 1",
        "_found = 1",
        "one: int = 1",
        "for known in (): ...",
        "def f(asked): ...",
        "def f(*, meant=1): ...",
        "def told(): ...",
        "class A:\n    found: int",
        "a.known = 1",
        "import json as one",
        "x = [asked for asked in ()]",
        "if (found := 1): ...",
        "with a as told: ...",
        "try: ...\nexcept E as found: ...",
        "match x:\n    case [one, *_]: ...",
    ],
)
def test_a_name_without_a_noun_is_found(tmp_path: Path, line: str) -> None:
    assert broken(write(tmp_path, {"room/f": LONG + line + "\n"})) == {"bare-names": 1}


@pytest.mark.parametrize(
    "files",
    [
        {"room/full": LONG},
        {"room/__init__": '"""Words."""\n', "room/__main__": "x = 1\n"},
        {"ports/small": "x = 1\n", "api/routes/small": "x = 1\n"},
        {"room/f": LONG + "def f(a, b, c, d, e, *, f): ...\n"},
        {"room/f": LONG + "class A:\n    def f(self, a, b, c, d, e): ...\n"},
        {"room/f": LONG + "class Cost(TypedDict):\n    known: bool\n"},  # the API's name
        {"room/f": LONG + "event_found = one_by_one = 1\nprint(x.found, told)\n"},
        {"room/a": LONG, "other/b": LONG + "from supervisor.room import a\n"},  # not a neighbor
        {"room/a": LONG, "room/__init__": "from supervisor.room import a\n"},
        {"room/a": LONG, "room/__main__": "from supervisor.room import a\n"},
        {"room/a": LONG * 4, "room/b": LONG * 2 + "from supervisor.room import a\n"},  # too long together
        {
            "room/a": LONG,
            "room/b": LONG + "from supervisor.room import a\n",
            "room/c": LONG + "from supervisor.room import a\n",
        },
        {f"room/{name}": LONG for name in "abcdefghijklmnopqrst"},
        {"room/x": LONG, "room/x_a": LONG, "room/x_b": LONG, "other/x_c": LONG},
    ],
)
def test_what_keeps_the_rules_is_left_alone(tmp_path: Path, files: dict[str, str]) -> None:
    assert broken(write(tmp_path, files)) == {}


def test_more_than_the_limit_fails_and_less_is_a_hint(tmp_path: Path) -> None:
    two = violations(write(tmp_path, {"room/a": "x = 1\n", "room/b": "x = 1\n"}))
    limits = dict.fromkeys(RULES, 0)
    assert beyond(two, limits | {"short-files": 2}) == hints(two, limits | {"short-files": 2}) == []
    (complaint,) = beyond(two, limits | {"short-files": 1})
    assert "short-files: 2, at most 1" in complaint
    (hint,) = hints(two, limits | {"short-files": 3})
    assert "short-files: 2" in hint
    assert "make house-ratchet" in hint


def test_limits_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / LIMITS).parent.mkdir(parents=True)
    limits = {rule: number for number, rule in enumerate(RULES)}
    write_limits(tmp_path, limits)
    assert read_limits(tmp_path) == limits


@pytest.mark.parametrize(
    "text",
    ["# Google", "gce_zones = 1", "class GcsStore: ...", "x = 'gs://b'", "GOOGLE = 1", "googleapis", "LOCAL = 'local'"],
)
def test_a_vendor_outside_its_folder_is_found(tmp_path: Path, text: str) -> None:
    for provider in ("gce", "local"):
        (tmp_path / "supervisor" / "providers" / provider).mkdir(parents=True)
    write(tmp_path, {"services/a": text, "providers/gce/a": "GCE = 'gce'", "objectstores/gcs/a": "Google"})
    assert [str(violation.path) for violation in vendor_names(tmp_path)] == ["supervisor/services/a.py"]


@pytest.mark.parametrize("text", ["x = 'local'", "import threading\nthreading.local()", "logcsv", "provider = local"])
def test_a_plain_word_is_no_vendor(tmp_path: Path, text: str) -> None:
    for provider in ("gce", "local"):
        (tmp_path / "supervisor" / "providers" / provider).mkdir(parents=True)
    assert list(vendor_names(write(tmp_path, {"services/a": text}))) == []


def test_a_word_is_allowed_in_its_own_file_alone(tmp_path: Path) -> None:
    (tmp_path / "supervisor" / "providers" / "gce").mkdir(parents=True)
    write(tmp_path, {"cli/main": "# Google", "cli/other": "# Google", "cli/options": "# Google and gcp:"})
    texts = {str(violation.path): violation.text for violation in vendor_names(tmp_path)}
    assert list(texts) == ["supervisor/cli/options.py", "supervisor/cli/other.py"]
    assert texts["supervisor/cli/options.py"] == "1 names of providers or vendors: Google"


def test_the_list_alone_names_a_provider() -> None:
    paths = [str(violation.path) for violation in vendor_names(Path(__file__).parents[2])]
    assert paths == ["supervisor/providers/kinds.py"]


@pytest.mark.parametrize(("name", "words", "reason"), VENDOR_WORDS)
def test_no_word_is_allowed_where_it_does_not_stand(name: str, words: tuple[str, ...], reason: str) -> None:
    text = (Path(__file__).parents[2] / name).read_text(encoding="utf-8")
    assert reason
    assert [word for word in words if word not in text] == []


SHARED = """
def {a}({b}):
    # {a}
    if {b} > 3:
        return [{b}, {b}]

    for x in {b}:
        print(x, "{a}")
        {b} += 1
    while {b}: {b}()
"""
FIELDS = "class A:\n" + "    a: int\n" * 10


def test_lines_of_the_same_shape_in_two_places_are_one_pair(tmp_path: Path) -> None:
    right_text = "import json\n" + SHARED.format(a="c", b="ddd")
    write(tmp_path, {"a/x": SHARED.format(a="a", b="b"), "b/y": right_text})
    ((left, right),) = repeated_pairs(read_tree(tmp_path, "supervisor"))
    assert (str(left), str(right)) == ("supervisor/a/x.py:2", "supervisor/b/y.py:3")


def test_five_lines_and_fields_are_no_pair(tmp_path: Path) -> None:
    five = SHARED.partition("    while")[0].replace("        {b} += 1\n", "").format(a="a", b="b")
    write(tmp_path, {"a/x": five, "b/y": five, "c/x": FIELDS, "c/y": FIELDS})
    assert repeated_pairs(read_tree(tmp_path, "supervisor")) == []


def test_figures_count_rooms_arrows_modules_and_imports(tmp_path: Path) -> None:
    imports = "from supervisor.domain import x\nimport supervisor.domain.y\n"
    imports += "from supervisor.domain.x import (\n    b,\n)\n"
    write(
        tmp_path,
        {
            "loose": LONG,
            "api/__init__": "",
            "api/a": imports,
            "api/b": "from supervisor.api.a import f\nfrom supervisor import loose\n",
            "domain/x": "a = 1\n" * 10,
            "domain/y": "a = 1\n" * 23,
        },
    )
    (tmp_path / "supervisor" / "providers").mkdir()
    values = [figure.value for figure in figures(tmp_path, read_tree(tmp_path, "supervisor"))]
    # api, domain and loose; api -> domain, api -> loose; api.a, domain.x, domain.y and loose have one importer each
    assert values == [3, 1, 2, 5, 80.0, 7.0, 2, 0, 100, 0]
