"""``pyproject.toml`` and conda's ``environment.yml`` as lists of requirements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.user.requirements import read_line, required_names

# Keys of [tool.uv] that change what dependencies mean (uv, "Settings").
_UV_CHANGES = ("override-dependencies", "constraint-dependencies", "exclude-dependencies")
# conda, "MatchSpec": an optional channel, a name, and what is said of its version.
_CONDA = re.compile(r"(?:[^\s\[\]]+::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*([^\[]*)(?:\[.*\])?", re.DOTALL)
_BARE = re.compile(r"={0,2}\s*([0-9][0-9A-Za-z.]*?)(?:\.?\*)?(?:=[^=<>!,]*)?")


def read_pyproject(data: Mapping[str, Any], extras: Sequence[str], what: str, *, git: bool) -> tuple[list[str], str]:
    """The dependencies of ``[project]`` and of some of its extras, and the versions of Python that it is for.

    Args:
        data: the file.
        extras: names of ``[project.optional-dependencies]``.
        what: how messages name the file.
        git: whether the image has git.

    Raises:
        RequestError: its dependencies are not in the file or come from elsewhere than an index; there is no such extra.
    """
    from packaging.utils import canonicalize_name

    project = data.get("project")
    tool = data["tool"] if isinstance(data.get("tool"), Mapping) else {}
    if not isinstance(project, Mapping):
        poetry = "`poetry export` writes a requirements file." if "poetry" in tool else "Name a requirements file."
        raise RequestError(f"{what}: has no [project] table", remedy=poetry)
    dynamic = project.get("dynamic", [])
    for key in ("dependencies", *(["optional-dependencies"] if extras else [])):
        if isinstance(dynamic, Sequence) and key in dynamic:
            raise RequestError(
                f"{what}: {key} is dynamic, so only the project's build knows it",
                remedy="`uv pip compile pyproject.toml` writes a requirements file.",
            )
    optional = {canonicalize_name(n): rows for n, rows in _table(project, "optional-dependencies", what).items()}
    own = canonicalize_name(str(project.get("name", "")))
    texts = _texts(project.get("dependencies", []), f"{what}: project.dependencies")
    pending, taken = [canonicalize_name(each) for each in extras], set[str]()
    while pending:
        if (extra := pending.pop()) in taken:
            continue
        taken.add(extra)
        if extra not in optional:
            raise RequestError(f"{what}: has no extra {extra!r}. {did_you_mean(extra, optional)}")
        texts += _texts(optional[extra], f"{what}: project.optional-dependencies.{extra}")
        # "own-name[a,b]" in an extra stands for those of its extras.
        pending += [canonicalize_name(each) for text in texts for each in _extras_of(own, text)]
    texts = [text for text in texts if not _extras_of(own, text)]
    found = [line for text in texts for line in read_line(text, f"{what}: {text}", git=git)]
    _refuse_uv(_table(tool, "uv", what), found, what)
    return list(dict.fromkeys(found)), _python(project.get("requires-python", ""), what)


def _extras_of(name: str, text: str) -> set[str]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        asked = Requirement(text)
    except InvalidRequirement:
        return set()
    return asked.extras if canonicalize_name(asked.name) == name else set()


def _refuse_uv(uv: Mapping[str, Any], lines: Sequence[str], what: str) -> None:
    """Refuse what uv would take from elsewhere, or differently: only uv itself knows what comes out."""
    from packaging.utils import canonicalize_name

    sources = {canonicalize_name(name) for name in _table(uv, "sources", what)}
    if elsewhere := [name for name in required_names(lines) if name in sources]:
        raise RequestError(
            f"{what}: [tool.uv.sources] takes {', '.join(elsewhere)} from elsewhere than the site's index",
            remedy="Name the index in the site file (trainwright.toml), or a folder with a wheel (find_links), and "
            "give a requirements file: `uv export --no-hashes --no-emit-project` writes one to edit.",
        )
    if changing := [key for key in _UV_CHANGES if uv.get(key)]:
        raise RequestError(
            f"{what}: [tool.uv] {', '.join(changing)} changes the dependencies",
            remedy="Give the lock that uv makes of it: --with-requirements uv.lock",
        )


def read_environment(data: Any, what: str, *, git: bool) -> tuple[list[str], str]:
    """The ``pip:`` list of an environment of conda, and the Python that it asks for.

    Args:
        data: the file.
        what: how messages name it.
        git: whether the image has git.

    Raises:
        RequestError: it needs packages of conda, which an image cannot have, or has no ``pip:`` list.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("dependencies"), list):
        raise RequestError(f"{what}: has no list of dependencies", remedy="Name an environment.yml of conda.")
    if data.get("variables"):
        raise RequestError(
            f"{what}: sets variables, which an image does not take from there",
            remedy="Remove them, and give them to the job: environment={...} of an estimator.",
        )
    found: list[str] = []
    conda: list[str] = []
    python, has_pip = "", False
    for entry in data["dependencies"]:
        if isinstance(entry, Mapping) and list(entry) == ["pip"]:
            has_pip = True
            for text in _texts(entry["pip"], f"{what}: pip"):
                found += read_line(text, f"{what}: pip: {text}", git=git)
            continue
        match = _CONDA.fullmatch(entry.strip()) if isinstance(entry, str) else None
        if match is None:
            raise RequestError(f"{what}: dependencies: {str(entry)[:80]!r} is not a package of conda")
        name, version = match[1].lower(), match[2].strip()
        if name == "python":
            python = _conda_python(version, what)
        elif name != "pip":
            conda.append(name)
    if conda:
        raise RequestError(
            f"{what}: needs packages of conda, which images of pip's packages cannot have: {', '.join(conda)}",
            remedy="Move Python packages under pip: with their names on the package index, and name libraries and "
            "programs with --with-apt. PyTorch, TensorFlow and CUDA are the image's own: leave them out.",
        )
    if not has_pip:
        raise RequestError(f"{what}: has no pip: list", remedy="Only that list is taken from the file.")
    return list(dict.fromkeys(found)), python


def _conda_python(text: str, what: str) -> str:
    """conda's ``=3.11`` as ``==3.11.*``; ranges are written as pip writes them."""
    text = text.replace(" ", "")
    if not text or text == "*":
        return ""
    bare = _BARE.fullmatch(text)
    return _python(f"=={bare[1]}.*" if bare else text, what)


def _python(text: Any, what: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return str(SpecifierSet(str(text)))
    except InvalidSpecifier:
        raise RequestError(
            f"{what}: {str(text)[:80]!r} is not a range of Python versions", remedy="For example: >=3.11,<3.14"
        ) from None


def _table(data: Mapping[str, Any], key: str, what: str) -> Mapping[str, Any]:
    found = data.get(key, {})
    if not isinstance(found, Mapping):
        raise RequestError(f"{what}: {key} is not a table")
    return found


def _texts(rows: Any, where: str) -> list[str]:
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise RequestError(f"{where}: is not a list of requirements", remedy='For example: ["tqdm>=4.60", "timm"]')
    return list(rows)
