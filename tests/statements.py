"""The SQL statements of the kernel and of the wings."""

from pathlib import Path

import kosmos_rag
from kosmos_rag.core.statements import Statements

PACKAGE = Path(kosmos_rag.__file__).parent
STATEMENTS = {
    folder.parent: Statements(f"kosmos_rag.{folder.parent.name}.sql")
    for folder in sorted(PACKAGE.glob("*/sql"))
    if any(folder.glob("*.sql"))
}
"""By the package whose modules run them; `storage` has those of the kernel."""
TEXTS = {name: text for statements in STATEMENTS.values() for name, text in statements.texts.items()}
"""By name: no two packages have one name."""
