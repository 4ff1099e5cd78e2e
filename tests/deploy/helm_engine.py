"""Helm's own engine as a program: a request on standard input, its answer on standard output, both JSON.

The engine is a library of Go, which takes over the signals of its process and starts threads in it; the tests fork
theirs. The tests import nothing from here.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import helm_python


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["action"] == "lint":
        report: dict[str, Any] = helm_python.lint(request["chart"], request["values"], strict=True)
        return report
    with helm_python.Chart.load(request["chart"]) as chart:
        try:
            values = chart.merge_values(request["values"])
            chart.validate_schema(values)
            return {"files": chart.render(values, name=request["release"], namespace=request["namespace"])}
        except helm_python.HelmError as error:
            return {"refused": str(error)}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
