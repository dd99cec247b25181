"""A revision after the newest, as an upgrade of tomorrow finds it."""

import shutil
from pathlib import Path

import pytest

from kosmos_rag.storage import migrate as migrate_module
from kosmos_rag.storage.migrate import REVISION, script_location

_ADDS_A_COLUMN = '''"""Add a column."""

from alembic import op

revision = "{later}"
down_revision = "{newest}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE kosmos.documents ADD COLUMN extra text")


def downgrade() -> None:
    op.execute("ALTER TABLE kosmos.documents DROP COLUMN extra")
'''


def add_revision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let migrations find a revision that adds a column after the newest; returns its id."""
    migrations = shutil.copytree(script_location(), folder / "migrations")
    later = f"{int(REVISION) + 1:04}"
    (migrations / "versions" / f"{later}_extra.py").write_text(_ADDS_A_COLUMN.format(later=later, newest=REVISION))
    monkeypatch.setattr(migrate_module, "script_location", lambda: migrations)
    return later
