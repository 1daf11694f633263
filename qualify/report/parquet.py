"""Tables as Parquet, written by DuckDB: it reads and writes it without anything else installed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qualify.errors import UsageError
from qualify.records.schema import Record
from qualify.report.table import COLUMNS, row, sql_type


def records_parquet(records: Iterable[Record]) -> bytes:
    """One row a request; the columns of ``table``, missing values null."""
    return parquet((row(r) for r in records), {name: sql_type(name) for name in COLUMNS})


def parquet(rows: Iterable[Mapping[str, Any]], types: Mapping[str, str]) -> bytes:
    """``rows`` with the columns and SQL types of ``types``. Raises UsageError without DuckDB."""
    duckdb = database()
    with tempfile.TemporaryDirectory() as folder:
        lines, made = Path(folder) / "rows.json", Path(folder) / "rows.parquet"
        with lines.open("w") as file:
            for values in rows:
                file.write(json.dumps({k: values[k] for k in types}, allow_nan=False) + "\n")
        columns = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
        with duckdb.connect() as con:
            con.execute(
                f"COPY (SELECT * FROM read_json('{lines}', format='newline_delimited', "
                f"maximum_object_size=67108864, columns={{{columns}}})) "
                f"TO '{made}' (FORMAT parquet, COMPRESSION zstd)"
            )
        return made.read_bytes()


def database() -> Any:
    """The module duckdb. Raises UsageError with the command that installs it."""
    try:
        import duckdb
    except ImportError:
        raise UsageError(
            "Parquet and the history need DuckDB, which is not installed.",
            "Install it with: pip install 'qualify[history]'",
        ) from None
    return duckdb
