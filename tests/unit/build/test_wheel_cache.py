"""The wheel cache: what a wheel's key follows from, what a build takes from the cache, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwright.build.context import write_context
from trainwright.build.wheel_cache import WheelCache, without_compiling
from trainwright.build.wheel_keys import MadeFrom, wanted_wheels
from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.wheel_lock import PLATFORM
from trainwright.core.errors import RegistryRefused, SourceError
from trainwright.core.paths import cache_dir
from trainwright.engine.engine import Client, Engine
from trainwright.plan.dockerfile import stages
from trainwright.plan.plan_lock import LockedPython, LockedSystemPackage, PlanLock
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.push.wheel_places import FolderPlace
from trainwright.site.site import Site
from trainwright.sources.gather import gather
from trainwright.sources.inputs import Inputs

CATALOG = load_catalog()
WHEEL = b"compiled"
pytestmark = pytest.mark.usefixtures("own_places")
Files = Mapping[str, str | Path]


def package(name: str, mark: str = "a") -> LockedPython:
    return LockedPython(name=name, version="1.0", file=f"{name}-1.0.tar.gz", sha256=mark * 64, component="user")


def inputs_of(tmp_path: Path, *packages: LockedPython, site: Site | None = None, **words: Any) -> Inputs:
    """What a build of the CPU line takes in whose requirements are locked to these packages."""
    required = tmp_path / "requirements.txt"
    required.write_text("".join(f"{each.name}\n" for each in packages))
    known = {"cuda": "cpu"} | ({"requirements": str(required)} if packages else {}) | words
    plan = resolve(make_request(framework="pytorch", **known), CATALOG)
    # Not a root file system, which takes half a minute to make.
    plan = plan.replace(base=plan.base.replace(image="debian:12"))
    lock = PlanLock(plan=plan.id, request="-", python_version="3.11", platform=PLATFORM, user=packages or None)
    return gather(plan, CATALOG, site or Site(), lock)


def files_of(inputs: Inputs, folder: Path) -> Files:
    """The files of a build context."""
    found: list[Files] = []

    def amend(files: Files) -> dict[str, str | Path]:
        found.append(files)
        return dict(files)

    write_context(inputs, folder, say=lambda _: None, amend=amend)
    return found[0]


def made_from(inputs: Inputs, folder: Path) -> dict[str, MadeFrom]:
    return {each.name: each.made_from for each in wanted_wheels(inputs, files_of(inputs, folder))}


def cache(inputs: Inputs, place: Path | None = None, *, fresh: bool = False) -> tuple[WheelCache, list[str]]:
    said: list[str] = []
    engine = Engine(Client("/bin/false", "builtin", "20.10", "plain"), "20.10")
    made = WheelCache(inputs, engine, fresh=fresh, say=said.append)
    made.place = FolderPlace(place) if place is not None else None
    return made, said


def put(folder: Path, made: MadeFrom, *, content: bytes = WHEEL) -> Path:
    """An entry as the cache writes it; its wheel may be another one than its record says."""
    entry = folder / made.key
    entry.mkdir(parents=True)
    file = f"{made.source.removesuffix('.tar.gz')}-cp311-cp311-linux_x86_64.whl"
    record = {"schema": "trainwright/compiled-wheel/1", "made_from": made.as_json(), "file": file, "size": len(WHEEL)}
    (entry / "wheel.json").write_text(json.dumps(record | {"sha256": hashlib.sha256(WHEEL).hexdigest()}))
    (entry / file).write_bytes(content)
    return entry


@pytest.fixture
def own(own_places: None) -> Path:
    """The folder of this user's cache."""
    return cache_dir() / "compiled-wheels"


# ---- what is kept --------------------------------------------------------------------------------------------------


def test_a_line_as_it_is_shipped_neither_keeps_nor_takes_anything(tmp_path):
    inputs = inputs_of(tmp_path)
    files = files_of(inputs, tmp_path / "context")
    assert any(c.sdists for c in inputs.plan.components), "its toolkit is built from source"
    made, _ = cache(inputs)
    assert made.amend(files) == dict(files)
    assert not list(wanted_wheels(inputs, files))


def test_what_is_compiled_against_pytorch_is_kept_without_a_package_of_the_users(tmp_path):
    inputs = inputs_of(tmp_path, cuda="cu130", with_="flash-attn")
    wanted = list(wanted_wheels(inputs, files_of(inputs, tmp_path / "context")))
    assert [(each.component, each.stage) for each in wanted] == [("flash-attn", "flash-attn")]


def test_with_a_package_of_the_users_all_of_its_stage_is_kept(tmp_path):
    wanted = made_from(inputs_of(tmp_path, package("own")), tmp_path / "context")
    assert {"own", "sagemaker-training"} <= {*wanted}


# ---- the key -------------------------------------------------------------------------------------------------------


def locked_system(name: str, version: str, *stages: str) -> LockedSystemPackage:
    return LockedSystemPackage(
        name=name, version=version, architecture="amd64", sha256="0" * 64, size=1, stages=stages or ("toolchain",)
    )


def change_lock(**fields: Any) -> Callable[[Inputs], Inputs]:
    return lambda inputs: replace(inputs, lock=inputs.lock.replace(**fields))


def change_plan(**fields: Any) -> Callable[[Inputs], Inputs]:
    return lambda inputs: replace(inputs, plan=inputs.plan.replace(**fields))


def change_tools(inputs: Inputs) -> Inputs:
    """Another version of a package that builds wheels."""
    python = [
        replace(each, source=each.source.replace(sha256="9" * 64))
        if each.owner == "tools" and str(each.source.package).startswith("setuptools==")
        else each
        for each in inputs.python
    ]
    assert python != [*inputs.python]
    return replace(inputs, python=tuple(python))


@pytest.mark.parametrize(
    "change",
    [
        change_tools,
        change_lock(system=(locked_system("gcc-12", "12.2.0-14"),)),
        change_plan(platform="linux/arm64"),
        lambda inputs: change_plan(base=inputs.plan.base.replace(digest=f"sha256:{'1' * 64}"))(inputs),
    ],
    ids=["build requirements", "compiler", "platform", "base"],
)
def test_the_key_follows_from_what_a_wheel_is_made_from(tmp_path, change):
    inputs = inputs_of(tmp_path, package("own"))
    before = made_from(inputs, tmp_path / "one")["own"].key
    assert made_from(change(inputs), tmp_path / "two")["own"].key != before
    assert made_from(inputs, tmp_path / "three")["own"].key == before


@pytest.mark.parametrize(
    ("words", "same"),
    [({"with_": "compiler"}, False), ({"with_": "deepspeed"}, True), ({"apt": ["libjpeg62-turbo-dev"]}, True)],
    ids=["a compiler in the image", "another component's source package", "packages that are installed afterwards"],
)
def test_the_key_follows_from_the_stages_below(tmp_path, words, same):
    before = made_from(inputs_of(tmp_path, package("own")), tmp_path / "one")["own"]
    after = made_from(inputs_of(tmp_path, package("own"), **words), tmp_path / "two")["own"]
    assert (before.key == after.key) == same


def test_the_key_does_not_follow_from_other_packages_the_site_or_what_is_installed_afterwards(tmp_path):
    alone = made_from(inputs_of(tmp_path, package("own")), tmp_path / "one")
    site = Site(index_url="https://mirror.example/simple", find_links=(tmp_path,))
    more = made_from(inputs_of(tmp_path, package("own"), package("other", "b"), site=site), tmp_path / "two")
    assert more["own"] == alone["own"]
    assert more["other"].key != more["own"].key
    assert made_from(inputs_of(tmp_path, package("own", "c")), tmp_path / "three")["own"].key != alone["own"].key


def test_the_key_of_what_is_compiled_against_pytorch_follows_from_its_wheel(tmp_path):
    inputs = inputs_of(tmp_path, cuda="cu130", with_="flash-attn")
    before = made_from(inputs, tmp_path / "one")["flash-attn"]
    torch = next(each for each in inputs.python if str(each.source.package).startswith("torch=="))
    other = replace(torch, source=torch.source.replace(sha256="9" * 64))
    changed = replace(inputs, python=tuple(other if each is torch else each for each in inputs.python))
    assert made_from(changed, tmp_path / "two")["flash-attn"].files != before.files
    # Where the site's index is, is not part of it.
    files = {**files_of(inputs, tmp_path / "one")}
    files["requirements/pytorch.txt"] = f"--extra-index-url https://x.example/\n{files['requirements/pytorch.txt']}"
    assert [each.made_from for each in wanted_wheels(inputs, files)] == [before]


# ---- taking --------------------------------------------------------------------------------------------------------


def test_a_stage_whose_wheels_are_all_kept_copies_them(tmp_path, own):
    inputs = inputs_of(tmp_path, package("own"))
    files = files_of(inputs, tmp_path / "context")
    for each in made_from(inputs, tmp_path / "context").values():
        put(own, each)
    made, said = cache(inputs)
    amended = made.amend(files)
    stage = next(each for each in stages(str(amended["Dockerfile"])) if each.name == "wheels")
    names = sorted(c.name for c in inputs.plan.components if c.sdists)
    assert stage.parent == "scratch"
    assert [*stage.instructions] == [f"COPY compiled/{name}/ /wheels/{name}/" for name in names]
    taken = amended["compiled/user/own-1.0-cp311-cp311-linux_x86_64.whl"]
    assert isinstance(taken, Path) and taken.read_bytes() == WHEEL
    assert "own-1.0" in said[0]
    # All else of the Dockerfile is as it was.
    others = [each for each in stages(str(files["Dockerfile"])) if each.name != "wheels"]
    assert [each for each in stages(str(amended["Dockerfile"])) if each.name != "wheels"] == others


def test_what_has_a_stage_of_its_own_needs_no_compiler_once_it_is_kept(tmp_path, own):
    inputs = inputs_of(tmp_path, cuda="cu130", with_="flash-attn")
    files = files_of(inputs, tmp_path / "context")
    put(own, made_from(inputs, tmp_path / "context")["flash-attn"])
    amended = stages(str(cache(inputs)[0].amend(files)["Dockerfile"]))
    (stage,) = (each for each in amended if each.name == "flash-attn")
    assert stage.parent == "scratch" and not stage.needs
    assert [*stage.instructions] == ["COPY compiled/flash-attn/ /wheels/flash-attn/"]
    others = [each for each in stages(str(files["Dockerfile"])) if each.name != "flash-attn"]
    assert [each for each in amended if each.name != "flash-attn"] == others


def test_of_some_wheels_each_takes_the_place_of_its_source(tmp_path, own):
    inputs = inputs_of(tmp_path, package("own"), package("other", "b"))
    files = files_of(inputs, tmp_path / "context")
    made_of = made_from(inputs, tmp_path / "context")
    for name in {*made_of} - {"other"}:
        put(own, made_of[name])
    amended = cache(inputs)[0].amend(files)
    lines = str(amended["requirements/user.source.txt"]).splitlines()
    digest = hashlib.sha256(WHEEL).hexdigest()
    assert sorted(lines) == [f"other===1.0 --hash=sha256:{'b' * 64}", f"own===1.0 --hash=sha256:{digest}"]
    # Of the other components all wheels are there: what their layers are made from stays as it was.
    (before,), (after,) = (
        [each for each in stages(str(made["Dockerfile"])) if each.name == "wheels"] for made in (files, amended)
    )
    assert after.parent == before.parent
    users = [text for text in before.instructions if text.endswith("-w /wheels/user")]
    others = sorted(c.name for c in inputs.plan.components if c.sdists and c.name != "user")
    assert sorted(after.instructions) == sorted([*(f"COPY compiled/{n}/ /wheels/{n}/" for n in others), *users])
    added = {*amended} - {*files}
    assert [name for name in added if name.startswith("wheels/")] == [
        "wheels/user/own-1.0-cp311-cp311-linux_x86_64.whl"
    ]


def test_a_build_that_makes_every_step_again_takes_nothing(tmp_path, own):
    inputs = inputs_of(tmp_path, package("own"))
    files = files_of(inputs, tmp_path / "context")
    for each in made_from(inputs, tmp_path / "context").values():
        put(own, each)
    made, _ = cache(inputs, fresh=True)
    assert made.amend(files) == dict(files)


def test_what_others_have_kept_comes_into_this_users_cache(tmp_path, own):
    inputs = inputs_of(tmp_path, package("own"))
    files, place = files_of(inputs, tmp_path / "context"), tmp_path / "place"
    key = put(place, made_from(inputs, tmp_path / "context")["own"]).name
    cache(inputs, place)[0].amend(files)
    shutil.rmtree(place)
    assert (own / key / "own-1.0-cp311-cp311-linux_x86_64.whl").read_bytes() == WHEEL
    amended = cache(inputs)[0].amend(files)
    assert "compiled/user/own-1.0-cp311-cp311-linux_x86_64.whl" in amended


# ---- refusing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["tampered", "another's", "no record"])
def test_a_wrong_wheel_of_the_site_ends_the_build(tmp_path, own, wrong):
    inputs = inputs_of(tmp_path, package("own"))
    files, place = files_of(inputs, tmp_path / "context"), tmp_path / "place"
    made = made_from(inputs, tmp_path / "context")["own"]
    entry = put(place, made, content=b"changed!" if wrong == "tampered" else WHEEL)
    if wrong == "another's":
        put(place, made.replace(sha256="d" * 64)).replace(place / "moved")
        shutil.rmtree(entry)
        (place / "moved").rename(entry)
    if wrong == "no record":
        (entry / "wheel.json").unlink()
    with pytest.raises(SourceError, match=r"wrong wheel for own-1\.0\.tar\.gz") as failure:
        cache(inputs, place)[0].amend(files)
    assert made.key in failure.value.remedy
    assert not (own / made.key).exists()


def test_a_damaged_wheel_of_this_users_cache_is_compiled_again(tmp_path, own):
    inputs = inputs_of(tmp_path, package("own"))
    entry = put(own, made_from(inputs, tmp_path / "context")["own"], content=b"damaged")
    made, said = cache(inputs)
    amended = made.amend(files_of(inputs, tmp_path / "context"))
    assert not entry.exists()
    assert "has the sha256" in said[0]
    assert not [name for name in amended if name.endswith("linux_x86_64.whl")]


def test_a_place_that_does_not_answer_fails_no_build(tmp_path, own):
    inputs = inputs_of(tmp_path, package("own"))
    files = files_of(inputs, tmp_path / "context")
    made, said = cache(inputs)

    class Gone:
        name = "s3://gone"

        def fetch(self, *_: object) -> bool:
            raise RegistryRefused("no answer")

        store = fetch

    made.place = Gone()
    assert made.amend(files) == dict(files)
    assert "s3://gone is not used: no answer" in said[0]


# ---- keeping -------------------------------------------------------------------------------------------------------

CLIENT = """\
#!/bin/sh
for word; do
    case $word in type=local,dest=*) out=${word#type=local,dest=} ;; esac
    if [ "$before" = --file ]; then grep -A9 'AS compiled$' "$word" > "$SAID"; fi
    before=$word
done
mkdir -p "$out/wheels/user"
printf compiled > "$out/wheels/user/Own-1.0-cp311-cp311-linux_x86_64.whl"
for other in a nobody_s z; do printf other > "$out/wheels/user/$other-1.0-py3-none-any.whl"; done
"""


def test_what_was_compiled_is_kept_here_and_at_the_site(tmp_path, own, monkeypatch):
    inputs = inputs_of(tmp_path, package("own"))
    key = made_from(inputs, tmp_path / "context")["own"].key
    client, said = tmp_path / "docker", tmp_path / "said"
    client.write_text(CLIENT)
    client.chmod(0o755)
    monkeypatch.setenv("SAID", str(said))
    made, _ = cache(inputs, tmp_path / "place")
    made.engine = Engine(Client(str(client), "builtin", "20.10", "plain"), "20.10")
    made.amend(files_of(inputs, tmp_path / "context"))
    made.keep(tmp_path / "context", {})
    assert said.read_text().splitlines() == ["FROM scratch AS compiled", "COPY --from=wheels /wheels/ /wheels/"]
    for folder in (own, tmp_path / "place"):
        assert [entry.name for entry in folder.iterdir()] == [key]
        assert (folder / key / "Own-1.0-cp311-cp311-linux_x86_64.whl").read_bytes() == WHEEL
    amended = cache(inputs)[0].amend(files_of(inputs, tmp_path / "context"))
    assert "compiled/user/Own-1.0-cp311-cp311-linux_x86_64.whl" in amended


def test_only_the_stage_that_compiles_is_replaced():
    text = (
        "FROM os AS tools\nRUN a\n\n# Packages.\nFROM tools AS wheels\nRUN b \\\n    c\n\n# More.\nFROM os AS final\n"
    )
    made = without_compiling(text, "wheels", ["user"], whole=True)
    copies = "FROM scratch AS wheels\nCOPY compiled/user/ /wheels/user/\n"
    assert made == f"FROM os AS tools\nRUN a\n\n# Packages.\n{copies}\n# More.\nFROM os AS final\n"
