"""A plan's id: what is said about an image changes nothing, everything that enters it does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import ClassVar

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.bccache import Bucket

from tests.support.dockerfiles import CATALOG, LINES, rendered
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core import paths
from trainwright.core.paths import cache_dir, data_root
from trainwright.plan import identity, render
from trainwright.plan.dockerfile import instructions
from trainwright.plan.identity import same_templates, tool_files
from trainwright.plan.plan import PLAN_LABEL, Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

ROOT = Path(__file__).resolve().parents[3]
WHEELS, ARCHIVES = "images/pytorch/cu124", "images/pytorch/1.10.2-cu113"
SKELETON, MACROS, METIS = "templates/Dockerfile.j2", "templates/macros.j2", "templates/components/metis"

pytestmark = pytest.mark.usefixtures("own_places")


class Compiled(jinja2.BytecodeCache):
    """Compiled templates by their name and text: each test has copies in a folder of its own, and compiling is slow."""

    kept: ClassVar[dict[str, bytes]] = {}

    def get_bucket(self, environment, name, filename, source) -> Bucket:  # noqa: ARG002
        checksum = self.get_source_checksum(source)
        bucket = Bucket(environment, f"{name} {checksum}", checksum)
        self.load_bytecode(bucket)
        return bucket

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self.kept:
            bucket.bytecode_from_string(self.kept[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.kept[bucket.key] = bucket.bytecode_to_string()


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what is shipped, of few lines, that stands for it."""
    root, real = tmp_path / "shipped", render._environment
    shutil.copytree(data_root() / "templates", root / "templates")
    for folder in (WHEELS, ARCHIVES, "images/tools"):
        shutil.copytree(data_root() / folder, root / folder)
    shutil.copy(data_root() / "images" / "tools.yaml", root / "images")
    monkeypatch.setattr(paths, "data_root", lambda: root)
    monkeypatch.setattr(render, "_environment", lambda search: _compiled(real(search)))
    return root


def _compiled(environment: jinja2.Environment) -> jinja2.Environment:
    environment.bytecode_cache = Compiled()
    return environment


def plans() -> dict[str, Plan]:
    catalog = load_catalog()
    return {
        WHEELS: resolve(make_request(framework="pytorch", cuda="cu124", with_="cuda-compiler"), catalog),
        ARCHIVES: resolve(make_request(framework="pytorch", cuda="cu113"), catalog),
    }


def ids() -> dict[str, str]:
    return {line: plan.id for line, plan in plans().items()}


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    changed = re.sub(old, new, text, count=1, flags=re.MULTILINE)
    assert changed != text, f"{file} has no {old}"
    file.write_text(changed)


# ---- what changes nothing --------------------------------------------------------------------------------------------

SAID = {
    "a comment of jinja": (SKELETON, r"\A", "{# for whoever reads on #}\n"),
    "a comment of the Dockerfile": (SKELETON, "^# The loader gets to", "# Now the loader gets to"),
    "a comment of a component": (f"{METIS}/Dockerfile.j2", "^# Both archives", "# The archives"),
    "a comment within an instruction": (f"{METIS}/Dockerfile.j2", r"^    && LDFLAGS", "# and then\n    && LDFLAGS"),
    "an empty line": (f"{METIS}/Dockerfile.j2", "^RUN unpack", "\n\nRUN unpack"),
    "a renamed variable": (
        MACROS,
        r"macro os_install\(packages\)(.*\n)(.*)if packages(.*\n)(.*\n)(.*)\+? ?packages \| join",
        r"macro os_install(names)\1\2if names\3\4\5names | join",
    ),
    "evidence": (f"{WHEELS}/line.yaml", "says: ", "says: as it is said, "),
    "a comment of an image line": (f"{WHEELS}/line.yaml", r"\A", "# the best line of all\n"),
    "what a component is": (f"{METIS}/component.yaml", "summary: ", "summary: a library for "),
    "what the probe looks for": (f"{METIS}/component.yaml", "/opt/metis/lib/libmetis.so", "/opt/metis/lib/libmetis*"),
    "how the probe looks": (f"{METIS}/component.yaml", r"paste -sd\.", "tail -n 3 | paste -sd."),
    "an image test": (f"{METIS}/test_metis.py", r"\A", "# a test\n"),
    "a test beside it": (f"{METIS}/test_more.py", "", "def test_more(host):\n    assert host\n"),
    "a script that no instruction names": (f"{METIS}/more.sh", "", "#!/bin/sh\n"),
    "a notice": ("templates/components/ssh/component.yaml", r"\Z", "notices: [{says: mind the gap}]\n"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_changes_no_id(shipped: Path, name: str) -> None:
    before = ids()
    file, old, new = SAID[name]
    if old:
        replace(shipped / file, old, new)
    else:
        (shipped / file).write_text(new)
    assert ids() == before
    shutil.rmtree(cache_dir() / "plan-ids")
    assert ids() == before, "as it is found anew"


def test_neither_does_the_size_budget_of_a_line(shipped: Path) -> None:
    def own() -> Plan:
        return resolve(make_request(framework="pytorch", cuda="cu124"), load_catalog())

    before = own()
    replace(shipped / WHEELS / "line.yaml", "^budget: .*$", "budget: 7.25 GB")
    after = own()
    assert before.budget is not None and after.budget is not None
    assert (before.budget.bytes, after.budget.bytes) == (5_000_000_000, 7_250_000_000)
    assert (after.id, after.labels, after.tags) == (before.id, before.labels, before.tags)
    replace(shipped / WHEELS / "line.yaml", "^budget: .*\n", "")
    shutil.rmtree(cache_dir() / "plan-ids")
    without = own()
    assert (without.budget, without.id) == (None, before.id), "as it is found anew"


def test_neither_do_the_rendered_file_of_a_line_and_the_code_of_the_renderer(
    shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ids()
    (shipped / WHEELS / "Dockerfile").unlink()
    monkeypatch.setattr("trainwright.plan.identity._sources_of_render", lambda *_: [__file__])
    assert ids() == before


# ---- what changes it -------------------------------------------------------------------------------------------------

TORCH, TOOL = r'"name": "torch".*"sha256": "[0-9a-f]', r'"sha256": "[0-9a-f]'
ENTERS = {
    "an instruction of every image": (SKELETON, "^ENV LANG=C.UTF-8", "ENV LANG=C", {WHEELS, ARCHIVES}),
    "an option of a step": (MACROS, "--require-hashes", "--verify-hashes", {WHEELS, ARCHIVES}),
    "an instruction of a component": (f"{METIS}/Dockerfile.j2", "shared=1", "shared=0", {WHEELS, ARCHIVES}),
    "a word within quotes": (f"{METIS}/Dockerfile.j2", '-j"', '-j "', {WHEELS, ARCHIVES}),
    "a package of the distribution": (f"{METIS}/component.yaml", "xz-utils, dpkg-dev", "xz-utils", {WHEELS}),
    "a file of Debian's archive": (f"{METIS}/component.yaml", "c50a88b92", "d50a88b92", {WHEELS}),
    "an archive": (f"{METIS}/component.yaml", "76faebe03", "86faebe03", {ARCHIVES}),
    "a wheel": (f"{WHEELS}/lock.json", TORCH, "", {WHEELS}),
    "a version": (f"{WHEELS}/line.yaml", "^version: 2.6.0", "version: 2.6.1", {WHEELS}),
    "a base image": (f"{ARCHIVES}/line.yaml", "11.3.1-cudnn8-runtime", "11.3.0-cudnn8-runtime", {ARCHIVES}),
    "a script": ("templates/components/cuda-compiler/assemble.sh", r"\Z", "# the end\n", {WHEELS}),
    "a program of every image": ("templates/components/ssh/job-hosts", r"\Z", "# the end\n", {WHEELS, ARCHIVES}),
    "a program of build steps": ("templates/tools/build/fetch", r"\Z", "# the end\n", {WHEELS, ARCHIVES}),
    "a tool": ("images/tools/3.11.lock.json", TOOL, "", {WHEELS}),
}


@pytest.mark.parametrize("name", ENTERS)
def test_what_enters_an_image_changes_its_id(shipped: Path, name: str) -> None:
    before = ids()
    file, old, new, changed = ENTERS[name]
    if file.endswith(".json"):  # a digest that differs in one digit
        text = (shipped / file).read_text()
        at = re.search(old, text).end() - 1  # type: ignore[union-attr]
        (shipped / file).write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])
    else:
        replace(shipped / file, old, new)
        if name == "a version":
            (shipped / WHEELS).rename(shipped / "images/pytorch/2.6.1-cu124")
    now = ids()
    assert {line for line in before if before[line] != now[line]} == changed
    # Without a cache it is the same.
    shutil.rmtree(cache_dir() / "plan-ids")
    assert ids() == now


def test_a_file_whose_name_has_other_signs_changes_the_id(shipped: Path) -> None:
    program = shipped / METIS / "more+more@1.sh"
    program.write_text("#!/bin/sh\n")
    replace(shipped / f"{METIS}/Dockerfile.j2", "^RUN unpack", "COPY components/metis/more+more@1.sh ./\nRUN unpack")
    before = ids()
    program.write_text("#!/bin/sh\ntrue\n")
    assert before[WHEELS] != ids()[WHEELS]


def test_the_mode_of_a_program_changes_the_id(shipped: Path) -> None:
    before = ids()
    program = shipped / "templates/components/ssh/job-hosts"
    program.chmod(program.stat().st_mode ^ 0o111)
    assert all(before[line] != now for line, now in ids().items())


def test_a_catalog_in_hand_sees_a_template_that_changes(shipped: Path) -> None:
    catalog, request = load_catalog(), make_request(framework="pytorch", cuda="cu124")
    with same_templates():
        before = resolve(request, catalog)
        assert resolve(request, catalog).id == before.id
    replace(shipped / SKELETON, "^ENV LANG=C.UTF-8", "ENV LANG=C")
    after = resolve(request, catalog)
    assert after.id != before.id
    assert re.search(r"^ENV LANG=C\b(?!\.)", render_dockerfile(after, catalog), re.MULTILINE)


def test_many_plans_at_once_look_at_the_templates_once(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, catalog = [], load_catalog()
    two = [make_request(framework="pytorch", cuda="cu124", with_=more) for more in (None, "cuda-compiler")]
    real = identity._sources_of_render
    monkeypatch.setattr(identity, "_sources_of_render", lambda *given: looks.append(given) or real(*given))
    apart = [resolve(each, catalog).id for each in two]
    assert len(looks) == 4, "before and after each is rendered"
    looks.clear()
    assert [resolve(each, catalog).id for each in two] == apart
    assert len(looks) == 2
    with same_templates():
        assert [resolve(each, catalog).id for each in two] == apart
        assert len(looks) == 3
        replace(shipped / SKELETON, "^ENV LANG=C.UTF-8", "ENV LANG=C")
        assert resolve(two[0], catalog).id == apart[0]
    assert resolve(two[0], catalog).id != apart[0]


def test_another_tool_for_build_steps_changes_the_id(shipped: Path) -> None:
    before = ids()
    (shipped / "templates/tools/build/more").write_text("")
    assert "tools/build/more" in tool_files()
    assert all(before[line] != now for line, now in ids().items())


def test_what_a_user_bakes_in_changes_the_id(tmp_path: Path) -> None:
    def of(**words: str) -> str:
        return resolve(make_request(framework="pytorch", cuda="cu124", **words), CATALOG).id  # type: ignore[arg-type]

    code, wanted = tmp_path / "code", tmp_path / "wanted.txt"
    code.mkdir()
    for name in ("a.py", "b.py"):
        (code / name).write_text("")
    wanted.write_text("tqdm\n")
    seen = [of(), of(code=str(code), entry_point="a.py"), of(code=str(code), entry_point="b.py")]
    (code / "a.py").write_text("1\n")
    seen += [of(code=str(code), entry_point="a.py"), of(requirements=str(wanted))]
    wanted.write_text("tqdm\nrich\n")
    seen.append(of(requirements=str(wanted)))
    assert len(set(seen)) == len(seen)
    moved = tmp_path / "moved"
    code.rename(moved)
    assert of(code=str(moved), entry_point="a.py") == seen[3], "where the code lies is no part of the image"


# ---- ids in general --------------------------------------------------------------------------------------------------


def test_no_two_lines_share_an_id_and_no_dockerfile_names_one() -> None:
    seen: dict[str, str] = {}
    for name, entry in LINES.items():
        text, variants = rendered(name)
        line, catalog = entry.line, Catalog([entry], CATALOG.components, CATALOG.rules)
        texts = {"": text, **{each.option: each.text for each in variants if not each.base}}
        for option, dockerfile in texts.items():
            words = {"framework": line.framework, "cuda": line.cuda, "version": line.version}
            plan = resolve(make_request(**words, with_=option or None), catalog)  # type: ignore[arg-type]
            assert plan.id not in seen, f"{entry.file} {option} and {seen[plan.id]}"
            seen[plan.id] = f"{entry.file} {option}"
            assert plan.labels[PLAN_LABEL] == plan.id
            assert plan.id[:12] not in dockerfile
            assert PLAN_LABEL not in dockerfile
    assert len(seen) > len(LINES)


# ---- instructions ----------------------------------------------------------------------------------------------------

PLAIN = render_dockerfile(resolve(make_request(framework="pytorch", cuda="cu124"), CATALOG), CATALOG)


@given(st.lists(st.integers(0, len(PLAIN.splitlines())), max_size=20), st.sampled_from(["# a comment", "", "  # x \\"]))
def test_comments_and_empty_lines_are_no_instructions(places: list[int], line: str) -> None:
    lines = PLAIN.splitlines()
    for place in sorted(places, reverse=True):
        lines.insert(place, line)
    assert instructions("\n".join(lines)) == instructions(PLAIN)


@given(st.data())
def test_every_letter_of_an_instruction_counts(data: st.DataObject) -> None:
    lines = PLAIN.splitlines()
    counts = [n for n, text in enumerate(lines) if text.strip() and not text.strip().startswith("#")]
    number = data.draw(st.sampled_from(counts))
    text = lines[number].removesuffix("\\").rstrip()
    at = data.draw(st.integers(len(text) - len(text.lstrip()), len(text) - 1))
    lines[number] = lines[number][:at] + ("X" if text[at] != "X" else "Y") + lines[number][at + 1 :]
    assert instructions("\n".join(lines)) != instructions(PLAIN)


def test_an_instruction_is_one_line_with_its_words_as_they_are() -> None:
    text = "# head\nFROM a AS b\n\nRUN x 'a  b' \\\n# why\n    && y\\\n\n   z # no comment\nENV A=\"#\"\n"
    assert instructions(text) == ["FROM a AS b", "RUN x 'a  b'     && y   z # no comment", 'ENV A="#"']
