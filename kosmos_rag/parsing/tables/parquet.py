"""Parse Parquet by PyArrow.

One line for each row, with the names of columns.
"""

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import media_types
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.text.json import format_values

_BATCH_ROWS = 1_000


def parse_parquet(data: bytes, limits: OutputLimits) -> ParsedDocument:
    """Parse a Parquet table to one line for each row.

    The lines are those of JSON Lines.

    Raises:
        ParseError: `unsupported` without the extra `parquet`, `too_large`.
    """
    require_extra(
        "parquet",
        "a Parquet table",
        "pyarrow",
        alternative="convert it to CSV",
        error=partial(ParseError, "unsupported"),
    )
    composition = Composition(limits)
    for row in _rows(data):
        composition.add_line("; ".join(format_values(_as_json(row))))
    return composition.build(media_types.PARQUET, None)


def _rows(data: bytes) -> Iterator[dict[str, Any]]:
    from pyarrow.parquet import ParquetFile

    # Threads would count against the process's address space, a stack each.
    with ParquetFile(BytesIO(data), pre_buffer=False) as table:
        for batch in table.iter_batches(_BATCH_ROWS, use_threads=False):
            yield from batch.to_pylist()


def _as_json(value: Any) -> Any:
    """Return the value for `format_values`, without null and binary values."""
    if isinstance(value, dict):
        return {str(name): _as_json(item) for name, item in value.items() if not isinstance(item, bytes | None)}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value if not isinstance(item, bytes | None)]
    return value if isinstance(value, bool) else str(value)
