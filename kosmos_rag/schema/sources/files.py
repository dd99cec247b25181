"""Files of JSON as values."""

import json
from pathlib import Path
from typing import Any

from kosmos_rag.errors import SchemaInvalid


def read_json(path: Path) -> Any:
    """Read a file of JSON. Raises SchemaInvalid where it cannot be read, or is no JSON."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
    except RecursionError:
        problem = "it is nested too deep"
    except ValueError as error:  # malformed, or not UTF-8
        problem = f"it is no JSON ({error})"
    raise SchemaInvalid(f"file {path}", [problem])
