"""Making a lock: which file is chosen, closures, what a line says. No network."""

from __future__ import annotations

import hashlib
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.loopback import Loopback
from tests.support.uv_answers import (
    FILES,
    GRAPH,
    PACKAGES,
    ROOTS,
    SECRET_INDEX,
    SHA,
    FakeTools,
    Install,
    pylock,
    wheel,
)
from trainwright.catalog.image_line import Selection
from trainwright.core.errors import Conflict, RequestError, SourceError
from trainwright.core.records import parse_record
from trainwright.lock import wheels as resolver
from trainwright.lock.wheels import lock_line, resolve_lock
from trainwright.site.site import Proxies, Site


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
    assert tools.inputs["pytorch.in"] == "torch==2.13.0\nnumpy==2.4.6\n"


def test_a_package_that_another_one_needs_for_an_extra_belongs_to_its_component(install: Install) -> None:
    install(FakeTools(graph=GRAPH.replace("via scipy, -r pytorch.in", "via scipy[array], -r pytorch.in")))
    (numpy,) = [p for p in resolve_lock(ROOTS).packages if p.name == "numpy"]
    assert numpy.components == ("pytorch", "toolkit")


def test_the_size_that_an_index_omits_is_asked_of_its_server(install: Install, server: Loopback) -> None:
    file = "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    far = "http://far.invalid"  # which only the site's proxy reaches
    server.pages = {f"/{file}": b"12345", f"{far}/{file}": b"12345"}
    for site, base in ((None, server.url), (Site(proxies=Proxies(http=server.url)), far)):
        install(FakeTools(files=FILES.replace(wheel(file), wheel(file, base=base).replace("size = 7, ", ""))))
        assert {p.name: p.size for p in resolve_lock(ROOTS, site=site).packages if p.size != 7} == {"torch": 5}


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
    entry = {"packages": ["torch==2.13.0"], "needs": {"retrying": ["six>=1.7", "scipy"], "apex": []}}
    lock_line({"components": PACKAGES, "options": {"more": entry}, "base": "debian-12"})
    assert tomllib.loads(tools.inputs["uv.toml"])["dependency-metadata"] == [
        {"name": "retrying", "requires-dist": ["six>=1.7", "scipy"]},
        {"name": "apex", "requires-dist": []},
    ]


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


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (FILES.replace('version = "1.17.1"', 'version = "1.17.2"'), "scipy"),
        (FILES + pylock({"six": ("1.17.0", [], "six-1.17.0.tar.gz")}).partition("uv")[2].lstrip('"'), "six"),
        (FILES.replace('name = "retrying"', 'name = "retried"'), "retried, retrying"),
    ],
    ids=["another version", "one more", "another name"],
)
def test_a_package_that_changed_between_the_questions_is_seen(install: Install, files: str, names: str) -> None:
    install(FakeTools(files=files))
    with pytest.raises(SourceError, match=rf"changed while it was read: {names}$"):
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
    stated = files.replace("hashes = {}", f'hashes = {{ sha256 = "{SHA}" }}')
    install(FakeTools(graph="torch==2.13.0+cpu  # via -r pytorch.in\n", files=files))
    (torch,) = resolve_lock({"pytorch": ["torch==2.13.0+cpu"]}).packages
    assert (torch.file, torch.size, torch.version) == (file.name, 5, "2.13.0+cpu")
    assert torch.sha256 == hashlib.sha256(b"wheel").hexdigest()
    # What the index states is what the download is held to.
    install(FakeTools(graph="torch==2.13.0+cpu  # via -r pytorch.in\n", files=stated))
    assert [p.sha256 for p in resolve_lock({"pytorch": ["torch==2.13.0+cpu"]}).packages] == [SHA]
    file.unlink()  # uv read it a moment ago
    assert [p.size for p in resolve_lock({"pytorch": ["torch==2.13.0+cpu"]}).packages] == [None]


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
