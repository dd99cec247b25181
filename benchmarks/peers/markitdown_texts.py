"""Write the text that markitdown reads of each file of a folder.

The text is written next to the file. The script runs in the environment of the other parsers.
"""

import sys
from pathlib import Path

from markitdown import MarkItDown

converter = MarkItDown()
for file in sorted(Path(sys.argv[1]).iterdir()):
    file.with_name(f"{file.name}.txt").write_text(converter.convert(str(file)).text_content, encoding="utf-8")
