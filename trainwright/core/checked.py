"""Values with a check of our own, which msgspec lacks, and what is said of one that fails it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

__all__ = ["Checked", "Misfit", "check"]

if TYPE_CHECKING:
    from typing import Annotated as Checked
else:

    class Checked(type):
        """``Checked[kind, check]``: a ``kind`` that ``check`` accepts (or changes; ``ValueError`` says what is wrong).

        msgspec has no checks of one's own, but hands a value of a class that it does not know to a hook.
        """

        def __class_getitem__(cls, parts):
            kind, check = parts
            return cls("Checked", (), {"kind": kind, "check": staticmethod(check)})

        def __instancecheck__(cls, value):
            return True


def check(kind: Any, value: Any) -> Any:
    """msgspec's hook for kinds that it does not know: paths and :data:`Checked`.

    Raises:
        ValueError: the value is wrong.
        TypeError: it has another type.
    """
    if kind is Path:
        if not isinstance(value, str | Path):
            raise TypeError
        return Path(value)
    if kind.kind is not str:
        value = msgspec.convert(value, kind.kind, dec_hook=check)
    elif not isinstance(value, str):
        raise TypeError
    return kind.check(value)


class Misfit(NamedTuple):
    """What is wrong with a value: where it is, and what to say of it.

    ``valid``: the valid keys, if the key is unknown. ``read``: what the text was taken for that had no quotes.
    """

    loc: tuple[Any, ...]
    says: str
    valid: tuple[str, ...] = ()
    read: str = ""
