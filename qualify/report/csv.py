"""The records as CSV, the columns of ``table``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from qualify.records.schema import Record
from qualify.report.table import COLUMNS, row


def records_csv(records: Iterable[Record]) -> str:
    """RFC 4180 with a header; a missing value is an empty field. Lines end in CRLF."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for record in records:
        values = row(record)
        writer.writerow([_field(values[name]) for name in COLUMNS])
    return out.getvalue()


def _field(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula is marked as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
