"""Making a lock: what uv is asked, which file is chosen, closures, failures from its words. No network."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loopback import Loopback
from trainwright.catalog.image_line import Selection
from trainwright.core import runner
from trainwright.core.errors import Conflict, RequestError, SourceError
from trainwright.core.records import parse_record
from trainwright.core.runner import Completed
from trainwright.lock import make
from trainwright.lock import wheels as resolver
from trainwright.lock.diff import changes
from trainwright.lock.wheels import lock_line, resolve_lock
from trainwright.plan.plan_lock import PlanLock
from trainwright.site.site import Site

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


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS", "UV_INDEX_STRATEGY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)

    def put(tools: FakeTools) -> FakeTools:
        monkeypatch.setattr(runner, "run", tools)
        return tools

    return put


def test_an_index_that_states_no_checksum_is_refused(install: Install) -> None:
    install(FakeTools(files=FILES.replace(f', hashes = {{ sha256 = "{SHA}" }}', "")))
    with pytest.raises(SourceError, match=r"numpy-2\.4\.6\S+\.whl: the index states no sha256"):
        resolve_lock(ROOTS, ["nvidia-nvjitlink==13.0.88"])


# ---- resolving ---------------------------------------------------------------------------------------------------


def test_one_resolution_gives_files_and_closures_and_no_address(install: Install) -> None:
    tools = install(FakeTools(config=f"global.index-url='{SECRET_INDEX}'\n"))
    lock = resolve_lock(ROOTS, ["nvidia-nvjitlink==13.0.88"])
    assert {p.name: p.components for p in lock.packages} == {
        "cuda-toolkit": ("pytorch",),
        "numpy": ("pytorch", "toolkit"),
        "nvidia-nvjitlink": ("pytorch",),
        "retrying": ("toolkit",),
        "scipy": ("toolkit",),
        "torch": ("pytorch",),
    }
    assert [p.name for p in lock.packages if p.sdist] == ["retrying"]
    assert all(p.size == 7 for p in lock.packages)
    assert "://" not in lock.dump()
    assert "example" not in lock.dump()
    assert len(tools.uv) == 2
    assert tools.inputs["constraints.txt"] == "nvidia-nvjitlink==13.0.88\n"
    assert "torch===2.13.0\n" in tools.inputs["pins.txt"]


def test_uv_believes_what_a_line_says_about_source_packages(tmp_path: Path) -> None:
    """The real uv, without an index: the package's own metadata asks for what does not exist."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("needed", "sound"):
        with zipfile.ZipFile(wheels / f"{name}-1.0-py3-none-any.whl", "w") as file:
            asks = "Requires-Dist: nowhere\n" if name == "sound" else ""
            file.writestr(
                f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{asks}"
            )
            file.writestr(
                f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            file.writestr(f"{name}-1.0.dist-info/RECORD", "")
    site = Site(find_links=(wheels,), no_index=True)
    line = {"provider": "source", "version": "1.0", "packages": ["sound==1.0"], "needs": {"sound": ["needed>=1"]}}
    read = parse_record(Selection, line, "line.yaml")
    found = resolve_lock({"sound": read.packages}, stated=read.needs, site=site)
    assert {p.name: p.components for p in found.packages} == {"needed": ("sound",), "sound": ("sound",)}
    with pytest.raises(Conflict) as caught:
        resolve_lock({"sound": read.packages}, site=site)
    assert "nowhere" in str(caught.value.details["rows"])


def test_what_options_say_about_source_packages_reaches_uv(install: Install) -> None:
    tools = install(FakeTools())
    entry = {"packages": ["torch==2.13.0"], "needs": {"retrying": ["six>=1.7", "scipy"]}}
    lock_line({"components": PACKAGES, "options": {"more": entry}, "base": "debian-12"})
    (told,) = tomllib.loads(tools.inputs["uv.toml"])["dependency-metadata"]
    assert told == {"name": "retrying", "requires-dist": ["six>=1.7", "scipy"]}


def test_uv_knows_every_option_that_it_is_given(install: Install) -> None:
    """The real uv's own help: the stand-in takes anything."""
    bounded = {"python": "3.11", "as_of": "2022-10-05", "excluded": ["cuda-toolkit"], "constraints": ["a==1", "b==2"]}
    tools = install(FakeTools())
    lock_line({"components": PACKAGES, "base": "debian-12", **bounded})
    assert tools.inputs["constraints.txt"] == "a==1\nb==2\n"
    said = subprocess.run(
        [sys.executable, "-m", "uv", "pip", "compile", "--help"], capture_output=True, text=True, check=True
    ).stdout
    known = {*re.findall(r"(?<!\S)--[a-z-]+", said)}
    assert [argv[:5] for argv, _ in tools.uv] == [[sys.executable, "-m", "uv", "pip", "compile"]] * 2
    asked = {word.partition("=")[0] for argv, _ in tools.uv for word in argv if word.startswith("--")}
    assert {"--no-deps", "--format", "--exclude-newer", "--overrides", "--python-platform"} <= asked
    assert asked - known == set()


def test_sizes_that_an_index_omits_are_asked_of_the_server(server: Loopback) -> None:
    server.pages = {"/there": b"12345"}
    found: dict[str, dict[str, Any]] = {
        "asked": {"address": f"{server.url}/there", "size": None},
        "gone": {"address": f"{server.url}/gone", "size": None},
        "known": {"address": f"{server.url}/known", "size": 7},
        "local": {"address": "/wheels/a.whl", "size": None},
    }
    resolver._ask_sizes(found, Site())
    assert {name: each["size"] for name, each in found.items()} == {
        "asked": 5,
        "gone": None,
        "known": 7,
        "local": None,
    }
    assert sorted(server.asked) == ["/gone", "/there"]


def test_a_line_that_takes_all_from_its_base_locks_nothing(install: Install) -> None:
    tools = install(FakeTools())
    lock = lock_line({"components": {"cuda": {"provider": "base"}}, "python": "3.10", "base": {"os": "ubuntu20.04"}})
    # Ubuntu 20.04 has glibc 2.31, so wheels for 2.28 fit.
    assert (lock.packages, lock.python, lock.platform) == ((), "3.10", "x86_64-manylinux_2_28")
    assert tools.calls == []


def test_addresses_reach_uv_by_environment_only(install: Install) -> None:
    config = (
        f"global.index-url='{SECRET_INDEX}'\n"
        "global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'\n"
        "global.timeout='10'\n"
        "install.timeout='20'\n"
        "download.timeout='99'\n"
        ":env:.timeout='30'\n"
        ":env:.find-links='/a /b'\n"
        ":env:.cert='/etc/bundle.crt'\n"
        ":env:.no-index='true'\n"
    )
    tools = install(FakeTools(config=config))
    resolve_lock(ROOTS, indexes=["https://three.example/whl"])
    for argv, env in tools.uv:
        assert not [word for word in argv if "://" in word]
        assert "--no-index" in argv
        assert env == {
            "UV_DEFAULT_INDEX": SECRET_INDEX,
            "UV_INDEX": "https://one.example/simple https://two.example/simple https://three.example/whl",
            "UV_FIND_LINKS": "/a,/b",
            "UV_HTTP_TIMEOUT": "30",
            "SSL_CERT_FILE": "/etc/bundle.crt",
            "UV_INDEX_STRATEGY": "unsafe-best-match",
            "UV_NO_WRAP": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }


def test_what_uv_is_told_itself_goes_first(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    monkeypatch.setenv("UV_INDEX", "https://more.example/simple")
    tools = install(FakeTools(config="global.index-url='https://pip.example/simple'\n"))
    resolve_lock(ROOTS, indexes=["https://three.example/whl"])
    assert "UV_DEFAULT_INDEX" not in tools.uv[0][1]
    assert tools.uv[0][1]["UV_INDEX"] == "https://more.example/simple https://three.example/whl"


@pytest.mark.parametrize(
    ("words", "kind", "expected"),
    [
        (
            "error: No solution found when resolving dependencies\n  cause: Because there is no version of six==99\n"
            "and you require six==99, we can conclude that your requirements are unsatisfiable.",
            Conflict,
            "packages conflict",
        ),
        (
            "error: Failed to fetch: https://u:hunter2@h.example/x/\n  cause: Connection refused",
            SourceError,
            "no answer",
        ),
        ("error: Failed to fetch: invalid peer certificate: UnknownIssuer", SourceError, "UnknownIssuer"),
        ("error: Couldn't parse requirement in `a.in` at position 0", RequestError, "cannot be read"),
        ("/usr/bin/python3: No module named uv", SourceError, "No module named uv"),
        ("word " * 1000, SourceError, r"word +\.\.\. "),
    ],
)
def test_the_resolver_s_words_become_a_failure(
    install: Install, words: str, kind: type[Exception], expected: str
) -> None:
    install(FakeTools(error=words))
    with pytest.raises(kind, match=expected) as failure:
        resolve_lock(ROOTS)
    assert "hunter2" not in str(failure.value)
    assert len(str(failure.value)) < 1000
    assert getattr(failure.value, "remedy", "")
    if isinstance(failure.value, Conflict):
        (row,) = failure.value.details["rows"]
        assert row["evidence"].startswith("Because there is no version of six==99")


def test_a_package_that_changed_between_the_questions_is_seen(install: Install) -> None:
    install(FakeTools(files=FILES.replace('version = "1.17.1"', 'version = "1.17.2"')))
    with pytest.raises(SourceError, match=r"changed while it was read: scipy$"):
        resolve_lock(ROOTS)


@pytest.mark.parametrize("key", ["url", "path"])
def test_a_file_in_a_folder_needs_no_index_for_its_checksum(install: Install, tmp_path: Path, key: str) -> None:
    """PEP 751 names a file by ``url`` or by ``path``; a path may be absolute."""
    file = tmp_path / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    file.write_bytes(b"wheel")
    address = "file://" + str(file).replace("+", "%2B") if key == "url" else str(file)
    files = (
        '[[packages]]\nname = "torch"\nversion = "2.13.0+cpu"\n'
        + f'wheels = [{{ {key} = "{address}", hashes = {{}} }}]\n'
    )
    install(FakeTools(graph="torch==2.13.0+cpu  # via -r pytorch.in\n", files=files))
    (torch,) = resolve_lock({"pytorch": ["torch==2.13.0+cpu"]}).packages
    assert (torch.file, torch.size, torch.version) == (file.name, 5, "2.13.0+cpu")
    assert torch.sha256 == hashlib.sha256(b"wheel").hexdigest()


def test_the_line_s_own_index_is_asked_only_after_a_conflict(install: Install) -> None:
    tools = install(FakeTools(error="error: No solution found when resolving dependencies\n  cause: Because x"))
    line = {
        "components": {
            "pytorch": {
                "provider": "wheel",
                "version": "1",
                "packages": ["torch==1"],
                "index": "https://t.example/whl",
            },
            "ssh": {"provider": "debian", "version": "9.2"},
        },
        "options": {"extra": {"provider": "wheel", "version": "1", "packages": ["b==1"]}},
        "constraints": ["c<2"],
    }
    with pytest.raises(Conflict):
        lock_line(line)
    assert [env.get("UV_INDEX") for _, env in tools.uv] == [None, "https://t.example/whl"]
    assert tools.inputs == {"pytorch.in": "torch==1\n", "extra.in": "b==1\n", "constraints.txt": "c<2\n"}


def test_what_the_base_image_holds_is_overridden_away(install: Install) -> None:
    tools = install(FakeTools())
    lock_line({"components": PACKAGES, "excluded": ["torch", "numpy"]})
    assert tools.inputs["overrides.txt"] == "torch ; sys_platform == 'never'\nnumpy ; sys_platform == 'never'\n"
    assert all(argv[argv.index("--overrides") + 1] == "overrides.txt" for argv, _ in tools.uv)


@pytest.mark.parametrize(
    ("base", "platform"),
    [
        ("debian-12", "x86_64-manylinux_2_28"),
        ({"kind": "nvidia", "os": "ubuntu-18.04"}, "x86_64-manylinux_2_17"),
        ({"kind": "nvidia", "os": "amazonlinux-2023"}, "x86_64-manylinux_2_28"),
    ],
)
def test_an_old_base_takes_wheels_for_an_old_c_library(install: Install, base: object, platform: str) -> None:
    old = FILES.replace("manylinux_2_28", "manylinux2014").replace("manylinux_2_27", "manylinux_2_17")
    tools = install(FakeTools(files=old))
    made = lock_line({"base": base, "components": PACKAGES})
    assert made.platform == platform
    assert all(argv[argv.index("--python-platform") + 1] == platform for argv, _ in tools.uv)


@pytest.mark.parametrize("name", ["", "../a", "-r", "a b"])
def test_a_component_s_name_is_a_word(install: Install, name: str) -> None:
    install(FakeTools())
    with pytest.raises(RequestError, match="not a valid component name"):
        resolve_lock({name: ["six"]})


def test_a_platform_that_is_none_is_refused(install: Install) -> None:
    install(FakeTools())
    with pytest.raises(RequestError, match="not a platform"):
        resolve_lock(ROOTS, platform="windows")


# ---- closures ----------------------------------------------------------------------------------------------------

nodes = st.sampled_from([f"p{number}" for number in range(7)])


@given(
    edges=st.sets(st.tuples(nodes, nodes), max_size=20),
    roots=st.sets(st.tuples(st.sampled_from(["one", "two"]), nodes), max_size=5),
)
def test_a_package_belongs_to_every_component_that_reaches_it(
    edges: set[tuple[str, str]], roots: set[tuple[str, str]]
) -> None:
    """Against the slow and plain way: follow the edges until nothing is added. Cycles are legal."""
    needed_by: dict[str, list[str]] = {f"p{number}": [] for number in range(7)}
    for parent, child in edges:
        needed_by[child].append(parent)
    for component, node in roots:
        needed_by[node].append(f"-r {component}.in")
    expected: dict[str, set[str]] = {name: {c for c, n in roots if n == name} for name in needed_by}
    while True:
        grown = {
            name: found.union(*(expected[parent] for parent, child in edges if child == name))
            for name, found in expected.items()
        }
        if grown == expected:
            break
        expected = grown
    closures = resolver._closures(needed_by, {"one.in": "one", "two.in": "two"})
    assert {name: set(closures.get(name, ())) for name in needed_by} == expected


# ---- certificates that are not checked -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "own", "hosts"),
    [
        ("global.trusted-host='b.example a.example:8080'\n", None, ("a.example:8080", "b.example")),
        ("global.trusted-host='\\nb.example\\nb.example'\n", None, ("b.example",)),
        ("global.trusted-host='b.example'\n", "own.example,two.example", ("own.example", "two.example")),
        ("", None, ()),
    ],
)
def test_a_lock_names_the_hosts_whose_certificates_were_not_checked(
    install: Install, monkeypatch: pytest.MonkeyPatch, config: str, own: str | None, hosts: tuple[str, ...]
) -> None:
    monkeypatch.delenv("UV_INSECURE_HOST", raising=False)
    if own:
        monkeypatch.setenv("UV_INSECURE_HOST", own)
    install(FakeTools(config=config))
    lock = resolve_lock(ROOTS)
    assert lock.insecure_hosts == hosts
    # A lock that was made as it should be looks as it always did.
    assert json.loads(lock.dump()).get("insecure_hosts", []) == list(hosts)
    assert ("insecure_hosts" in lock.dump()) is bool(hosts)


def test_the_lock_of_a_plan_names_them_too_and_lock_says_so(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_INSECURE_HOST", raising=False)
    before = PlanLock(
        plan="0" * 64,
        request="",
        python_version="3.11",
        platform="x86_64-manylinux_2_36",
        insecure_hosts=("earlier.example",),
    )
    said: list[str] = []
    install(FakeTools(config="global.trusted-host='now.example'\n"))
    made = make._with_insecure_hosts(before, Site(), said.append)
    assert made.insecure_hosts == ("earlier.example", "now.example")
    assert [row.name for row in changes(before, made)] == ["now.example"]
    assert len(said) == 1 and "now.example" in said[0] and "earlier.example" not in said[0]
    install(FakeTools())
    assert make._with_insecure_hosts(before, Site(), said.append) == before
    assert len(said) == 1


def test_a_token_of_an_index_is_not_in_what_uv_says(install: Install) -> None:
    index = "https://index.example/T0KENPATH/simple"
    install(FakeTools(config=f"global.index-url='{index}'\n", error=f"error: Failed to fetch: `{index}/torch/`"))
    with pytest.raises(SourceError) as failed:
        resolve_lock(ROOTS)
    assert "T0KENPATH" not in str(failed.value.as_json())
    assert "https://index.example/…/torch/" in failed.value.message
