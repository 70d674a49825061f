"""The values that help and completion offer for a flag: what is in the catalog, and what was built here.

They are read from the names of folders and by pattern from the lines' files, as nobody waits half a second for a Tab.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from trainwright.core.paths import images_dir, own_catalog, setting, templates_dir

_CUDA = re.compile(r"cu[0-9]+|cpu")
_PYTHON = re.compile(r'^python: *"?([0-9.]+)', re.MULTILINE)
_TAG = re.compile(rb'"tags": \[\s*"([^"]+)"')


def _lines() -> Iterator[Path]:
    """The folders of the image lines: ``images/<framework>/<version>-<cuda>``."""
    own = own_catalog()
    for root in (images_dir(), *([own / "images"] if own else [])):
        yield from (file.parent for file in sorted(root.glob("*/*/line.yaml")))


def _frameworks() -> list[str]:
    return [folder.parent.name for folder in _lines()]


def _cudas() -> list[str]:
    found = {part for folder in _lines() for part in folder.name.split("-") if _CUDA.fullmatch(part)}
    return sorted(found, key=lambda tag: (tag == "cpu", tag))


def _pythons() -> list[str]:
    found = {match[1] for folder in _lines() if (match := _PYTHON.search((folder / "line.yaml").read_text()))}
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def _requests() -> list[str]:
    tags = ((folder.parent.name, part) for folder in _lines() for part in folder.name.split("-"))
    return [f"{framework}:{tag}" for framework, tag in tags if _CUDA.fullmatch(tag)]


def _components() -> list[str]:
    own = own_catalog()
    roots = (templates_dir(), *([own / "templates"] if own else []))
    return sorted(file.parent.name for root in roots for file in root.glob("components/*/component.yaml"))


def _built() -> list[str]:
    """The first tag of each image that was built here, newest first; no folder is made for that."""
    records = [*Path(setting("TRAINWRIGHT_STATE") or ".trainwright").glob("images/*/record.json")]
    found = (_TAG.search(path.read_bytes()) for path in sorted(records, key=lambda p: p.stat().st_mtime, reverse=True))
    return [match[1].decode() for match in found if match]


def _bases() -> list[str]:
    from typing import get_args

    from trainwright.catalog.image_line import BaseKind

    return list(get_args(BaseKind))


def _destinations() -> list[str]:
    from trainwright.plan.destination import DESTINATIONS

    return list(DESTINATIONS)


def _distributions() -> list[str]:
    from trainwright.rehearse.flags import WORDS

    return list(WORDS)


def _gpus() -> list[str]:
    from trainwright.sagemaker.gpus import GPUS

    return [*sorted({gpu.capability for gpu in GPUS.values()}, key=float), *sorted(GPUS)]


def _instances() -> list[str]:
    from trainwright.sagemaker.instances import load_instances

    return sorted(load_instances())


_LISTS: dict[str, Callable[[], list[str]]] = {
    **{"frameworks": _frameworks, "cudas": _cudas, "pythons": _pythons, "bases": _bases, "requests": _requests},
    "destinations": _destinations,
    "gpus": _gpus,
    **{"components": _components, "built": _built, "distributions": _distributions, "instances": _instances},
}


def values_of(named: str | tuple[str, ...]) -> list[str]:
    """The values themselves, or the list of that name, each value once.

    Args:
        named: as in :func:`trainwright.core.records.Field`.

    Raises:
        KeyError: there is no list of that name.
    """
    return list(dict.fromkeys(_LISTS[named]())) if isinstance(named, str) else list(named)
