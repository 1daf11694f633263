"""The history's folder: three Parquet files a run, and a database that looks at all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualify.errors import UsageError
from qualify.history.tables import CELL_TYPES, RUN_TYPES, cell_rows, run_row
from qualify.records.store import load_run, read_object, write_whole
from qualify.report.parquet import database, parquet, records_parquet
from qualify.report.table import COLUMNS, sql_type

FOLDER = "history"
TABLES = {
    "runs": RUN_TYPES,
    "cells": CELL_TYPES,
    "records": {name: sql_type(name) for name in COLUMNS},
}
MADE_OF = ("summary.json", "gate.json")


@dataclass(frozen=True)
class Answer:
    """What a query returned: column names and rows of plain values."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class History:
    """``root``: the folder of runs; the history lies in ``root/history``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / FOLDER

    def sync(self) -> list[str]:
        """Take in every judged run under ``root`` that is new or was judged again; their names.

        A run whose summary cannot be read is left out; `qualify report` says why.
        """
        taken = []
        for summary in sorted(self._root.glob("*/summary.json")):
            folder = summary.parent
            if self._stale(folder) and self.add(folder):
                taken.append(folder.name)
        return taken

    def add(self, folder: Path) -> bool:
        """Take in one run, in place of what was kept of it. False where it was never judged."""
        summary, gate = (read_object(folder / name) for name in MADE_OF)
        if not summary.get("outcome"):
            return False
        run = load_run(folder)
        target = self._folder / folder.name
        target.mkdir(parents=True, exist_ok=True)
        write_whole(target / "records.parquet", records_parquet(run.records))
        write_whole(target / "cells.parquet", parquet(cell_rows(run, summary), CELL_TYPES))
        # Last: a run that has this file has all three.
        write_whole(target / "runs.parquet", parquet([run_row(run, summary, gate)], RUN_TYPES))
        return True

    def ask(self, sql: str) -> Answer:
        """One query over the tables ``runs``, ``cells`` and ``records``. It can read nothing else
        and change nothing. Raises UsageError with the database's own words where it is wrong."""
        duckdb = database()
        with duckdb.connect() as con:
            for name, types in TABLES.items():
                con.execute(f"CREATE VIEW {name} AS {self._select(name, types)}")
            con.execute(f"SET allowed_directories=['{self._folder.resolve()}/']")
            con.execute("SET enable_external_access=false")
            con.execute("SET lock_configuration=true")
            try:
                if len(con.extract_statements(sql)) != 1:
                    raise UsageError(
                        "That is not one query.", 'Write one: qualify history sql "SELECT ..."'
                    )
                found = con.execute(sql)
                columns = tuple(c[0] for c in found.description or ())
                return Answer(columns, tuple(found.fetchall()))
            except duckdb.Error as error:
                raise UsageError(
                    f"The query failed: {str(error).strip()}",
                    'The tables are runs, cells and records: qualify history sql "DESCRIBE runs"',
                ) from None

    def _select(self, name: str, types: dict[str, str]) -> str:
        if any(self._folder.glob(f"*/{name}.parquet")):
            files = f"{self._folder.resolve()}/*/{name}.parquet"
            return f"SELECT * FROM read_parquet('{files}', union_by_name=true)"
        none = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in types.items())
        return f"SELECT {none} WHERE false"

    def _stale(self, folder: Path) -> bool:
        kept = self._folder / folder.name / "runs.parquet"
        if not kept.exists():
            return True
        when = kept.stat().st_mtime
        return any((folder / n).exists() and (folder / n).stat().st_mtime > when for n in MADE_OF)
