"""Where the values of a YAML file are in its text, and what was typed there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from trainwright.core.data_files import YamlLoader, read_text


def yaml_tree(path: Path) -> Any:
    """The nodes of a file that :func:`trainwright.core.data_files.read_yaml` has read; None if it is empty."""
    return yaml.compose(read_text(path), YamlLoader)


def rows(node: Any) -> list[tuple[str, int, Any]]:
    """Key, line and value of each row of a mapping; none of other nodes."""
    found = node.value if isinstance(node, yaml.MappingNode) else ()
    return [(str(key.value), key.start_mark.line + 1, value) for key, value in found]


def yaml_line(path: Path, keys: Sequence[object]) -> int | None:
    """The line of a value of a file that :func:`trainwright.core.data_files.read_yaml` has read.

    Args:
        path: of the file.
        keys: keys and places in lists that lead to the value.

    Returns:
        the line of its key; if the key is missing, that of the closest key above it, or None.
    """
    node, line = yaml_tree(path), None
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line + 1
            continue
        found = next(((at, value) for name, at, value in rows(node) if name == str(key)), None)
        if found is None:
            break
        line, node = found
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
    table = next((value for name, _, value in rows(yaml_tree(path)) if name == key), None)
    return {name: value.value for name, _, value in rows(table) if isinstance(value, yaml.ScalarNode)}
