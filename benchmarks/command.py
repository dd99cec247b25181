"""The command line of all benchmarks: `--quick`, `--json`, temporary folders and files of results."""

import argparse
import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
DATASETS = ROOT.parent / "shared" / "datasets"
"""The evaluation sets, which are not part of the repository."""
MODEL: Mapping[str, Any] = {
    "rag.embedding.model": "packaged:all-MiniLM-L6-v2",
    "rag.embedding.dimensions": 384,
    "rag.reranking.enabled": False,
}
"""Settings of the model that benchmarks embed with."""


def command(description: str | None, results: str | None = None) -> argparse.ArgumentParser:
    """Return the command line of a benchmark.

    Args:
        description: The docstring of its module.
        results: Name of the file in benchmarks/results that `--json` defaults to; None writes no file by default.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny data and no model, in seconds: it shows that the command works, its figures have no meaning",
    )
    default = Path("benchmarks/results", results) if results else None
    parser.add_argument("--json", type=Path, default=default, metavar="FILE", help="write the figures to this file")
    return parser


def parse(parser: argparse.ArgumentParser, **quick: Any) -> argparse.Namespace:
    """Parse the command line. `quick` are the defaults of options in a quick run, which writes no file of results."""
    if parser.parse_known_args()[0].quick:
        parser.set_defaults(json=None, **quick)
    return parser.parse_args()


def write_results(file: Path | None, results: object, *, default: Callable[[Any], Any] | None = None) -> None:
    """Write results as JSON and print where; None writes nothing. `default` is that of `json.dumps`."""
    if file is None:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=2, default=default) + "\n", encoding="utf-8")
    print(f"\nfigures: {file}")


def temporary_folder() -> Path:
    """Create a folder that is removed when the process ends.

    What is registered first runs last: an embedded server that is started afterwards has stopped by then.
    """
    folder = Path(tempfile.mkdtemp(prefix="kosmos-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
