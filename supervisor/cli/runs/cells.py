"""The cells of a sweep: from a file with `matrix` or `lines` to one run id, spec and place in the file for each.

Pure, and the same for the same file, so that a repeated submit finds its own runs. `{axis}` in a text stands for the
value of that axis; in a field of its own it keeps its type. `${axis}` belongs to the shell. What cannot be meant is
refused: a placeholder without a value, an axis that nothing uses, two cells of one name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import product
from typing import Any

from supervisor.contract.identifiers import RUN_ID_RULE, is_run_id

MATRIX, LINES = "matrix", "lines"
CELLS_MOST = 10_000
NAME_MAX = 63  # characters of a run id
AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
TEXTS = frozenset({"command", "env", "labels"})  # fields whose values are texts
GIVEN = ("group", "cell")  # placeholders beside the axes

Json = dict[str, Any]
Scalar = str | int | float | bool


class SweepRefused(Exception):
    """`names`: the way to the field of the file that is wrong."""

    def __init__(self, names: tuple[str, ...], text: str) -> None:
        super().__init__(text)
        self.names, self.text = names, text


@dataclass(frozen=True)
class Cell:
    """One run of a sweep. `line`: the number of its entry in `lines`; None = it comes from the matrix. `own`: the
    fields that this entry gives itself."""

    run_id: str
    values: Mapping[str, str]
    spec: Json
    line: int | None = None
    own: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Entry:
    """A cell before its placeholders are filled."""

    values: Mapping[str, Scalar]
    own: Mapping[str, Any]
    name: str = ""
    line: int | None = None

    @property
    def place(self) -> tuple[str, ...]:
        return (MATRIX,) if self.line is None else (LINES, str(self.line))


def is_sweep(spec: Mapping[str, Any]) -> bool:
    return MATRIX in spec or LINES in spec


def cells_of(sweep: Mapping[str, Any]) -> list[Cell]:
    """The cells in the order of the file: the matrix, its last axis the fastest, then the lines; a cell that other
    cells name in `after` comes before them. Raises SweepRefused."""
    template = {name: value for name, value in sweep.items() if name not in (MATRIX, LINES)}
    group = template.get("group")
    if not isinstance(group, str) or not is_run_id(group):
        raise SweepRefused(("group",), f"a sweep needs a group: {RUN_ID_RULE}. Its runs are named GROUP-CELL.")
    matrix = _matrix(sweep.get(MATRIX))
    entries = [*_of_matrix(matrix), *_of_lines(sweep.get(LINES))]
    if not entries:
        raise SweepRefused((), "the sweep has no cell: give `matrix` or `lines` at least one value.")
    if len(entries) > CELLS_MOST:
        raise SweepRefused((MATRIX,), f"the sweep has {len(entries):,} cells, at most {CELLS_MOST:,} are possible.")
    axes = list(dict.fromkeys(name for entry in entries for name in entry.values))
    _refuse_unused(axes, template, entries)
    cells = [_cell(template, group, entry, axes) for entry in entries]
    _refuse_twins(cells, entries)
    return _in_order(cells, entries)


# --- the file ---------------------------------------------------------------------------------------------------------


def _matrix(matrix: Any) -> dict[str, list[Scalar]]:
    if matrix is None:
        return {}
    if not isinstance(matrix, dict):
        raise SweepRefused((MATRIX,), "matrix must have a list of values for each axis.")
    for axis, values in matrix.items():
        _check_axis(axis, (MATRIX, axis))
        if not isinstance(values, list) or not values:
            raise SweepRefused((MATRIX, axis), f"matrix.{axis} must be a list of values.")
        for number, value in enumerate(values):
            _check_scalar(value, (MATRIX, axis, str(number)))
            if _text(value) in map(_text, values[:number]):
                raise SweepRefused((MATRIX, axis, str(number)), f"matrix.{axis} has the value {_text(value)} twice.")
    return matrix


def _of_matrix(matrix: Mapping[str, list[Scalar]]) -> Iterator[_Entry]:
    if matrix:
        for values in product(*matrix.values()):
            yield _Entry(dict(zip(matrix, values, strict=True)), {})


def _of_lines(lines: Any) -> Iterator[_Entry]:
    if lines is None:
        return
    if not isinstance(lines, list):
        raise SweepRefused((LINES,), "lines must be a list of cells.")
    for number, line in enumerate(lines):
        place = (LINES, str(number))
        if not isinstance(line, dict):
            raise SweepRefused(place, "a line must have fields: values, name, or fields of the spec.")
        own = dict(line)
        values, name = own.pop("values", None) or {}, own.pop("name", "")
        if not isinstance(values, dict) or not isinstance(name, str):
            raise SweepRefused(place, "values must have a value for each axis, and name must be a text.")
        for axis, value in values.items():
            _check_axis(axis, (*place, "values", axis))
            _check_scalar(value, (*place, "values", axis))
        if not values and not name:
            raise SweepRefused(place, "the line needs values, or a name for its run.")
        for field in ("group", "max_parallel", "run_id"):
            if field in own:
                raise SweepRefused((*place, field), f"{field} belongs to the whole sweep, not to one line.")
        yield _Entry(values, own, name, number)


def _check_axis(axis: str, place: tuple[str, ...]) -> None:
    if not AXIS.match(axis) or axis in GIVEN:
        raise SweepRefused(place, f"{axis} is not a name for an axis: letters, digits and _, and not group or cell.")


def _check_scalar(value: Any, place: tuple[str, ...]) -> None:
    if not isinstance(value, Scalar):
        raise SweepRefused(place, "a value must be a text, a number, true or false.")


# --- the cells --------------------------------------------------------------------------------------------------------


def _cell(template: Json, group: str, entry: _Entry, axes: list[str]) -> Cell:
    name = entry.name or _name_of(entry.values, NAME_MAX - len(group) - 1)
    run_id = f"{group}-{name}"
    if not is_run_id(run_id):
        raise SweepRefused(entry.place, f"{run_id} is not a run id ({RUN_ID_RULE}). Give the cell another name.")
    filled = _Filled({**entry.values, "group": group, "cell": name}, axes, entry)
    spec = {field: filled.value(value, (field,)) for field, value in _joined(template, entry.own).items()}
    values = {axis: _text(value) for axis, value in entry.values.items()}
    spec["labels"] = {**values, **(spec.get("labels") or {})}
    return Cell(run_id, values, spec, entry.line, frozenset(entry.own))


def _joined(template: Json, own: Mapping[str, Any]) -> Json:
    """The fields of a line win; in a field with names (env, limits, labels …) name by name."""
    joined = dict(template)
    for field, value in own.items():
        base = template.get(field)
        joined[field] = {**base, **value} if isinstance(base, dict) and isinstance(value, dict) else value
    return joined


@dataclass(frozen=True)
class _Filled:
    """Puts the values of one cell into the fields of its spec."""

    values: Mapping[str, Scalar]
    axes: list[str]
    entry: _Entry

    def value(self, value: Any, at: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            return self._text(value, at)
        if isinstance(value, list):
            return [self.value(part, (*at, str(number))) for number, part in enumerate(value)]
        if isinstance(value, dict):
            if len(value) == 1 and next(iter(value.values())) is None and next(iter(value)) in self.values:
                raise self._refused(at, f"put {{{next(iter(value))}}} into quotes: YAML reads braces as a mapping.")
            return {name: self.value(part, (*at, name)) for name, part in value.items()}
        return value

    def _text(self, text: str, at: tuple[str, ...]) -> Any:
        whole = PLACEHOLDER.fullmatch(text)
        if whole is not None and at[0] not in TEXTS and whole[1] in self.values:
            return self.values[whole[1]]
        return PLACEHOLDER.sub(lambda match: self._replacement(match, at), text)

    def _replacement(self, match: re.Match[str], at: tuple[str, ...]) -> str:
        name = match[1]
        if name in self.values:
            return _text(self.values[name])
        if name in self.axes:
            raise self._refused(at, f"the cell has no value for {{{name}}}.")
        near = get_close_matches(name, [*self.axes, *GIVEN], n=1, cutoff=0.7)
        if near:
            raise self._refused(at, f"there is no axis {name}; did you mean {{{near[0]}}}?")
        return match[0]

    def _refused(self, at: tuple[str, ...], text: str) -> SweepRefused:
        own = self.entry.line is not None and (at[0] in self.entry.own or "no value" in text)
        return SweepRefused((*self.entry.place, *at) if own else at, f"{'.'.join(at)}: {text}")


def _text(value: Scalar) -> str:
    """As it stands in a command: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name_of(values: Mapping[str, Scalar], limit: int) -> str:
    """`lr0-01-opt-adam`: short, and the same for the same values."""
    parts = []
    for axis, value in values.items():
        text = _text(value)
        parts.append(f"{axis}{text}" if text[:1].isdigit() else f"{axis}-{text}")
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:6]
    return f"{name[: max(1, limit - 7)].rstrip('-')}-{digest}"


def _in_order(cells: list[Cell], entries: list[_Entry]) -> list[Cell]:
    """Each cell behind those cells of this sweep that it names in `after`."""
    own = {cell.run_id for cell in cells}
    ordered: dict[str, Cell] = {}
    left = list(cells)
    while left:
        free = [cell for cell in left if _all_before(cell, own, ordered)]
        if not free:
            place = next(entry.place for entry, cell in zip(entries, cells, strict=True) if cell is left[0])
            raise SweepRefused(place, f"{left[0].run_id} would wait for itself: its `after` leads back to it.")
        ordered |= {cell.run_id: cell for cell in free}
        left = [cell for cell in left if cell.run_id not in ordered]
    return list(ordered.values())


def _all_before(cell: Cell, own: set[str], ordered: Mapping[str, Cell]) -> bool:
    return all(name in ordered for name in cell.spec.get("after") or () if name in own)


# --- what cannot be meant ---------------------------------------------------------------------------------------------


def _refuse_unused(axes: list[str], template: Json, entries: list[_Entry]) -> None:
    """An axis that no text uses would make the same run many times."""
    used = {
        match for text in _texts([template, *(entry.own for entry in entries)]) for match in PLACEHOLDER.findall(text)
    }
    for axis in axes:
        if axis not in used and len({entry.values.get(axis) for entry in entries}) > 1:
            place = next(entry.place for entry in entries if axis in entry.values)
            names = (MATRIX, axis) if place == (MATRIX,) else (*place, "values", axis)
            text = f"nothing uses the axis {axis}: put {{{axis}}} into the command or another field."
            near = [name for name in used if name not in axes and get_close_matches(name, [axis], cutoff=0.7)]
            raise SweepRefused(names, text if not near else f"{text} Did you mean it where {{{near[0]}}} stands?")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts(part) if part is not None else (f"{{{name}}}",)  # braces without quotes
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _refuse_twins(cells: list[Cell], entries: list[_Entry]) -> None:
    first: dict[str, int] = {}
    for number, cell in enumerate(cells):
        twin = first.setdefault(cell.run_id, number)
        if twin != number:
            these = " and ".join(_shown(entries[n]) for n in (twin, number))
            text = f"two cells have the name {cell.run_id}: {these}. Give one of them a `name` in `lines`."
            raise SweepRefused(entries[number].place, text)


def _shown(entry: _Entry) -> str:
    values = ", ".join(f"{axis}={_text(value)}" for axis, value in entry.values.items())
    return values if entry.line is None else f"lines[{entry.line}]" + (f" ({values})" if values else "")
