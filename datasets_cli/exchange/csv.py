"""CSV: a row a step, a number a column; columns that are numbered from 0 on are one vector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.own.steps import StepColumns

DELIMITERS = {".csv": ",", ".tsv": "\t"}
BLOCK_BYTES = 4 << 20
"""Of text; the first block says which type a column has."""


def recognise(path: Path) -> Recognised | None:
    """Return the columns of a file, by its first block; see ``Format``."""
    if path.is_dir() or path.suffix not in DELIMITERS:
        return None
    from datasets_cli.exchange import arrow_table

    with arrow_table.damage(path.name):
        return arrow_table.recognise_table(_schema(path))


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    """Yield all steps; see ``Format``."""
    from datasets_cli.exchange import arrow_table

    with arrow_table.damage(path.name):
        schema = _schema(path)

    def batches(names: list[str]) -> Any:
        types = {name: schema.field(name).type for name in names}
        return _opened(path, {"column_types": types, "include_columns": names})

    return arrow_table.table_steps(columns, schema, batches, path.name)


def _opened(path: Path, convert: dict[str, Any]) -> Any:
    from pyarrow import csv

    return csv.open_csv(
        str(path),
        csv.ReadOptions(block_size=BLOCK_BYTES),
        csv.ParseOptions(delimiter=DELIMITERS[path.suffix]),
        csv.ConvertOptions(timestamp_parsers=[], **convert),
    )


def _schema(path: Path) -> Any:
    """Return the columns and their types; whole numbers beside others of a vector are as those."""
    import pyarrow as pa

    from datasets_cli.exchange.arrow_table import table_columns

    types = _types(path)
    floats = {
        name: pa.float64() if pa.types.is_integer(kind) else kind for name, kind in types.items()
    }
    for column in table_columns(pa.schema(floats))[0].values():
        names = [name for (name,) in column.paths]
        if len({types[name] for name in names}) > 1:
            types |= dict.fromkeys(names, pa.float64())
    return pa.schema(types)


def _types(path: Path) -> dict[str, Any]:
    """Return the types of columns, by the first block; whole numbers may have fractions later."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = _opened(path, {}).schema
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) == 1 and (other := set(";,\t|") & set(schema.names[0])):
        raise UsageError(
            f"{path.name} has one column, {schema.names[0]!r}, which may be several. Expected "
            f"{DELIMITERS[path.suffix]!r} between columns, not {min(other)!r}."
        )
    if len(types) < len(schema):
        raise UsageError(f"{path.name} has two columns of one name. Rename one in its first line.")
    if all(map(pa.types.is_null, schema.types)):
        raise UsageError(f"{path.name} has no row below its first line. Expected a row a step.")
    _check_exact(path, [name for name, kind in types.items() if pa.types.is_floating(kind)])
    whole = [name for name, kind in types.items() if pa.types.is_integer(kind)]
    if whole and path.stat().st_size > BLOCK_BYTES:
        for batch in _opened(path, _as_text(whole)):
            for name in whole:
                if pc.any(pc.match_substring_regex(batch[name], "[.eEnN]")).as_py():
                    types[name] = pa.float64()
    return types


def _check_exact(path: Path, names: list[str]) -> None:
    """Refuse whole numbers among fractions of the first block that float64 would round."""
    import pyarrow.compute as pc

    texts = next(iter(_opened(path, _as_text(names)))) if names else {}
    for name in names:
        whole = texts[name].filter(pc.match_substring_regex(texts[name], "^[+-]?[0-9]{16,}$"))
        for text in whole.to_pylist():
            if int(float(text)) != int(text):
                raise UsageError(
                    f"{path.name}: {name} is read as float64, which does not hold {text}. Write "
                    "it with a fraction if it may be rounded, or as text."
                )


def _as_text(names: list[str]) -> dict[str, Any]:
    """Return how to read some columns alone, as text."""
    import pyarrow as pa

    return {"column_types": dict.fromkeys(names, pa.string()), "include_columns": names}
