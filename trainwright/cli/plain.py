"""A command line that says what it means: a verb, its words, and flags that are each given once, with plain values.

Such a line is taken here, without invoke, which is as slow to load as the rest of a quick verb. Whatever else there is
(a mistake, a number) is not judged here: the parser decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import fields

from trainwright.cli.flags import Verb, kind_of

Find = Callable[[str], Verb[Any] | None]


def take(words: Sequence[str], find: Find) -> tuple[Verb[Any], dict[str, Any]] | None:
    """The verb of a plain command line and the values of its flags, as :mod:`trainwright.cli.tasks` would hand them on.

    Args:
        words: what follows the name of the program.
        find: the verb of a name, if there is one.

    Returns:
        Nothing where the line is not plain, valid or not.
    """
    verb = find(words[0]) if words else None
    if verb is None:
        return None
    flags = {f"--{each.encode_name.replace('_', '-')}": each for each in fields(verb.record)}
    said: dict[str, Any] = {}
    bare, after = verb.record.bare, verb.record.rest
    if "--" in words and after:
        words, said[after] = words[: words.index("--")], [*words[words.index("--") + 1 :]]
    names = {each.name: flag for flag, each in flags.items()}
    rest = iter(words[1:])
    for part in rest:
        word = part if not bare or part.startswith("-") else f"{names[bare]}={part}"
        flag, equals, value = word.partition("=")
        if (field := flags.get(flag)) is None:
            return None
        word, kind = field.encode_name, kind_of(field.type)
        if kind is bool:
            plain = not equals and field.default is False
        else:
            value = value if equals else next(rest, "")
            plain = kind in (str, list) and value.isascii() and value.isprintable() and value[:1] not in ("", "-")
        if not plain or (word in said and kind is not list):
            return None
        said[word] = [*said.get(word, ()), value] if kind is list else True if kind is bool else value
    return None if any(each.required and each.encode_name not in said for each in flags.values()) else (verb, said)
