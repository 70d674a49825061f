"""The main job on the CPU line, through the program itself: build, record, rebuild, smoke."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU_LINE
from tests.support import image_tests
from trainwright.core.paths import images_dir

# What smoke does not run on the CPU line, by reason.
NOT_ON_CPU = {
    "not by AWS's installer": {
        "efa::test_installer_s_libfabric_comes_first",
        "efa::test_installer_left_nothing_that_the_plan_does_not_name",
        "efa::test_installer_itself_is_not_in_the_image",
    },
    "fi_info of Debian 12 hides providers without a device; AWS's was not tried without one": {
        "efa::test_efa_is_among_the_providers"
    },
    "not compiled for GPU memory here": {"efa::test_gpu_memory_is_known"},
    "the distribution's Open MPI has its own": {"openmpi::test_parameters_are_in_the_file_once"},
    "Open MPI is the distribution's or the EFA installer's": {"openmpi::test_no_manual_pages"},
    "the framework has no triton 3": {
        "pytorch::test_triton_compiles",
        "pytorch::test_the_profiler_of_triton_finds_cupti",
    },
    "not run: no GPU": {"pytorch::test_gpu_computes"},
}


@pytest.fixture(scope="module")
def built(proven):
    return proven["build"]


def test_the_document(built):
    keys = ["schema", "plan", "image_id", "tags", "size_bytes", "seconds", "cached", "components", "probe", "record"]
    assert set(keys) <= set(built)
    assert built["image_id"].startswith("sha256:")
    assert built["size_bytes"] < 1_150_000_000


def test_the_ledger_holds_the_whole_image(built):
    rows = {row["name"]: row for row in built["components"]}
    assert {"base", "os", "pytorch", "metis", "sagemaker-toolkit"} <= set(rows)
    total = sum(row["bytes"] for row in rows.values())
    assert total == pytest.approx(built["size_bytes"], rel=0.01)
    assert rows["pytorch"]["bytes"] > 500_000_000


def test_the_tags_name_the_image(built, proven, docker):
    assert len(built["tags"]) == 3
    assert built["tags"][2] == proven["kept"]
    assert docker("image", "inspect", "--format", "{{.Id}}", proven["kept"]) == built["image_id"]
    assert proven["tagged"] == dict.fromkeys(built["tags"], built["plan"])


def test_the_labels_say_what_the_plan_says(built, docker):
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", built["image_id"]))
    assert labels["io.trainwright.plan"] == built["plan"]
    plan = json.loads((Path(built["record"]).parent / "plan.json").read_text())
    for component in plan["components"]:
        said = labels[f"io.trainwright.component.{component['name']}"]
        assert said == f"{component['version']} ({component['provider']})"
    oci = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", oci["created"])  # RFC 3339
    assert "BSD-3-Clause" in oci["licenses"] and "pytorch 2.13.0" in oci["description"]


def test_the_record_is_listed(built, program):
    rows = program("list", "--built", "--json").json["images"]
    assert built["image_id"] in [row["image_id"] for row in rows]
    record = json.loads(Path(built["record"]).read_text())
    assert record["plan"]["id"] == built["plan"]
    assert (Path(built["record"]).parent / "Dockerfile").read_text().startswith("# pytorch")


def test_a_second_build_does_nothing(built, program):
    again = program("build", *CPU_LINE, "--json")
    assert again.code == 0
    assert again.json["cached"] is True
    assert again.json["image_id"] == built["image_id"]
    assert json.loads(again.out), "standard output is JSON alone"


def test_an_image_over_its_budget_moves_no_tag(built, program, docker, tmp_path):
    """The same image, from the builder's cache, of a line that wants it smaller."""
    line = tmp_path / "images" / "pytorch" / "cpu"
    shutil.copytree(images_dir() / "pytorch" / "cpu", line)
    text = (line / "line.yaml").read_text()
    (line / "line.yaml").write_text(re.sub(r"^budget: .*$", "budget: 300 MB", text, count=1, flags=re.MULTILINE))
    tag = "trainwright-test/budget:1"
    try:
        done = program("build", *CPU_LINE, "--catalog", str(tmp_path), "--tag", tag, "--json")
        assert done.code == 6, done.err[-4000:]
        failed = done.json
        assert (failed["image_id"], failed["size_bytes"]) == (built["image_id"], built["size_bytes"])
        assert failed["budget"] == {"bytes": 300_000_000, "file": "images/pytorch/cpu/line.yaml"}
        # What grew since another build comes first; nothing else is as big.
        shown = [line.split()[0] for line in failed["message"].splitlines()[1:]]
        assert (len(shown), "pytorch" in shown[:2]) == (3, True), failed["message"]
        assert sum(row["bytes"] for row in failed["components"]) == built["size_bytes"]
        assert docker("image", "ls", "--quiet", tag) == ""
    finally:
        docker("rmi", tag, check=False)


def test_a_metis_change_rebuilds_little(built, program, docker, tmp_path):
    """What changes in a component builds its own stage and the layers behind it, no more."""
    from tests.support import builds
    from trainwright.build.options import BuildOptions
    from trainwright.catalog.catalog import load_catalog
    from trainwright.core.paths import templates_dir
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
    plan = plan.replace(tags=("trainwright-test/metis:1",))
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


def test_smoke_is_all_green(built, proven):
    report = proven["smoke"]
    assert report["image_id"] == built["image_id"]
    assert report["failed"] == 0
    assert list(Path(built["record"]).parent.glob("*.xml"))
    record = json.loads(Path(built["record"]).read_text())
    planned = [component["name"] for component in record["plan"]["components"]]
    assert {"pytorch", "metis", "openmpi", "ssh", "sagemaker-toolkit", "efa"} <= set(planned)
    assert image_tests.reported(report["rows"]) == image_tests.expected(planned)
    assert image_tests.skipped(report["rows"]) == NOT_ON_CPU
    assert record["smoke"]["failed"] == 0


@pytest.mark.parametrize("planned", [True, False])
def test_the_smoke_test_of_a_cluster_runs_in_the_image(proven, planned):
    """The command of the Job of ``pipeline --format kubernetes``: against the plan, and against another one."""
    from tests.doubles.kubectl import expanded
    from trainwright.catalog.catalog import load_catalog
    from trainwright.core.runner import run
    from trainwright.engine.engine import find_client
    from trainwright.pipeline.images import choose
    from trainwright.pipeline.kubernetes import smoke_job
    from trainwright.site.site import Site

    (image,) = choose("pytorch:cpu", load_catalog(), Site())
    (container,) = smoke_job(image, gpus=0)["spec"]["template"]["spec"]["containers"]
    *program, request = (expanded(word, {}) for word in container["command"])
    if not planned:
        asked = json.loads(request)
        next(row for row in asked["expect"] if row["component"] == "metis")["value"] = "9.9.9"
        request = json.dumps(asked)
    argv = [find_client().path, "run", "--rm", "--network", "none", "--add-host", "algo-1:127.0.0.1", proven["kept"]]
    done = run([*argv, *program, request], timeout=300)
    assert done.ok == planned, done.tail()
    assert ("as planned" if planned else "metis: ") in done.stdout


def test_a_passed_smoke_run_is_not_run_again(built, proven, program):
    report = Path(built["record"]).parent / "smoke.json"
    assert json.loads(report.read_text())["rows"] == proven["smoke"]["rows"]
    again = program("build", *CPU_LINE, "--smoke", "--json")
    assert again.code == 0, again.err[-4000:]
    counts = ("passed", "failed", "skipped")
    assert [again.json["smoke"][count] for count in counts] == [proven["smoke"][count] for count in counts]
    assert (Path(again.json["record"]).parent / "smoke.json").read_text() == report.read_text()


def test_packages_and_code_of_the_user(built, program, docker, tmp_path):
    """They come last, on top of what is there; `train` then runs the baked script."""
    (tmp_path / "requirements.txt").write_text("tqdm>=4.60\n")
    source = tmp_path / "src"
    (source / "sub").mkdir(parents=True)
    (source / "train.py").write_text("import os, tqdm\nopen(os.environ['SM_MODEL_DIR'] + '/done', 'w').write('yes')\n")
    (source / "sub" / "helper.py").write_text("")
    requirements = str(tmp_path / "requirements.txt")
    user = ["--with-requirements", requirements, "--code", str(source), "--entry-point", "train.py"]
    done = program("build", *CPU_LINE, *user, "--json")
    try:
        assert done.code == 0, done.err[-4000:]
        document = done.json
        assert document["tags"][0] == f"{built['tags'][0]}-user"
        for select in ("contract/", "user/"):
            # By its id: a test beside this one may build another image of the line with parts of a user.
            smoked = program("smoke", "--image", document["image_id"], "--select", select, "--json")
            assert smoked.code == 0, smoked.err[-4000:]
            assert smoked.json["passed"]
        assert "tqdm" in document["probe"]["distributions"]
        rows = {row["name"]: row for row in document["components"]}
        assert rows["pytorch"]["cached"]
        words = ["--network", "none", "--entrypoint", "find", document["image_id"], "/opt/ml/code", "-type", "f"]
        listing = docker("run", "--rm", *words)
        assert sorted(listing.split()) == ["/opt/ml/code/sub/helper.py", "/opt/ml/code/train.py"]
        assert program("build", *CPU_LINE, *user, "--json").json["cached"]
    finally:
        if done.code == 0:
            docker("rmi", "--force", done.json["image_id"], check=False)


def test_a_package_that_would_change_the_locked_set_is_refused(program, tmp_path):
    (tmp_path / "requirements.txt").write_text("numpy<1.20\n")
    done = program("build", *CPU_LINE, "--with-requirements", str(tmp_path / "requirements.txt"), "--json")
    assert done.code == 5
    assert done.json["component"] == "user"
    assert "numpy<1.20" in done.json["message"], "the message gives uv's reason"


def test_smoke_of_an_image_that_was_not_built_here(program):
    done = program("smoke", "--image", "trainwright/pytorch:nothing", "--json")
    assert done.code == 2
    assert "list --built" in done.json["remedy"]
