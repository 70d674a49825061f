"""The files in which projects keep what they need: the same requirements as uv itself makes of them, or a refusal.

``locks/`` has a project of ours, its locks by uv 0.13.8 (hosts have other names), and what ``uv export`` makes of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from tests.support.examples import some
from trainwright.catalog.catalog import load_catalog
from trainwright.core.errors import RequestError
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.user.required import Required, read_required

LOCKS = Path(__file__).parent / "locks"
WHAT = "--with-requirements x"


def read(path: Path) -> Required:
    return read_required(path, WHAT)


def written(folder: Path, name: str, text: str) -> Required:
    (folder / name).write_text(text)
    return read(folder / name)


def rows(lines: list[str]) -> dict[str, tuple[str, bool, frozenset[str]]]:
    """Version, whether it is for Linux and Python 3.11, and checksums, by name."""
    found = {}
    for line in lines:
        text, *hashes = line.split(" --hash=")
        asked = Requirement(text)
        linux = {"sys_platform": "linux", "python_full_version": "3.11.9", "python_version": "3.11"}
        applies = asked.marker is None or asked.marker.evaluate(linux)
        found[asked.name] = (str(asked.specifier), applies, frozenset(each.strip() for each in hashes))
    return found


@pytest.mark.parametrize(
    ("file", "exported"),
    [("uv.lock", "exported.txt"), ("uv.lock[all]", "exported-all.txt"), ("pylock.toml", "exported.txt")],
)
def test_a_lock_is_what_uv_itself_exports_of_it(file, exported):
    found, by_uv = read(LOCKS / file), read(LOCKS / exported)
    assert rows(found.lines) == rows(by_uv.lines)
    assert len(found.lines) == len(by_uv.lines) > 10
    assert (found.resolved, by_uv.resolved) == (True, False)
    assert found.python.replace(" ", "") in (">=3.10,<3.14", "<3.14,>=3.10")


def test_a_project_and_its_extras():
    plain = [
        "tqdm>=4.60",
        "httpx[http2]>=0.27",
        "tomli>=2; python_version < '3.11'",
        "colorama; sys_platform == 'win32'",
    ]
    assert read(LOCKS / "pyproject.toml").lines == plain
    # "all" names the project's own extra "rich" in turn.
    assert sorted(read(LOCKS / "pyproject.toml[all]").lines) == sorted([*plain, "attrs", "rich>=13"])


PROJECT = '[project]\nname = "x"\ndependencies = ["numpy", "Own_Lib"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tool.poetry]\nname = "x"\n', "no [project]"),
        ('[project]\nname = "x"\ndynamic = ["dependencies"]\n', "dynamic"),
        (PROJECT + '[tool.uv.sources]\nown-lib = { path = "../own" }\n', "takes own-lib from elsewhere"),
        (PROJECT + '[tool.uv]\noverride-dependencies = ["numpy<2"]\n', "override-dependencies changes"),
        ('[project]\nname = "x"\ndependencies = ["a @ git+https://example.com/a"]\n', "needs git"),
        ('[project]\nname = "x"\ndependencies = ["a @ file:///tmp/a.whl"]\n', "path on this machine"),
        ('[project]\nname = "x"\ndependencies = ["-r base.txt"]\n', "-r"),
        ('[project]\nname = "x"\ndependencies = "numpy"\n', "is not a list"),
        ('[project]\nname = "x"\nrequires-python = "new"\n', "not a range"),
        ("[project\n", "TOML"),
    ],
)
def test_projects_that_only_their_own_tool_understands(tmp_path, text, said):
    with pytest.raises(RequestError) as caught:
        written(tmp_path, "pyproject.toml", text)
    assert said in caught.value.message


def test_an_extra_that_is_not_there_is_answered_with_the_nearest():
    for file in ("pyproject.toml[ritch]", "uv.lock[ritch]"):
        with pytest.raises(RequestError, match="Did you mean rich"):
            read(LOCKS / file)


def test_sources_of_what_is_not_taken_do_not_matter(tmp_path):
    text = PROJECT + '[tool.uv.sources]\nother = { path = "../other" }\n'
    assert written(tmp_path, "pyproject.toml", text).lines == ["numpy", "Own_Lib"]


HEAD = 'version = 1\nrequires-python = ">=3.11"\n'
ROOT = '[[package]]\nname = "x"\nversion = "1"\nsource = { virtual = "." }\ndependencies = [{ name = "a" }]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD.replace("1", "2") + ROOT, "version 1"),
        (HEAD, "not the lock of one project"),
        (HEAD + ROOT, "lacks a"),
        *(
            (f'{HEAD}{ROOT}[[package]]\nname = "a"\nversion = "1"\nsource = {{ {source} }}\n', said)
            for source, said in (
                ('git = "https://example.com/a?rev=1#0a"', "a comes from git"),
                ('directory = "../a"', "a comes from directory"),
                ('registry = "../wheels"', "a comes from registry"),
                ('url = "https://example.com/a.whl"', "a comes from url"),
            )
        ),
        ("package = 3\nversion = 1\n", "version 1"),
    ],
)
def test_uv_locks_that_are_refused(tmp_path, text, said):
    with pytest.raises(RequestError) as caught:
        written(tmp_path, "uv.lock", text)
    assert said in caught.value.message


WHEELS = f'wheels = [{{ url = "https://x.example/a-1-py3-none-any.whl", hashes = {{ sha256 = "{"a" * 64}" }} }}]\n'


def package(name: str, *needs: str) -> str:
    """A package of a uv.lock, whose dependencies are each a name or ``name if marker``."""
    tables = []
    for need in needs:
        other, _, marker = need.partition(" if ")
        tables.append(f'{{ name = "{other}"' + (f', marker = "{marker}"' if marker else "") + " }")
    source = 'virtual = "."' if name == "x" else 'registry = "https://x.example/simple"'
    return (
        f'[[package]]\nname = "{name}"\nversion = "1"\nsource = {{ {source} }}\ndependencies = [{", ".join(tables)}]\n'
    )


@pytest.mark.parametrize(
    ("needs", "on"),
    [
        (["a", "b"], {"linux", "darwin", "win32"}),
        (["a if sys_platform == 'win32'", "b"], {"linux", "darwin", "win32"}),
        (["b", "a if sys_platform == 'win32'"], {"linux", "darwin", "win32"}),
        (["a if sys_platform == 'win32'", "b if sys_platform == 'linux'"], {"win32", "linux"}),
        (["b if sys_platform == 'linux'", "a if sys_platform == 'win32'"], {"win32", "linux"}),
        (["a if sys_platform != 'win32'"], {"linux", "darwin"}),
        (["d if sys_platform != 'win32'"], {"linux"}),
    ],
)
def test_a_package_is_for_all_the_ways_to_it(tmp_path, needs, on):
    rows = [package("x", *needs), package("a", "c"), package("b", "c"), package("c", "a")]
    text = HEAD + "".join([*rows, package("d", "c if sys_platform != 'darwin'")])
    lines = {Requirement(line).name: Requirement(line).marker for line in written(tmp_path, "uv.lock", text).lines}
    marker = lines["c"]
    found = {each for each in ("linux", "darwin", "win32") if marker is None or marker.evaluate({"sys_platform": each})}
    assert found == on


PYLOCK = 'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PYLOCK + 'vcs = { type = "git", url = "https://example.com/a", commit-id = "0a" }\n', "version control"),
        (PYLOCK + 'directory = { path = "." }\n', "a folder"),
        (f"{PYLOCK}version = '1'\nmarker = \"'x' in extras\"\n{WHEELS}", "extra or a group"),
        (PYLOCK + WHEELS, "no version"),
        (PYLOCK, "PEP 751"),
        ('created-by = "x"\npackages = []\n', "PEP 751"),
    ],
)
def test_pylocks_that_are_refused(tmp_path, text, said):
    with pytest.raises(RequestError) as caught:
        written(tmp_path, "pylock.train.toml", text)
    assert said in caught.value.message


def test_an_archive_of_a_pylock(tmp_path):
    digest = "a" * 64
    text = PYLOCK + f'archive = {{ url = "https://example.com/a.zip", hashes = {{ sha256 = "{digest}" }} }}\n'
    assert written(tmp_path, "pylock.toml", text).lines == [f"a @ https://example.com/a.zip#sha256={digest}"]


CONDA = "name: x\nchannels: [conda-forge]\ndependencies:\n"


@pytest.mark.parametrize(
    ("python", "asked"),
    [
        ("python=3.11", "==3.11.*"),
        ("python==3.11.4", "==3.11.4.*"),
        ("conda-forge::python=3.11.*", "==3.11.*"),
        ("python=3.11.4=h_0_cpython", "==3.11.4.*"),
        ("python >=3.10,<3.13", "<3.13,>=3.10"),
        ("python", ""),
    ],
)
def test_the_pip_list_of_an_environment(tmp_path, python, asked):
    text = f"{CONDA}  - {python}\n  - pip\n  - pip:\n    - tqdm>=4.60\n    - timm[x] # a comment\n"
    found = written(tmp_path, "environment.yml", text)
    assert (found.lines, found.python) == (["tqdm>=4.60", "timm[x]"], asked)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONDA + "  - numpy=1.26\n  - pytorch::pytorch\n  - pip: [tqdm]\n", "numpy, pytorch"),
        (CONDA + "  - python=3.11\n", "no pip: list"),
        (CONDA + "  - pip: [-r requirements.txt]\n", "-r reads another file"),
        (CONDA + "  - pip: [tqdm]\nvariables: {A: b}\n", "sets variables"),
        (CONDA + "  - python=latest\n  - pip: [tqdm]\n", "not a range"),
        ("- tqdm\n", "no list of dependencies"),
        ("a: [\n", "YAML"),
    ],
)
def test_environments_that_are_refused(tmp_path, text, said):
    with pytest.raises(RequestError) as caught:
        written(tmp_path, "environment.yaml", text)
    assert said in caught.value.message and (said == "YAML" or caught.value.remedy)


def test_other_files_of_projects_are_named(tmp_path):
    for name in ("poetry.lock", "Cargo.toml"):
        with pytest.raises(RequestError, match="not a file that is read here"):
            written(tmp_path, name, "a = 1\n")


# ---- what the image has to say to it ---------------------------------------------------------------------------------


def plan_of(path: Path | str, cuda: str = "cpu"):
    return resolve(make_request(framework="pytorch", cuda=cuda, requirements=str(path)), load_catalog())


def test_a_file_for_another_python_is_refused(tmp_path):
    path = tmp_path / "environment.yml"
    path.write_text(CONDA + "  - python=3.13\n  - pip: [tqdm]\n")
    with pytest.raises(RequestError, match=r"is for Python ==3\.13\.\*, the image has 3\.11"):
        plan_of(path)
    assert plan_of(path, "cu130").python == "3.13"


def test_a_lock_with_other_versions_than_the_image_is_refused_with_all_of_them(tmp_path):
    text = (LOCKS / "uv.lock").read_text()
    path = tmp_path / "uv.lock"
    path.write_text(text)
    assert plan_of(path).component("user"), "with the image's own versions it is taken"
    path.write_text(text.replace('version = "4.16.0"\n', 'version = "4.12.2"\n'))
    with pytest.raises(RequestError) as caught:
        plan_of(path)
    assert "locks other versions than the image line" in caught.value.message
    assert "typing-extensions 4.12.2, the image has 4.16.0" in caught.value.message
    assert "tqdm" not in caught.value.message and "colorama" not in caught.value.message


def test_the_id_follows_what_is_taken_and_no_more(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(PROJECT)
    first = plan_of(path).id
    path.write_text(PROJECT + 'version = "2"\n[project.optional-dependencies]\nmore = ["attrs"]\n')
    assert plan_of(path).id == first
    assert plan_of(f"{path}[more]").id != first


# ---- anything at all -------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["numpy", "a @ file:x", "python=3.11", "=", "."]),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["dependencies", "pip", "package", "name", "version", "source", "virtual", "marker", "extra"]
            ),
            each,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(data=VALUES)
@settings(max_examples=some(200), deadline=None)
def test_any_yaml_is_an_environment_or_one_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "environment.yml"
    path.write_text(yaml.safe_dump(data))
    try:
        found = read(path)
    except RequestError as refused:
        assert refused.message.startswith(WHAT)
    else:
        assert all(Requirement(line) for line in found.lines)


PIECES = st.sampled_from(
    [
        *("version = 1", "[[package]]", '[project]\nname = "x"', 'name = "a"', 'version = "1"', "wheels = [3]"),
        *("dependencies = [3]", 'dependencies = ["numpy"]', 'dependencies = [{ name = "a" }]', 'source = "x"'),
        *('source = { virtual = "." }', 'source = { registry = "https://x.example" }', 'requires-python = ">=3"'),
        *(
            '[package.optional-dependencies]\na = "x"',
            "optional-dependencies = 3",
            'lock-version = "1.0"',
            "[[packages]]",
        ),
        *('created-by = "x"', 'marker = "x"', "sdist = 3", "[tool.uv]\nsources = 3", "[project.optional-dependencies]"),
    ]
)


@given(
    name=st.sampled_from(["pyproject.toml", "uv.lock", "pylock.toml", "uv.lock[a]"]), text=st.lists(PIECES, max_size=9)
)
@settings(max_examples=some(800), deadline=None)
def test_any_toml_is_requirements_or_one_error(tmp_path_factory, name, text):
    folder = tmp_path_factory.getbasetemp()
    (folder / name.partition("[")[0]).write_text("\n".join(text) + "\n")
    try:
        found = read(folder / name)
    except RequestError as refused:
        assert refused.message.startswith(WHAT)
    else:
        assert all(Requirement(line.partition(" --hash")[0]) for line in found.lines)
