"""What can be said of a page without looking at it: one sentence for each fault of its markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.dashboard.document import VOID, Element, Reader

MOST_BYTES = 400_000
UNNAMED = frozenset({"hidden", "submit", "button"})


class _Nesting(Reader):
    """Every element is closed by its own end, in the order in which they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        names = Counter(name for name, _ in attrs)
        self.faults += [f"<{tag}> has {name} twice" for name, count in names.items() if count > 1]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_startendtag(tag, attrs)
        if tag not in VOID and "svg" not in (*self.tags, tag):
            self.faults.append(f"<{tag}/> is not closed by that")

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1].tag != tag:
            self.faults.append(f"line {self.getpos()[0]}: </{tag}> while {self.tags[-1:]} is open")
        if tag in self.tags:
            super().handle_endtag(tag)

    @property
    def tags(self) -> list[str]:
        """Of what is open."""
        return [element.tag for element in self.open[1:]]


def faults(text: str) -> list[str]:
    return looked_at(text)[1]


def looked_at(text: str) -> tuple[Element, list[str]]:
    """The page and its faults."""
    nesting = _Nesting()
    nesting.feed(text)
    nesting.close()
    root = nesting.root
    if nesting.faults or nesting.tags:
        return root, [*nesting.faults, *(f"<{tag}> stays open" for tag in nesting.tags)]
    every = root.all()
    return root, [
        *(["too large"] if len(text.encode()) > MOST_BYTES else []),
        *_structure(root),
        *_scripts(every),
        *(f"the id {name} stands {count} times" for name, count in _ids(every).items() if count > 1),
        *_names(root, every),
        *_tables(root),
    ]


def links(root: Element) -> Iterator[str]:
    """Addresses of this server that are named as links or pictures, without their fragments."""
    for one in root.all():
        for name in ("href", "src"):
            address = one.attributes.get(name, "").partition("#")[0]
            if address.startswith("/"):
                yield address


def _ids(every: list[Element]) -> Counter[str]:
    return Counter(one.attributes["id"] for one in every if "id" in one.attributes)


def _structure(root: Element) -> Iterator[str]:
    for tag in ("html", "title", "main", "h1"):
        if len(root.all(tag)) != 1 and not (tag == "title" and root.all("title")):
            yield f"{len(root.all(tag))} x <{tag}>"
    if not root.one("html").attributes.get("lang"):
        yield "no language"
    level = 1
    for heading in (one for one in root.all() if one.tag in ("h1", "h2", "h3", "h4")):
        if int(heading.tag[1]) > level + 1:
            yield f"<{heading.tag}> {heading.text[:40]} skips a level"
        level = int(heading.tag[1])


def _scripts(every: list[Element]) -> Iterator[str]:
    """What the policy of the pages would refuse."""
    for one in every:
        if one.tag == "style" or (one.tag == "script" and not one.attributes.get("src")):
            yield f"a <{one.tag}> inside of the page"
        for name, value in one.attributes.items():
            if name == "style" or name.startswith(("on", "hx-on")):
                yield f"<{one.tag} {name}>"
            if value.strip().lower().startswith(("javascript:", "js:")):
                yield f'<{one.tag} {name}="{value[:20]}">'


def _names(root: Element, every: list[Element]) -> Iterator[str]:
    labelled = {one.attributes["for"] for one in root.all("label") if "for" in one.attributes}
    inside = {id(one) for label in root.all("label") if label.text for one in label.all()}
    ids = _ids(every)
    for one in every:
        own = one.attributes
        named = bool(own.get("aria-label") or own.get("title")) or any(
            name in ids for name in own.get("aria-labelledby", "").split()
        )
        if one.tag in ("input", "select", "textarea") and own.get("type") not in UNNAMED:
            if not named and own.get("id") not in labelled and id(one) not in inside:
                yield f"<{one.tag} name={own.get('name')}> has no label"
        elif one.tag in ("a", "button", "summary") and not (named or one.text or one.all("img")):
            yield f"<{one.tag}> without a word: {own}"
        elif one.tag == "img" and "alt" not in own:
            yield f"<img src={own.get('src')}> without alt"


def _tables(root: Element) -> Iterator[str]:
    for table in root.all("table"):
        heads = table.all("th")
        if not heads:
            yield "a <table> without <th>"
        yield from (f"<th> {one.text[:30]} without scope" for one in heads if not one.attributes.get("scope"))
