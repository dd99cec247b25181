"""The media types that can be parsed."""

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
EPUB = "application/epub+zip"
EML = "message/rfc822"
MBOX = "application/mbox"
MHTML = "multipart/related"
MSG = "application/vnd.ms-outlook"
CONFLUENCE = "application/vnd.atlassian.confluence+zip"
ZIP = "application/zip"
"""Archives of documents, tar archives and compressed files too."""
HTML = "text/html"
MARKDOWN = "text/markdown"
CSV = "text/csv"
TSV = "text/tab-separated-values"
JSON = "application/json"
JSONL = "application/jsonl"
WORDML = "application/vnd.ms-wordml"
XLS = "application/vnd.ms-excel"
RTF = "application/rtf"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODP = "application/vnd.oasis.opendocument.presentation"
NOTEBOOK = "application/x-ipynb+json"
PNG = "image/png"
JPEG = "image/jpeg"
TIFF = "image/tiff"
WEBP = "image/webp"
PARQUET = "application/vnd.apache.parquet"
SVG = "image/svg+xml"
RST = "text/x-rst"
ASCIIDOC = "text/asciidoc"
ORG = "text/x-org"
TEX = "application/x-tex"
SUBRIP = "application/x-subrip"
WEBVTT = "text/vtt"
ICALENDAR = "text/calendar"
VCARD = "text/vcard"
XML = "application/xml"
DRAWIO = "application/vnd.jgraph.mxfile"
BPMN = "application/bpmn+xml"
VSDX = "application/vnd.ms-visio.drawing"
SQL = "application/sql"
TEXT = "text/plain"

CODE = {
    "bash": "text/x-shellscript",
    "c": "text/x-c",
    "cc": "text/x-c++",
    "cpp": "text/x-c++",
    "cs": "text/x-csharp",
    "go": "text/x-go",
    "h": "text/x-c",
    "hpp": "text/x-c++",
    "java": "text/x-java",
    "js": "text/javascript",
    "jsx": "text/javascript",
    "kt": "text/x-kotlin",
    "lua": "text/x-lua",
    "mjs": "text/javascript",
    "php": "text/x-php",
    "pl": "text/x-perl",
    "ps1": "text/x-powershell",
    "py": "text/x-python",
    "r": "text/x-r",
    "rb": "text/x-ruby",
    "rs": "text/x-rust",
    "scala": "text/x-scala",
    "sh": "text/x-shellscript",
    "sql": SQL,
    "swift": "text/x-swift",
    "ts": "text/x-typescript",
    "tsx": "text/x-typescript",
}
"""Source code, by the extension of the file."""

MARKUP = {"adoc": ASCIIDOC, "asciidoc": ASCIIDOC, "latex": TEX, "org": ORG, "rst": RST, "tex": TEX}
"""Markup whose lines are kept as they are, by the extension of the file."""

TEXTS = (
    CODE
    | MARKUP
    | {
        "csv": CSV,
        "ics": ICALENDAR,
        "ipynb": NOTEBOOK,
        "json": JSON,
        "jsonl": JSONL,
        "markdown": MARKDOWN,
        "md": MARKDOWN,
        "mdx": MARKDOWN,
        "ndjson": JSONL,
        "qmd": MARKDOWN,
        "rmd": MARKDOWN,
        "srt": SUBRIP,
        "tab": TSV,
        "tsv": TSV,
        "vcf": VCARD,
        "vtt": WEBVTT,
    }
)
"""Kinds of text that only the extension identifies."""

PICTURES = frozenset({PNG, JPEG, TIFF, WEBP})
"""Are read by OCR."""

_BINARIES = (
    PDF,
    DOCX,
    PPTX,
    XLSX,
    EPUB,
    XLS,
    RTF,
    ODT,
    ODS,
    ODP,
    EML,
    MBOX,
    MHTML,
    MSG,
    PARQUET,
    CONFLUENCE,
    ZIP,
    VSDX,
)
NO_TEXT = PICTURES | frozenset(_BINARIES)
"""Formats that are not a text in one encoding."""

NAMES = dict.fromkeys(CODE.values(), "source code") | {
    PDF: "PDF",
    DOCX: "DOCX",
    PPTX: "PPTX",
    XLSX: "XLSX",
    EPUB: "EPUB",
    EML: "mail",
    MBOX: "mailbox",
    MHTML: "MHTML",
    MSG: "MSG",
    CONFLUENCE: "Confluence export",
    ZIP: "archive",
    HTML: "HTML",
    MARKDOWN: "Markdown",
    CSV: "CSV",
    TSV: "TSV",
    JSON: "JSON",
    JSONL: "JSON Lines",
    WORDML: "Word XML",
    XLS: "XLS",
    RTF: "RTF",
    ODT: "ODT",
    ODS: "ODS",
    ODP: "ODP",
    NOTEBOOK: "notebook",
    PARQUET: "Parquet",
    SVG: "SVG",
    RST: "reStructuredText",
    ASCIIDOC: "AsciiDoc",
    ORG: "Org",
    TEX: "LaTeX",
    SUBRIP: "subtitle",
    WEBVTT: "subtitle",
    ICALENDAR: "calendar",
    VCARD: "address book",
    XML: "XML",
    **dict.fromkeys(PICTURES, "picture"),
    DRAWIO: "draw.io",
    BPMN: "BPMN",
    VSDX: "Visio",
    SQL: "SQL",
    TEXT: "text",
}
"""What people call them."""
