"""A page as a test sees it: elements with attributes and text, found by tag, id, class or any attribute."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})


@dataclass
class Element:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it, spaces folded."""
        return " ".join(" ".join(self._texts()).split())

    def _texts(self) -> list[str]:
        return [part for child in self.children for part in ([child] if isinstance(child, str) else child._texts())]

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Below this one. `class_` holds one of the classes; others are compared whole, `_` means `-`."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if (not tag or child.tag == tag) and child._has(attributes):
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def one(self, tag: str = "", **attributes: str) -> Element:
        found = self.all(tag, **attributes)
        assert len(found) == 1, f"{len(found)} x {tag} {attributes}"
        return found[0]

    def _has(self, wanted: dict[str, str]) -> bool:
        for name, value in wanted.items():
            given = self.attributes.get(name.rstrip("_").replace("_", "-"))
            if given is None or (value not in given.split() if name == "class_" else value != given):
                return False
        return True


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert tag in [element.tag for element in self.open], f"</{tag}> closes nothing"
        while self.open.pop().tag != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(text: str) -> Element:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader.root
