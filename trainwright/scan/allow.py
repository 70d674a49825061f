"""Vulnerabilities that a team accepts for a time: a YAML file with a reason, an owner and a last day for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from trainwright.core.checked import Checked
from trainwright.core.data_files import read_yaml
from trainwright.core.fields import Day, OneLine, Statement, form
from trainwright.core.records import Field, Record, parse_record

_Id = Annotated[str, form(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]


def _day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError as wrong:
        raise ValueError(f"is not a day: {wrong}") from None
    return text


class Allowance(Record):
    """An entry of the file."""

    id: _Id = Field(description="of the vulnerability, or an alias of it")
    package: OneLine | None = Field(
        default=None, description="only in this package; a source package of a distribution"
    )
    reason: Statement
    owner: Statement
    expires: Checked[Day, _day] = Field(description="the last day on which it holds (UTC)")

    def covers(self, names: Iterable[str], package: str) -> bool:
        """Whether this is about a vulnerability of these names, in that package."""
        return self.id in names and self.package in (None, package)

    def holds(self, today: date) -> bool:
        """Whether it has not expired."""
        return today <= date.fromisoformat(self.expires)


class AllowFile(Record):
    """The file."""

    allow: tuple[Allowance, ...] = ()


def read_allowances(path: Path) -> tuple[Allowance, ...]:
    """The entries of a file.

    Raises:
        RequestError: it cannot be read, or a key is unknown, missing or wrong.
    """
    return parse_record(AllowFile, _with_days(read_yaml(path) or {}), str(path)).allow


def _with_days(data: Any) -> Any:
    """YAML's days as text: an unquoted ``2027-01-31`` is one."""
    if isinstance(data, dict):
        return {key: _with_days(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_with_days(each) for each in data]
    return data.isoformat() if type(data) is date else data


def unused(allowances: Iterable[Allowance], used: Iterable[Allowance]) -> Iterator[Allowance]:
    """The entries that were not used."""
    known = set(used)
    return (each for each in allowances if each not in known)
