"""Compare the rows of two dumps, without keeping them."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_COPY = re.compile(rb'COPY kosmos\.("?\w+"?) \(.*\) FROM stdin;\n')
_END = b"\\.\n"
_MODULUS = 2**128


@dataclass(frozen=True, slots=True)
class TableDigest:
    """The rows of a table as their number and a sum of hashes, in any order."""

    rows: int
    sha256_sum: int


def digest_tables(dump: Iterable[bytes]) -> dict[str, TableDigest]:
    """Digest the lines of a plain dump by table.

    The sum of hashes is the multiset hash MSet-Add-Hash of Clarke et al. 2003, with SHA-256 cut to 128 bits.
    """
    digests = {}
    lines = iter(dump)
    for line in lines:
        if not (start := _COPY.fullmatch(line)):
            continue
        rows, total = 0, 0
        for row in lines:
            if row == _END:
                break
            rows += 1
            total += int.from_bytes(hashlib.sha256(row).digest()[:16])
        digests[start[1].decode()] = TableDigest(rows, total % _MODULUS)
    return digests


def describe_differences(expected: Mapping[str, TableDigest], restored: Mapping[str, TableDigest]) -> list[str]:
    """Return a sentence for each table whose rows differ."""
    differences = []
    for table in sorted(expected.keys() | restored.keys()):
        of_file, of_database = (digests.get(table, TableDigest(0, 0)) for digests in (expected, restored))
        if of_file.rows != of_database.rows:
            differences.append(f"{table} has {of_file.rows} rows in the file and {of_database.rows} in the database")
        elif of_file != of_database:
            differences.append(f"{table} has rows that are not those of the file")
    return differences
