"""The main job on the CPU line, through the program itself: build, record, rebuild, smoke."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

REQUEST = ("--framework", "pytorch", "--cuda", "cpu")


# Tests beside this module build the same line, which moves the tags of its plan.
OWN = f"trainwright-test/build-cpu:{os.getpid()}"


@pytest.fixture(scope="module")
def built(program, docker):
    done = program("build", *REQUEST, "--tag", OWN, "--json", "--progress", "plain")
    assert done.code == 0, done.err[-4000:]
    yield done.json
    docker("rmi", OWN, check=False)


def test_the_document(built):
    keys = ["schema", "plan", "image_id", "tags", "size_bytes", "seconds", "cached", "components", "probe", "record"]
    assert set(keys) <= set(built)
    assert built["image_id"].startswith("sha256:")
    assert built["size_bytes"] < 1_500_000_000


def test_the_ledger_holds_the_whole_image(built):
    rows = {row["name"]: row for row in built["components"]}
    assert {"base", "os", "pytorch", "metis", "sagemaker-toolkit"} <= set(rows)
    total = sum(row["bytes"] for row in rows.values())
    assert total == pytest.approx(built["size_bytes"], rel=0.01)
    assert rows["pytorch"]["bytes"] > 500_000_000


def test_the_tags_name_the_image(built, docker):
    assert len(built["tags"]) == 3
    assert built["tags"][2] == OWN
    assert docker("image", "inspect", "--format", "{{.Id}}", OWN) == built["image_id"]
    for tag in built["tags"][:2]:
        assert (
            docker("image", "inspect", "--format", '{{index .Config.Labels "io.trainwright.plan"}}', tag)
            == built["plan"]
        )


def test_the_labels_say_what_the_plan_says(built, docker):
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", built["image_id"]))
    assert labels["io.trainwright.plan"] == built["plan"]
    plan = json.loads((Path(built["record"]).parent / "plan.json").read_text())
    for component in plan["components"]:
        said = labels[f"io.trainwright.component.{component['name']}"]
        assert said == f"{component['version']} ({component['provider']})"


def test_the_record_is_listed(built, program):
    rows = program("list", "--built", "--json").json["images"]
    assert built["image_id"] in [row["image_id"] for row in rows]
    record = json.loads(Path(built["record"]).read_text())
    assert record["plan"]["id"] == built["plan"]
    assert (Path(built["record"]).parent / "Dockerfile").read_text().startswith("# pytorch")


def test_a_second_build_does_nothing(built, program):
    again = program("build", *REQUEST, "--json")
    assert again.code == 0
    assert again.json["cached"] is True
    assert again.json["image_id"] == built["image_id"]
    assert json.loads(again.out), "standard output is JSON alone"


def test_a_metis_change_rebuilds_little(built, program, docker, tmp_path):
    """What changes in a component builds its own stage and the layers behind it, no more."""
    import shutil

    from tests.support import builds
    from trainwright.build.options import BuildOptions
    from trainwright.catalog.catalog import load_catalog
    from trainwright.core.paths import images_dir, templates_dir
    from trainwright.engine.engine import connect
    from trainwright.plan.request import make_request
    from trainwright.plan.resolve import resolve
    from trainwright.site.site import load_site
    from trainwright.sources.gather import gather

    shutil.copytree(templates_dir(), tmp_path / "templates")
    path = tmp_path / "templates/components/metis/Dockerfile.j2"
    path.write_text(path.read_text().replace("make config shared=1", "make config shared=1 assert=1"))
    catalog = load_catalog(images_dir(), tmp_path / "templates")
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
    plan = plan.model_copy(update={"tags": ("trainwright-test/metis:1",)})
    try:
        options = BuildOptions(progress="none")
        record = builds.build(gather(plan, catalog, load_site()), connect(), options=options, say=lambda _: None)
        before = docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", built["image_id"])
        after = docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", record.image_id)
        shared = [a == b for a, b in zip(json.loads(before), json.loads(after), strict=True)]
        assert not all(shared)
        new = sum(row.bytes for row in record.ledger if row.name in ("metis",))
        assert shared.index(False) >= len(shared) - 4
        assert new < 2_000_000
    finally:
        docker("rmi", "trainwright-test/metis:1", check=False)


def test_smoke_is_all_green(built, program):
    done = program("smoke", "--image", OWN, "--json")
    assert done.code == 0, done.err[-4000:]
    report = done.json
    assert report["failed"] == 0
    assert report["passed"] >= 25
    components = {row["component"] for row in report["rows"]}
    assert {"contract", "pytorch", "metis", "openmpi", "ssh", "sagemaker-toolkit", "efa"} <= components
    assert list(Path(built["record"]).parent.glob("*.xml"))
    record = json.loads(Path(built["record"]).read_text())
    assert record["smoke"]["failed"] == 0


def test_packages_and_code_of_the_user(built, program, docker, tmp_path):
    """They come last, on top of what is there; `train` then runs the baked script."""
    (tmp_path / "requirements.txt").write_text("tqdm>=4.60\n")
    source = tmp_path / "src"
    (source / "sub").mkdir(parents=True)
    (source / "train.py").write_text("import os, tqdm\nopen(os.environ['SM_MODEL_DIR'] + '/done', 'w').write('yes')\n")
    (source / "sub" / "helper.py").write_text("")
    words = ["--with-requirements", str(tmp_path / "requirements.txt"), "--code", str(source)]
    done = program("build", *REQUEST, *words, "--entry-point", "train.py", "--smoke", "--json")
    tag = f"{built['tags'][0]}-user"
    try:
        assert done.code == 0, done.err[-4000:]
        document = done.json
        assert document["tags"][0] == tag
        assert document["smoke"]["failed"] == 0
        assert document["smoke"]["passed"] > 25
        assert "tqdm" in document["probe"]["distributions"]
        rows = {row["name"]: row for row in document["components"]}
        assert rows["pytorch"]["cached"]
        listing = docker("run", "--rm", "--network", "none", "--entrypoint", "find", tag, "/opt/ml/code", "-type", "f")
        assert sorted(listing.split()) == ["/opt/ml/code/sub/helper.py", "/opt/ml/code/train.py"]
        again = program("build", *REQUEST, *words, "--entry-point", "train.py", "--smoke", "--json")
        assert again.json["cached"]
        assert again.json["smoke"] == document["smoke"], "a passed smoke run is not run again"
    finally:
        docker("rmi", tag, *(done.json["tags"] if done.code == 0 else ()), check=False)


def test_a_package_that_would_change_the_locked_set_is_refused(program, tmp_path):
    (tmp_path / "requirements.txt").write_text("numpy<1.20\n")
    done = program("build", *REQUEST, "--with-requirements", str(tmp_path / "requirements.txt"), "--json")
    assert done.code == 5
    assert done.json["component"] == "user"
    assert "numpy" in "".join(done.json["last_lines"])


def test_smoke_of_an_image_that_was_not_built_here(program):
    done = program("smoke", "--image", "trainwright/pytorch:nothing", "--json")
    assert done.code == 2
    assert "list --built" in done.json["remedy"]
