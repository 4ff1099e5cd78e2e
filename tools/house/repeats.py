"""Pairs of places in which six or more lines say the same.

Blank lines, comments, docstrings, imports, decorators and lines of punctuation are skipped. Of the other lines the
*shape* counts: all names that are no keywords are equal, all strings, and all numbers. Two files that share six such
lines in a row are one pair, however many rows they share; so is a file with itself, where the rows do not overlap. A
row counts only if four of its six shapes differ (six fields of a dataclass are no repetition), and if it stands in at
most eight places (otherwise it is an idiom).
"""

import io
import keyword
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePosixPath

from tools.house.tree import Source, Tree, import_statements

ROW = 6
MIN_DIFFERENT = 4
MAX_PLACES = 8
STRING = "s"
PLAIN = {tokenize.NAME: "n", tokenize.NUMBER: "0", tokenize.STRING: STRING}


@dataclass(frozen=True)
class Place:
    """`index`: the number of the row among the shapes of its file."""

    path: PurePosixPath
    line: int
    index: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"

    def overlaps(self, other: "Place") -> bool:
        return self.path == other.path and abs(self.index - other.index) < ROW


def repeated_pairs(tree: Tree) -> list[tuple[Place, Place]]:
    """For each pair its first shared row."""
    rows: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for source in tree.sources:
        for row, place in _rows(source):
            rows[row].append(place)
    pairs: dict[tuple[PurePosixPath, PurePosixPath], tuple[Place, Place]] = {}
    for places in rows.values():
        if len(places) <= MAX_PLACES:
            for left, right in combinations(places, 2):
                if not left.overlaps(right):
                    pairs.setdefault((left.path, right.path), (left, right))
    return [pairs[paths] for paths in sorted(pairs)]


def _rows(source: Source) -> Iterator[tuple[tuple[str, ...], Place]]:
    shapes = list(_shapes(source))
    for index in range(len(shapes) - ROW + 1):
        row = tuple(shape for _, shape in shapes[index : index + ROW])
        if len(set(row)) >= MIN_DIFFERENT:
            yield row, Place(source.path, shapes[index][0], index)


def _shapes(source: Source) -> Iterator[tuple[int, str]]:
    """(line number, shape) of each line that counts."""
    skipped = {
        line
        for statement in import_statements(source)
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }
    for line, words in sorted(_words(source).items()):
        shape = " ".join(words)
        thin = shape == STRING or shape.startswith("@") or not any(word.isalnum() for word in words)
        if not thin and line not in skipped:
            yield line, shape


def _words(source: Source) -> dict[int, list[str]]:
    """For each line its tokens, normalized."""
    words: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.OP or keyword.iskeyword(token.string):
            words[token.start[0]].append(token.string)
        elif token.type in PLAIN:
            words[token.start[0]].append(PLAIN[token.type])
        elif tokenize.tok_name[token.type] == "FSTRING_START":  # since Python 3.12
            words[token.start[0]].append(STRING)
    return words
