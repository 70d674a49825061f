"""The lock of an image line as a file, and the locks that are shipped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainwright.catalog import tools
from trainwright.catalog import wheel_lock as locking
from trainwright.catalog.wheel_lock import Lock, LockedPackage
from trainwright.core import runner
from trainwright.core.errors import RequestError
from trainwright.core.paths import images_dir

SHA = "ab" * 32
LINES = sorted(images_dir().glob("*/*/line.yaml"))


# ---- the file ----------------------------------------------------------------------------------------------------

names = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True)
packages = st.builds(
    LockedPackage,
    name=names,
    version=st.from_regex(r"[0-9]\.[0-9]{1,2}(\+cpu)?", fullmatch=True),
    file=st.sampled_from(["a-1-py3-none-any.whl", "a-1.tar.gz"]),
    sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
    size=st.none() | st.integers(0, 10**10),
    components=st.lists(names, max_size=3, unique=True).map(lambda each: tuple(sorted(each))),
)
locks = st.builds(
    lambda each: Lock(python="3.11", platform=locking.PLATFORM, packages=tuple(each)),
    st.lists(packages, max_size=8, unique_by=lambda p: p.name),
)


@given(locks)
def test_a_lock_survives_its_file(tmp_path_factory: pytest.TempPathFactory, lock: Lock) -> None:
    path = tmp_path_factory.mktemp("lock") / "a.lock.json"
    path.write_text(lock.dump())
    assert Lock.load(path) == lock
    assert Lock.load(path).dump() == lock.dump()
    assert lock.dump().endswith("}\n")


@given(locks)
def test_order_of_packages_is_by_name_whatever_came_in(lock: Lock) -> None:
    turned = Lock(python=lock.python, platform=lock.platform, packages=tuple(reversed(lock.packages)))
    assert turned.dump() == lock.dump()
    assert [p.name for p in lock.packages] == sorted(p.name for p in lock.packages)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not readable as JSON"),
        ('{"schema": "trainwright/lock/1", "python": "3.11", "platform": "p", "pakages": []}', "Did you mean packages"),
        ('{"schema": "trainwright/lock/2", "python": "3.11", "platform": "p", "packages": []}', "schema"),
    ],
)
def test_what_is_no_lock_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.lock.json").write_text(text)
    with pytest.raises(RequestError, match=words):
        Lock.load(tmp_path / "a.lock.json")


def test_a_missing_lock_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no such file") as missing:
        Lock.load(tmp_path / "a.lock.json")
    assert "./invoke lock-lines" in missing.value.remedy


@pytest.mark.parametrize("bad", [{"sha256": "12"}, {"file": "../a.whl"}, {"file": "a.exe"}, {"size": -1}])
def test_a_package_is_checked(bad: dict[str, object]) -> None:
    good = {"name": "a", "version": "1", "file": "a-1-py3-none-any.whl", "sha256": SHA}
    assert LockedPackage(**(good | {"name": "Inotify_Simple"})).name == "inotify-simple"
    with pytest.raises(ValueError, match=next(iter(bad))):
        LockedPackage(**(good | bad))


def test_reading_a_lock_imports_neither_packaging_nor_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))
    code = (
        "import sys; from pathlib import Path; from trainwright.catalog.wheel_lock import Lock;"
        f"Lock.load(Path({str(LINES[0].with_name('lock.json'))!r}));"
        "print([m for m in ('packaging', 'uv', 'ssl', 'urllib.request', 'jinja2', 'docker') if m in sys.modules])"
    )
    root = str(Path(locking.__file__).parents[2])
    done = runner.run([sys.executable, "-c", code], env={"PYTHONPATH": root})
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# ---- the locks that are shipped ----------------------------------------------------------------------------------


def shipped(path: Path) -> tuple[dict[str, Any], Lock]:
    return yaml.safe_load(path.read_text()), Lock.load(path.with_name("lock.json"))


def name_of(path: Path) -> str:
    return f"{path.parents[1].name}/{path.parent.name}"


@pytest.mark.parametrize("path", LINES, ids=name_of)
def test_a_shipped_lock_holds_what_its_line_names(path: Path) -> None:
    line, lock = shipped(path)
    assert path.with_name("lock.json").read_text() == lock.dump()
    found = {p.name: p for p in lock.packages}
    for name, chosen in {**line["components"], **line.get("options", {})}.items():
        for requirement in chosen.get("packages", ()):
            package, _, version = requirement.partition("==")
            locked = found[locking.normalise(package)]
            assert (locked.version, name in locked.components) == (version, True), requirement
    assert all(p.components for p in lock.packages)
    assert "://" not in lock.dump()


@pytest.mark.parametrize("path", [p for p in LINES if not p.parent.name[0].isdigit()], ids=name_of)
def test_the_toolkit_alone_is_built_from_source(path: Path) -> None:
    line, lock = shipped(path)
    own = {"inotify-simple", f"sagemaker-{path.parents[1].name}-training", "sagemaker-training"}
    # DeepSpeed, flash-attn and one of the packages of Transformer Engine have no wheel, either.
    others = {"deepspeed": "deepspeed", "flash-attn": "flash-attn", "transformer-engine": "transformer-engine-torch"}
    own |= {package for option, package in others.items() if option in line.get("options", ())}
    assert {p.name for p in lock.packages if p.sdist} == own


@pytest.mark.parametrize("path", [p for p in LINES if "nvidia-" in p.read_text()], ids=name_of)
def test_a_shipped_lock_holds_one_cuda(path: Path) -> None:
    line, lock = shipped(path)
    cuda = str(line["cuda"])
    suffix = "" if cuda.startswith("13") else f"-cu{cuda.partition('.')[0]}"
    libraries = ["cuda-runtime", "cuda-nvrtc", "cuda-cupti", "nvtx", "nvjitlink", "cuda-nvcc", "cuda-cccl", "nvvm"]
    versions = {p.name: p.version for p in lock.packages}
    matched = {name: versions[f"nvidia-{name}{suffix}"] for name in libraries if f"nvidia-{name}{suffix}" in versions}
    assert "cuda-runtime" in matched
    # Where CUDA is inside the framework's wheel, these are only headers: of the last release that has them as wheels.
    headers = line["components"]["cuda"]["provider"] == "framework"
    assert {".".join(version.split(".")[:2]) for version in matched.values()} == {"11.7" if headers else cuda}
    # CUTLASS's compiler, which cuDNN's frontend asks for, comes for both versions, without a library of CUDA.
    named = {p for p in versions if p.startswith("nvidia-")} - {"nvidia-cutlass-dsl-libs-cu12"}
    majors = {p.rpartition("-cu")[2] for p in named if p.rpartition("-cu")[2].isdigit()}
    assert majors <= {cuda.partition(".")[0]}


def test_the_cpu_line_holds_no_cuda() -> None:
    _, lock = shipped(images_dir() / "pytorch" / "cpu" / "line.yaml")
    assert not [p.name for p in lock.packages if p.name.startswith(("nvidia", "cuda", "triton", "rmm"))]


@pytest.mark.parametrize("python", list(tools.load_tools().packages))
def test_the_tools_can_build_what_has_no_wheel(python: str) -> None:
    lock = tools.tools_lock(python)
    assert {"uv", "pip", "setuptools", "wheel"} <= {p.name for p in lock.packages}
    assert not [p for p in lock.packages if p.sdist]
    assert tools.stale_tools(tools.load_tools(), python) == []


def test_tools_of_an_unknown_python_are_an_error_that_says_which_are_known() -> None:
    with pytest.raises(RequestError, match=r"Python 3\.5, only for 3\.6, .*3\.13"):
        tools.tools_lock("3.5")


def test_every_evidence_has_a_source_and_a_date() -> None:
    for path in LINES:
        line, _ = shipped(path)
        assert line["evidence"], path.name
        for row in json.loads(json.dumps(line["evidence"])):
            assert set(row) == {"source", "date", "says"}
