"""Bounds on what a file may ask of a parser.

A file beyond one is refused, or what exceeds it is left out: a hostile or broken file takes no more memory and
time than these allow. Documents that people read stay far below. Operators set the other limits in `ingestion.parsing`.
"""

# Files in files.
MAX_NESTED_FILES = 3
"""Levels of mails and archives in others."""
MAX_NESTED_MAILS = 5
MAX_MAIL_PART_LEVELS = 30
MAX_MAIL_ATTACHMENTS = 200
MAX_ARCHIVE_MEMBERS = 2_000
MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_COMPRESSION_RATIO = 100
MIN_COMPRESSED_BYTES = 2**20
"""Bytes of an unpacked member, from which on its ratio counts."""
MAX_FILE_PARTS = 1_000
"""Documents that a large table or file of JSON Lines becomes."""
MAX_SIGNED_PIECES = 100_000

# The output.
MAX_HEADINGS = 20_000
"""Every chunk looks its section up among the headings; no document that people read has more."""
MAX_TABLES = 20_000
MAX_NOTES = 20
MAX_PLACES = 100_000
"""Rows of tables with a place of their own; rows of more tables have the place of their table."""
MAX_TITLE_CHARS = 300
MAX_HEADING_LEVEL = 6
"""As in HTML."""
MAX_REASON_CHARS = 200
"""Of an error of a library."""
MAX_PATH_CHARS = 200
"""That are kept of a path in JSON or XML, those nearest to the value: a long one repeated would be most of the text."""
MAX_FRONT_MATTER_CHARS = 16_384
"""Longer front matter is text."""
MAX_FRONT_MATTER_VALUES = 100
MAX_OUTPUT_CHARS = 4_000
"""Of one result in a notebook; a longer one is a log, and its end is left out."""
MAX_REPEATED_CHARS = 100
"""Of a merged cell that is written once for each of its rows."""

# Tables.
MAX_SPANNED_COLUMNS = 1_000
"""That a cell may cover, as the HTML standard has it."""
MAX_SPANNED_ROWS = 65_534
"""As the HTML standard has it."""
MAX_COVERED_CELLS = 500_000
"""Positions of a table that merged cells may fill: a file of a few bytes can ask for any number."""
MAX_SHEET_CELLS = 5_000_000
SAMPLE_ROWS = 20
"""That show whether a table has headers, a separator and a caption."""
MAX_REPEATS = 100
"""Of a row, a cell or a space in OpenDocument; more of them are the empty rest of a sheet."""
MAX_FORMAT_CHARS = 255
"""Of a number format, as in Excel."""
MAX_FORMAT_DIGITS = 30

# Structures that nest or refer to each other.
MAX_STYLE_LEVELS = 20
MAX_EQUATION_LEVELS = 50
"""What is deeper has its letters alone."""
MAX_FORM_LEVELS = 4
"""Of drawings in drawings of a PDF."""
MAX_GRAMMAR_S = 10.0
"""Of computing, for the tree of a file of source code: a grammar may take quadratic time."""
MAX_HTML_COST = 1_000_000_000
"""A few seconds of work; a large ordinary page stays under a hundredth of it."""

# Pages of a PDF.
MAX_PAGE_LINES = 2_000
"""A page with more is read in the order of the file."""
MAX_PAGE_DRAWINGS = 20_000
"""Graphics, and segments of their paths; a page with more is read as if it had none."""
MAX_PAGE_TAGS = 5_000
"""Elements of a page's structure; a file with more is read as if it had no tags."""
MAX_GRID_LINES = 300
"""Ruled lines in one direction; graph paper has more."""
MAX_PAGE_COLUMNS = 50
MAX_OUTLINE_ENTRIES = 10_000
"""Each entry is searched for on its page."""
MAX_ANNOTATIONS = 2_000
MAX_FIELD_CHARS = 2**20
"""Of all values of the form of a page. What follows is left out, and so is a longer value."""
MAX_FONT_NAME_BYTES = 128
MAX_CHART_POINTS = 10_000
MAX_PICTURE_WIDTH = 1_400
MAX_PICTURE_HEIGHT = 4_000
"""Pixels of a rendered page, and of a picture."""
MAX_RECOGNIZED_SIDE = 1_600
"""Pixels of the longer side of a page for OCR: A4 at 137 dots an inch."""

# What is read to recognise something.
SAMPLE_CHARS = 65_536
MAX_DECLARATION_BYTES = 1_024
"""How far an encoding is declared from the beginning."""
LEGACY_SAMPLE_CHARS = 8_192
MAX_LEGACY_ENCODINGS = 16
MAX_LEGACY_WORDS = 100

# The child process of a file.
MAX_REQUEST_BYTES = 2**20
MAX_PICTURE_BYTES = 2**25
MAX_REPLY_BYTES_BESIDE_TEXT = 2**24
MAX_START_S = 60.0
"""Of the process that forks the children."""
MAX_FORK_S = 10.0
MAX_STOP_S = 5.0
MAX_OPEN_FILES = 64
CONVERTER_MEMORY_FACTOR = 4
"""Times `memory_mb` of address space for LibreOffice, which maps more than it uses."""
MAX_CONVERTER_PROCESSES = 128
"""Threads included; root has no such limit."""
MAX_DESCRIPTOR = 2**16
"""Where the system sets no limit; a child has a few dozen."""
CPU_GRACE_S = 5
"""Between the signal that a child can handle, and its end."""
