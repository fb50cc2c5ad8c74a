"""Reads a record file with the Arrow readers that users have: pyarrow, polars and duckdb.

Usage: read_record.py FILE EXPECTED.json

EXPECTED.json is a list of the file's rows as written: one object per row, null where a field is absent.
Exits 0 if every reader sees exactly these rows, 1 if one does not, 77 if a reader is not installed.
"""

import json
import sys

try:
    import duckdb
    import polars
    import pyarrow.ipc
except ImportError as error:
    print(f"not installed: {error.name}")
    sys.exit(77)


def compare(reader, rows, expected):
    if rows == expected:
        print(f"{reader}: {len(rows)} rows as written")
        return
    print(f"{reader}: {len(rows)} rows, {len(expected)} were written")
    for index, (row, wanted) in enumerate(zip(rows, expected)):
        if row != wanted:
            print(f"row {index}: {row}\nwritten:  {wanted}")
            break
    sys.exit(1)


def main():
    path, expected_path = sys.argv[1:]
    with open(expected_path, encoding="utf-8") as file:
        expected = json.load(file)

    with pyarrow.ipc.open_stream(path) as stream:
        batches = list(stream)
    if len(batches) < 3:
        sys.exit(f"pyarrow: {len(batches)} batches, the test needs several")
    table = pyarrow.Table.from_batches(batches)
    compare("pyarrow", table.to_pylist(), expected)

    frame = polars.read_ipc_stream(path)
    compare("polars", frame.to_dicts(), expected)

    with pyarrow.ipc.open_stream(path) as stream:
        relation = duckdb.from_arrow(stream)
        rows = [dict(zip(relation.columns, row)) for row in relation.fetchall()]
    compare("duckdb", rows, expected)

    counts = duckdb.from_arrow(table).query("record", "select kind, count(*) from record group by kind")
    wanted = {}
    for row in expected:
        wanted[row["kind"]] = wanted.get(row["kind"], 0) + 1
    if dict(counts.fetchall()) != wanted:
        sys.exit("duckdb: a query by kind does not count the rows that were written")


main()
