"""Print docs/settings.md.

python -m kosmos_rag.core.config > docs/settings.md
"""

import sys

from kosmos_rag.core.config.reference import reference_page

sys.stdout.write(reference_page())
