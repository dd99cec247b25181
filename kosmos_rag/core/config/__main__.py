"""Print the table of all keys, as in docs/configuration.md."""

import sys

from kosmos_rag.core.config.reference import reference_table

sys.stdout.write(reference_table())
