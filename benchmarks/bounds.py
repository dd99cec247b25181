"""Bounds of published figures: a command fails where one of its figures is outside.

`bounds.yaml` has them by benchmark and group of figures. They are a little below (or above) the figures of the pages,
so that a change of chance passes.
"""

import argparse
import operator
from collections.abc import Mapping
from pathlib import Path

import yaml

from benchmarks.command import command

_FILE = Path(__file__).parent / "bounds.yaml"
_OPERATORS = {">=": operator.ge, "<=": operator.le}


def command_with_bounds(description: str | None, results: str | None = None) -> argparse.ArgumentParser:
    """Return the command line of a benchmark with bounds.

    Args:
        description: The docstring of its module.
        results: As of `command`.
    """
    parser = command(description, results)
    text = "bounds of the figures; a quick run has none unless they are named"
    parser.add_argument("--bounds", type=Path, default=None if _is_quick(parser) else _FILE, metavar="FILE", help=text)
    return parser


def _is_quick(parser: argparse.ArgumentParser) -> bool:
    return bool(parser.parse_known_args()[0].quick)


def exit_outside(file: Path | None, benchmark: str, figures: Mapping[str, Mapping[str, float]]) -> None:
    """Print the figures that are outside their bounds, and exit with 1 if there are any.

    Groups of figures that were not measured, such as a tree, are left out.

    Args:
        file: File like `bounds.yaml`; None checks nothing.
        benchmark: Its name in the file.
        figures: Figures by group and name.
    """
    if file is None:
        return
    bounds: Mapping[str, Mapping[str, str]] = yaml.safe_load(file.read_text(encoding="utf-8"))[benchmark]
    outside = [
        f"{group}: {name} is {figures[group][name]:.3f}, and must be {bound}"
        for group in bounds.keys() & figures.keys()
        for name, bound in bounds[group].items()
        if not _holds(figures[group][name], bound)
    ]
    if outside:
        raise SystemExit("\n".join(["figures are outside their bounds:", *sorted(outside)]))


def _holds(value: float, bound: str) -> bool:
    comparison, _, number = bound.partition(" ")
    return bool(_OPERATORS[comparison](value, float(number)))
