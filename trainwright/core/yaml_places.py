"""Where the values of a YAML file are in its text, and what was typed there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from trainwright.core.data_files import YamlLoader, read_text


def yaml_line(path: Path, keys: Sequence[object]) -> int | None:
    """The line of a value of a file that :func:`trainwright.core.data_files.read_yaml` has read.

    Args:
        path: of the file.
        keys: keys and places in lists that lead to the value.

    Returns:
        the line of its key, or of the innermost one that is there; None if there is none.
    """
    node, line = yaml.compose(read_text(path), YamlLoader), None
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line + 1
            continue
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next(((name, value) for name, value in pairs if name.value == str(key)), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def yaml_place(path: Path, keys: Sequence[object]) -> str:
    """A value as an error names it: the file, and its :func:`yaml_line` if there is one."""
    line = yaml_line(path, keys)
    return str(path) if line is None else f"{path}:{line}"


def yaml_texts(path: Path, key: str) -> dict[str, str]:
    """The values of a mapping of a file that :func:`read_yaml` has read, as they were typed: 010, not 8.

    Args:
        path: of the file.
        key: of the mapping, at the top; what is not a single value there is left out.
    """
    top = yaml.compose(read_text(path), YamlLoader)
    pairs = top.value if isinstance(top, yaml.MappingNode) else ()
    table = next((value for name, value in pairs if name.value == key), None)
    rows = table.value if isinstance(table, yaml.MappingNode) else ()
    return {name.value: value.value for name, value in rows if isinstance(value, yaml.ScalarNode)}
