r"""The values in one line of an ARFF file: how they are separated, quoted and escaped.

    1.5, setosa                 separated by commas
    1.5 <tab> setosa            or by tabs, of which two with nothing between mean a missing value
    ?, 'it\'s, ''young'''       a bare ? is missing; a quoted one is the label
    2, setosa  % doubtful       a comment after the values

Unquoted text may contain tabs and percent signs. So a line has several readings, and the number and
kinds of the columns decide which one is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from datasets_cli.formats.attribute import AttributeValue

MISSING = ("?", "")
COMMENT = "%"
MOST_DIGITS = 18

Converted = TypeVar("Converted")

_QUOTED = r"""'(?P<single>(?:[^'\\]|\\.|'')*+)'|"(?P<double>(?:[^"\\]|\\.|"")*+)\""""


def _dense(blank: str, separator: str, *, comment: bool) -> re.Pattern[str]:
    """Return the pattern of a value and its separator; possessive, so it matches in linear time."""
    # A % directly after a character other than a blank is part of the value, as in 10%.
    character = rf"(?:[^{separator}%]|(?<!\s)%)" if comment else rf"[^{separator}]"
    bare = rf"(?!['\"{'%' if comment else ''}])(?P<bare>{character}*+)"
    end = rf"(?:\s*%.*|[{separator}])" if comment else rf"[{separator}]"
    return re.compile(rf"{blank}*+(?:(?:{_QUOTED}){blank}*+|{bare}){end}", re.DOTALL)


_COMMAS = _dense(r"\s", ",", comment=False)
_COMMAS_AND_COMMENT = _dense(r"\s", ",", comment=True)
_TABS = _dense("[ ]", r",\t", comment=False)
_TABS_AND_COMMENT = _dense("[ ]", r",\t", comment=True)
_LABEL = re.compile(
    rf"\s*+(?:(?:{_QUOTED})\s*+|(?!['\"])(?P<bare>[^,}}]*+))(?P<end>[,}}])", re.DOTALL
)
_SPARSE = re.compile(
    rf"\s*+(?P<column>\d++)\s++(?:(?:{_QUOTED})\s*+|(?!['\"])(?P<bare>[^,]*+)),", re.DOTALL
)
_NAMED = re.compile(rf"(?:{_QUOTED}|(?P<bare>[^\s{{]+))\s*(?P<type>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def plain_row(text: str) -> list[AttributeValue] | None:
    """Return the values between the commas of a row; None if it contains quotes."""
    if "'" in text or '"' in text:
        return None
    values = text.split(",")
    if " " in text or "\t" in text:
        values = [value.strip() for value in values]
    if "?" in text or "" in values:
        return [None if value in MISSING else value for value in values]
    return list(values)


def readings(line: str) -> Iterator[list[AttributeValue]]:
    """Yield the readings of a dense row, the likeliest first.

    Args:
        line: without its line end. Tabs at its ends may be separators.
    """
    yield from _readings(line.strip(), _COMMAS, _COMMAS_AND_COMMENT)
    if "\t" in line:
        yield from _readings(line, _TABS, _TABS_AND_COMMENT)
        if (text := line.strip()) != line:
            yield from _readings(text, _TABS, _TABS_AND_COMMENT)


def sparse_row(text: str) -> list[tuple[int, AttributeValue]] | None:
    """Return column numbers and values; None if the line is not a sparse row.

    Args:
        text: a line that begins with a brace.
    """
    inside, _, rest = text[1:].rpartition("}")
    if rest.strip() and not rest.lstrip().startswith(COMMENT):
        return None
    return _matched(_SPARSE, inside, _cell) if inside.strip() else []


def split_labels(text: str) -> tuple[tuple[str, ...], str] | None:
    """Return the labels of an attribute and the text after them.

    Args:
        text: the text after the opening brace.

    Returns:
        None if a quote or the list does not end.
    """
    labels, position, end = [], 0, ","
    while end == ",":
        match = _LABEL.match(text, position)
        if match is None:
            return None
        # An empty label cannot be a value: an empty value is missing.
        labels.append(_text(match) or ("" if match["bare"] is None else "?"))
        position, end = match.end(), match["end"]
    return tuple(labels) if text[: position - 1].strip() else (), text[position:]


def split_name(text: str) -> tuple[str, str] | None:
    """Return the name of an attribute and its type; None if it has no name."""
    match = _NAMED.match(text)
    return (_text(match), match["type"]) if match else None


def _readings(
    text: str, plain: re.Pattern[str], commented: re.Pattern[str]
) -> Iterator[list[AttributeValue]]:
    if (values := _matched(plain, text, _value)) is not None:
        yield values
    if COMMENT in text and (values := _matched(commented, text, _value)) is not None:
        yield values


def _matched(
    pattern: re.Pattern[str], text: str, convert: Callable[[re.Match[str]], Converted]
) -> list[Converted] | None:
    """Return each match, converted; None if the matches do not cover the whole text."""
    # A match takes a hundred times the memory of a short value.
    num_matched = 0
    converted = []
    for match in pattern.finditer(f"{text},"):
        num_matched += match.end() - match.start()
        converted.append(convert(match))
    return converted if num_matched == len(text) + 1 else None


def _cell(match: re.Match[str]) -> tuple[int, AttributeValue]:
    digits = match["column"].lstrip("0") or "0"
    # Python rejects thousands of digits; no table has that many columns.
    return int(digits[:MOST_DIGITS]), _value(match)


def _value(match: re.Match[str]) -> AttributeValue:
    bare = match["bare"]
    return None if bare is not None and bare.strip() in MISSING else _text(match)


def _text(match: re.Match[str]) -> str:
    """Return the text of a match without its quotes, doubled quotes and escapes."""
    bare, single, double = match.group("bare", "single", "double")
    if bare is not None:
        return str(bare).strip()
    text = double.replace('""', '"') if single is None else single.replace("''", "'")
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "u" and len(code) == 5:
        return chr(int(code[1:], 16))
    # liac-arff writes control characters as octal numbers.
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROLS.get(code, code)
