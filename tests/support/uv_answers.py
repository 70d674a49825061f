"""What stands in for uv and pip where a lock is made: their answers, and what they were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainwright.core.runner import Completed

SHA = "ab" * 32
SECRET_INDEX = "https://someone:hunter2@index.example/simple"


def wheel(file: str, sha: str = SHA, base: str = "https://files.example/a") -> str:
    return f'{{ url = "{base}/{file}", size = 7, hashes = {{ sha256 = "{sha}" }} }}'


def pylock(packages: Mapping[str, tuple[str, Sequence[str], str | None]]) -> str:
    """What uv prints: name to version, wheel file names and the sdist's."""
    text = 'lock-version = "1.0"\ncreated-by = "uv"\n'
    for name, (version, wheels, sdist) in packages.items():
        text += f'\n[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        if sdist:
            text += f"sdist = {wheel(sdist)}\n"
        text += f"wheels = [{', '.join(wheel(file) for file in wheels)}]\n"
    return text


GRAPH = """\
numpy==2.4.6              # via scipy, -r pytorch.in
nvidia-nvjitlink==13.0.88  # via -c constraints.txt, cuda-toolkit
cuda-toolkit==13.0.3.0    # via torch
retrying==1.4.2           # via -r toolkit.in
scipy==1.17.1             # via -r toolkit.in
torch==2.13.0             # via -r pytorch.in
"""
FILES = pylock(
    {
        "numpy": ("2.4.6", ["numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"], None),
        "nvidia-nvjitlink": ("13.0.88", ["nvidia_nvjitlink-13.0.88-py3-none-manylinux2014_x86_64.whl"], None),
        "cuda-toolkit": ("13.0.3.0", ["cuda_toolkit-13.0.3.0-py2.py3-none-any.whl"], None),
        "retrying": ("1.4.2", [], "retrying-1.4.2.tar.gz"),
        "scipy": ("1.17.1", ["scipy-1.17.1-cp311-cp311-manylinux_2_28_x86_64.whl"], "scipy-1.17.1.tar.gz"),
        "torch": ("2.13.0", ["torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"], None),
    }
)
ROOTS = {"pytorch": ["torch==2.13.0", "numpy==2.4.6"], "toolkit": ["retrying==1.4.2", "scipy"]}
PACKAGES = {name: {"packages": packages} for name, packages in ROOTS.items()}


class FakeTools:
    """Stands in for :func:`runner.run`: answers pip's configuration and uv's two questions, keeps what was asked."""

    def __init__(self, graph: str = GRAPH, files: str = FILES, config: str = "", error: str = "") -> None:
        self.graph, self.files, self.config, self.error = graph, files, config, error
        self.calls: list[tuple[list[str], dict[str, str]]] = []
        self.inputs: dict[str, str] = {}

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float | None = None,
    ) -> Completed:
        assert timeout, "a resolver that hangs must end"
        self.calls.append((list(argv), dict(env or {})))
        if "pip" in argv[:3] and "config" in argv:
            return Completed(tuple(argv), 0, self.config, "", 0.0)
        assert cwd is not None
        self.inputs = {path.name: path.read_text() for path in cwd.iterdir()}
        if self.error:
            return Completed(tuple(argv), 2, "", self.error, 0.0)
        return Completed(tuple(argv), 0, self.files if "--format=pylock.toml" in argv else self.graph, "", 0.0)

    @property
    def uv(self) -> list[tuple[list[str], dict[str, str]]]:
        return [(argv, env) for argv, env in self.calls if "uv" in argv]


Install = Callable[[FakeTools], FakeTools]
