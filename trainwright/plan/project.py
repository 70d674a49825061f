"""The project file: ``[image]`` of ``trainwright.toml`` names the image that the commands of a folder are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from trainwright.catalog.budget import SIZE, SMALLEST, Budget, Size
from trainwright.core.data_files import MAX_TOML_BYTES, parse_toml, read_text, toml_line
from trainwright.core.fields import form
from trainwright.core.records import Field, Record, parse_record
from trainwright.plan.words import RequestWords
from trainwright.site.site import PROJECT, SITE_FILE, Settings

W = TypeVar("W", bound=RequestWords)


class Project(Record):
    """An image as a project asks for it. Paths are relative to the file's folder."""

    framework: str
    cuda: str | None = None
    version: str | None = None
    python: str | None = None
    base: str | None = None
    for_: str | None = Field(default=None, alias="for")
    platform: str | None = None
    with_: tuple[str, ...] = Field(default=(), alias="with")
    without: tuple[str, ...] = ()
    set_: dict[str, str] = Field(default={}, alias="set")
    for_gpus: tuple[str, ...] = ()
    requirements: str | None = None
    apt: tuple[str, ...] = ()
    run: str | None = None
    code: str | None = None
    entry_point: str | None = None
    repository: str | None = Field(default=None, description="where push sends the image")
    soci: bool = Field(default=False, description="push adds a SOCI index, with which jobs start earlier")
    budget: Size | None = Field(
        default=None, description="the size of the image, such as 5.0 GB; one that is more than 3 % larger gets no tag"
    )

    def words(self) -> dict[str, Any]:
        """What the command line would say, under the names of the fields of :class:`RequestWords`."""
        of_image = ("framework", "cuda", "version", "python", "base", "for_", "platform")
        plain = (*of_image, "requirements", "apt", "run", "code", "entry_point")
        said: dict[str, Any] = {name: getattr(self, name) for name in plain}
        said |= {"with_": ",".join(self.with_) or None, "without": ",".join(self.without) or None}
        said["for_gpus"] = ",".join(self.for_gpus) or None
        return said | {"set_": tuple(f"{name}={version}" for name, version in self.set_.items())}


class ProjectTable(Project):
    """An image as a project asks for it. Paths are relative to the file's folder."""  # for the schema of the file

    budget: Annotated[str, form(SIZE)] | Annotated[int, Meta(ge=SMALLEST)] | None = Field(
        default=None, description=Project.descriptions["budget"]
    )


class ProjectFile(Settings):
    """``trainwright.toml``: the settings of this machine and, in ``[image]``, what a project asks for."""

    image: ProjectTable | None = None


def read_project(folder: Path) -> Project | None:
    """The project of a folder; ``None`` if its ``trainwright.toml`` has no ``[image]``, or there is no such file.

    Raises:
        RequestError: the file cannot be read, or a key of ``[image]`` is unknown, missing or of the wrong type.
    """
    path = folder / SITE_FILE
    if not path.is_file():
        return None
    text = read_text(path, limit=MAX_TOML_BYTES)
    data = parse_toml(text, str(path), remedy="Fix the file; it is TOML.")
    if PROJECT not in data:
        return None

    def place(keys: Sequence[object]) -> str:
        line = toml_line(text, PROJECT, str(keys[0])) if keys else None
        return f"{SITE_FILE}: [{PROJECT}]" if line is None else f"{SITE_FILE}:{line}: [{PROJECT}]"

    return parse_record(Project, data[PROJECT], SITE_FILE, place=place)


def with_project(words: W, project: Project | None) -> W:
    """A command line, completed by the project's words; flags override them one by one.

    A command line that names a framework is a request of its own: no word of the project is added to it.
    """
    if project is None or words.framework or words.short:
        return words
    given = {name for name in RequestWords.__struct_fields__ if getattr(words, name)}
    return words.replace(**{name: value for name, value in project.words().items() if value and name not in given})


def budget_of(words: RequestWords, project: Project | None) -> Budget | None:
    """The size budget of a project's image; ``None`` if the project has none or the words ask for another image.

    Args:
        words: the command line, not yet completed by the project.
        project: of the folder.
    """
    if project is None or project.budget is None or words.short or any(getattr(words, key) for key in project.words()):
        return None
    return Budget(bytes=project.budget, file=SITE_FILE)


def project_text(values: Mapping[str, str | list[str] | dict[str, str] | None]) -> str:
    """The table ``[image]``: a line per key that has a value. Texts and lists are written as in JSON."""
    lines = [f"[{PROJECT}]"]
    for key, value in values.items():
        if isinstance(value, dict) and value:
            pairs = ", ".join(f"{_quoted(name)} = {_quoted(each)}" for name, each in value.items())
            lines.append(f"{key} = {{{pairs}}}")
        elif value:
            lines.append(f"{key} = {_quoted(value)}")
    return "\n".join(lines) + "\n"


def _quoted(value: Any) -> str:
    """A text or a list in JSON, which is TOML too, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
