"""The buildspec of this project, executed: its phases, the real front door, a real image, an emulated AWS.

What stands in for CodeBuild is ``tests/doubles/codebuild.py``. The registry cache is left out here (no CACHE);
``test_builders.py`` hands shared stages from one builder to another by one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import docker as sdk
import pytest
import yaml

from tests.doubles.aws import EmulatedAws
from tests.doubles.codebuild import Build, Job, job_runner, run_batch, run_build
from tests.doubles.codebuild_front import codebuild_service
from tests.doubles.codebuild_service import BUCKET, really
from tests.doubles.gitlab import run_pipeline
from tests.support.documents import validated
from tests.support.plugin_release import with_standin
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline.gitlab import pipeline_file
from trainwright.pipeline.images import choose
from trainwright.push.repository import load_policy
from trainwright.push.tag_log import own_tag
from trainwright.site.site import Site

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "trainwright/pytorch"
PLANTED = "def test_planted(host):\n    assert host.file('/not/there').exists\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the working tree with an environment of its own, as CodeBuild has a checkout."""
    folder = tmp_path_factory.mktemp("codebuild") / "src"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    _lend_environment(folder)
    return folder


def _lend_environment(folder: Path) -> None:
    """What the front door makes, with the packages of the environment that these tests run in."""
    ours, theirs = Path(sys.prefix), folder / ".venv"
    (theirs / "bin").mkdir(parents=True)
    shutil.copy2(ours / "pyvenv.cfg", theirs)
    shutil.copy2(folder / "requirements.txt", theirs)
    (theirs / "checkout").write_text(f"{folder}\n")
    for name in ("lib", "lib64"):
        if (ours / name).exists():
            (theirs / name).symlink_to(ours / name)
    for path in (ours / "bin").iterdir():
        (theirs / "bin" / path.name).symlink_to(path.readlink() if path.is_symlink() else path)


@pytest.fixture(scope="module")
def image(docker) -> Iterator[str]:
    """What the image is called until it is pushed."""
    name = f"trainwright-test/pipeline:{os.getpid()}"
    yield name
    docker("rmi", name, check=False)


def environment(source: Path, aws: EmulatedAws, image: str, **more: str) -> dict[str, str]:
    """Variables of the project: this AWS, and the code and the state of the copy."""
    own = {"IMAGE": image, "PYTHONPATH": str(source), "TRAINWRIGHT_STATE": str(source / ".trainwright")}
    return {**aws.environment, **own, **more}


@pytest.fixture(scope="module")
def pushed(source: Path, image: str, cloud: EmulatedAws) -> Iterator[Build]:
    """A whole build of the CPU image, as the schedule starts it. What it sends, the registry lends to the next."""
    cloud.client("ecr").create_repository(repositoryName=REPOSITORY)
    with cloud.mounting():
        yield run_build(source, environment=environment(source, cloud, image, TAG="nightly"))


def failures(build: Build, report: str) -> list[str]:
    return [
        case.get("name", "")
        for path in build.reports[report]
        for case in ET.parse(path).iter("testcase")
        if case.find("failure") is not None
    ]


def tags(aws: EmulatedAws, repository: str) -> dict[str, str]:
    """The tags of images: proofs and the logs of tags have tags of their own."""
    rows = aws.client("ecr").describe_images(repositoryName=repository)["imageDetails"]
    return {tag: row["imageDigest"] for row in rows for tag in row.get("imageTags", ()) if not own_tag(tag)}


def test_the_image_is_built_proven_and_pushed(pushed, aws):
    assert pushed.succeeded, pushed.log[-4000:]
    assert set(pushed.phases.values()) == {"succeeded"}
    uri, digest = pushed.exported["IMAGE_URI"], pushed.exported["IMAGE_DIGEST"]
    assert uri == f"{aws.host()}/{REPOSITORY}@{digest}"
    assert set(tags(aws, REPOSITORY).values()) == {digest}
    # By this tag the lifecycle policy knows what it may remove.
    nightly = [tag for tag in tags(aws, REPOSITORY) if fnmatchcase(tag, load_policy().nightly_tags)]
    assert len(nightly) == 1
    assert len(tags(aws, REPOSITORY)) > 2
    for report in ("smoke", "rehearsal"):
        assert pushed.reports[report]
        assert failures(pushed, report) == []
    engine = sdk.from_env(timeout=600)
    try:
        pulled = engine.images.pull(uri, auth_config=aws.login())
        assert pulled.labels["io.trainwright.cuda"] == "cpu"
        engine.images.remove(uri)
    finally:
        engine.close()


@pytest.mark.parametrize("wrong", ["no repository", "no permission", "the upload is refused"])
def test_a_push_that_is_refused_fails_the_build(pushed, source, image, aws, repository, wrong):
    """The image of the build before, which is proven; what is looked at is the phase that pushes it elsewhere."""
    assert pushed.succeeded
    if wrong == "no repository":
        aws.client("ecr").delete_repository(repositoryName=repository)
    elif wrong == "no permission":
        aws.fail_api("GetAuthorizationToken", "AccessDeniedException", times=9)
    else:
        aws.fail_registry("POST", "/blobs/uploads/", 403, times=99)
    project = environment(source, aws, image, REPOSITORY=repository)
    refused = run_build(source, environment=project, phases=("post_build",))
    assert not refused.succeeded
    assert refused.phases == {"post_build": "failed"}
    assert refused.exported == {}
    failure = json.loads((source / "reports" / "push.json").read_text())
    assert failure["exit_code"] == 7, failure
    if wrong != "no repository":
        assert tags(aws, repository) == {}


def shorten(source: Path) -> dict[Path, str]:
    """Leave a word of each image test, which `pushed` runs whole: what comes after them is looked at here.

    Args:
        source: a checkout, whose tests are written over.

    Returns:
        The text of each file as it was.
    """
    kept = {path: path.read_text() for path in (source / "templates").rglob("test_*.py")}
    for path in kept:
        path.write_text("def test_engine(host):\n    assert host.run('true').rc == 0\n")
    return kept


@pytest.fixture
def shortened(source: Path) -> Iterator[None]:
    kept = shorten(source)
    yield
    for path, text in kept.items():
        path.write_text(text)


@pytest.fixture
def planted(source: Path, shortened: None) -> None:
    """METIS has an image test that fails."""
    (source / "templates/components/metis/test_metis.py").write_text(PLANTED)


@pytest.mark.usefixtures("planted")
def test_nothing_is_pushed_after_a_failed_smoke_test(source, image, aws, repository):
    shutil.rmtree(source / "reports", ignore_errors=True)
    failed = run_build(source, environment=environment(source, aws, image, REPOSITORY=repository))
    assert not failed.succeeded
    assert failed.phases == {
        "install": "succeeded",
        "pre_build": "succeeded",
        "build": "failed",
        "post_build": "succeeded",
    }, failed.log[-4000:]
    assert failures(failed, "smoke") == ["test_planted"]
    assert failed.reports["rehearsal"] == ()
    assert failed.exported == {}
    assert tags(aws, repository) == {}
    assert aws.requests == []


def test_the_shared_stages_of_a_batch_are_those_of_its_images(source, aws, image, program, tmp_path):
    """The job before the others runs its file; what it would build is in the cache of an image's build, every step."""
    builds: dict[str, Build] = {}
    really = job_runner(source, builds)
    shared: list[Job] = []
    images: list[Job] = []

    def run(job: Job) -> bool:
        if "STAGES" not in job.variables:
            images.append(job)
            return True
        shared.append(job)
        return really(job)

    ended = run_batch(source, run, environment=environment(source, aws, image))
    assert ended["batch"] == "succeeded", [build.log[-2000:] for build in builds.values()]
    group = shared[0].variables
    words = ("FRAMEWORK", "CUDA", "VERSION")
    first, other, *_ = [
        [word for name in words for word in (f"--{name.lower()}", job.variables[name])]
        for job in images
        if job.variables.get("SHARED") == group["SHARED"]
    ]
    more = ("--stages", group["STAGES"], *with_standin(tmp_path))
    program("build", *first, *more, "--progress", "none")
    done = program("build", *other, *more, "--json")
    assert done.code == 0, done.err[-2000:]
    # Of another plan's steps none is built anew but the one that holds them together.
    assert done.json["steps"] - done.json["cached_steps"] <= 1


@pytest.mark.engine
def test_what_a_machine_without_an_engine_sends_is_built_proven_and_pushed(
    image: str, aws: EmulatedAws, repository: str, tmp_path: Path
) -> None:
    """A folder goes up, its buildspec is run by this engine, and what comes home is what lies in the registry.

    The machine that sends has no engine: ``DOCKER_HOST`` leads nowhere, and there is no docker on its ``PATH``.
    """
    mine = tmp_path / "mine"
    (mine / "src").mkdir(parents=True)
    (mine / "src" / "train.py").write_text("print('trained')\n")
    (mine / "trainwright.toml").write_text(
        '[image]\nframework = "pytorch"\ncuda = "cpu"\ncode = "src"\nentry_point = "train.py"\n'
    )
    builds: list[Build] = []
    with codebuild_service(account=aws.account, region=aws.regions[0]) as service:
        service.projects["trainwright-upload"] = {"UPLOAD_BUCKET": BUCKET, "REPOSITORY": repository}
        service.runner = really(environment=lambda folder: _machine(folder, aws, image), prepare=_lend, builds=builds)
        state = {"PYTHONPATH": str(ROOT), "TRAINWRIGHT_STATE": str(tmp_path / "home")}
        nobody = {"PATH": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/nobody", "TRAINWRIGHT_DOCKER": ""}
        done = subprocess.run(
            [sys.executable, str(ROOT / "tasks.py"), "build", "--on", "codebuild", "--json", "--progress", "none"],
            cwd=mine,
            env={**os.environ, **service.environment, **state, **nobody},
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
    log = builds[0].log[-4000:] if builds else ""
    assert done.returncode == 0, f"{done.stderr[-4000:]}\n{log}"
    document = validated(done.stdout)
    assert document["schema"] == "trainwright/remote-build/1"
    assert set(builds[0].phases.values()) == {"succeeded"}
    # In the registry there is this image alone, under the tags that came back.
    there = tags(aws, repository)
    assert set(there.values()) == {document["digest"]}
    assert set(document["tags"]) == set(there)
    assert document["uri"] == f"{aws.host()}/{repository}@{document['digest']}"
    # The record that came back is of this image: its id is what the manifest names as its configuration.
    record = json.loads((Path(document["record"]) / "images" / document["image_id"][7:23] / "record.json").read_text())
    assert (record["image_id"], record["plan"]["id"]) == (document["image_id"], document["plan"])
    assert (record["smoke"]["failed"], record["smoke"]["passed"] > 0) == (0, True)
    (manifest,) = aws.client("ecr").batch_get_image(
        repositoryName=repository, imageIds=[{"imageDigest": document["digest"]}]
    )["images"]
    config = json.loads(manifest["imageManifest"])["config"]["digest"]
    assert document["image_id"] in (config, document["digest"])
    # The folder is in the image, and the smoke run's report is beside the record.
    engine = sdk.from_env(timeout=600)
    try:
        pulled = engine.images.pull(document["uri"], auth_config=aws.login())
        assert pulled.labels["io.trainwright.plan"] == document["plan"]
        said = engine.containers.run(document["uri"], ["cat", "/opt/ml/code/train.py"], entrypoint="", remove=True)
        assert said == b"print('trained')\n"
        engine.images.remove(document["uri"], force=True)
    finally:
        engine.close()
    assert ET.parse(Path(document["record"]) / "smoke.xml").getroot().tag in ("testsuite", "testsuites")
    assert "succeeded" in (Path(document["record"]) / "build.log").read_text()


def _lend(folder: Path) -> None:
    """The environment of what was sent, which its front door would make of packages from an index; its image tests
    are short."""
    sent, program = folder / "trainwright.tar.gz", folder / "program"
    with tarfile.open(sent) as packed:
        packed.extractall(folder, filter="data")
    shorten(program)
    with tarfile.open(sent, "w:gz", compresslevel=1) as packed:
        for name in ("program", "project"):
            packed.add(folder / name, name)
    shutil.copy2(ROOT / "requirements.txt", program)
    _lend_environment(program)


def _machine(folder: Path, aws: EmulatedAws, image: str) -> dict[str, str]:
    """Variables of the machine that builds: this AWS, and the program that was sent; the state is the project's own."""
    state = folder / "project" / ".trainwright"
    own = {"IMAGE": image, "PYTHONPATH": str(folder / "program"), "TRAINWRIGHT_STATE": str(state), "CACHE": ""}
    return {**aws.environment, **own}


@pytest.mark.usefixtures("pushed", "shortened")
def test_the_job_of_gitlab_builds_proves_and_pushes(source, aws, repository, docker):
    """The same image as CodeBuild's, whose steps are in the cache."""
    images = choose("pytorch:cpu", load_catalog(), Site())
    document = yaml.safe_load(pipeline_file(images, [], command="./invoke pipeline", catalog=""))
    name = f"trainwright-test/pipeline-gitlab:{os.getpid()}"
    shutil.rmtree(source / "reports", ignore_errors=True)
    try:
        job, last = run_pipeline(
            source,
            document,
            started_by="web",
            project={"REPOSITORY": repository, "IMAGE": name, "AWS_REGION": aws.environment["AWS_DEFAULT_REGION"]},
            environment={**os.environ, **environment(source, aws, name)},
            timeout=1800,
        ).values()
    finally:
        left = docker("image", "ls", "--quiet", name, check=False)
        docker("rmi", name, check=False)
    assert job.outcome == "success", job.log[-4000:]
    # The last job found the image and moved the tags of its line, which the first had left.
    assert last.outcome == "success", last.log[-4000:]
    pushed_tags = json.loads((source / "reports" / "push.json").read_text())["images"][0]["tags"]
    assert [tag["kind"] for tag in pushed_tags] == ["immutable"]
    assert {"pytorch-2.13.0-cpu", "pytorch-2.13-cpu"} < set(tags(aws, repository))
    (digest,) = set(tags(aws, repository).values())
    assert f"pushed {aws.host()}/{repository}@{digest}" in job.log
    assert job.junit == ("reports/rehearse.xml", "reports/smoke.xml")
    assert {Path(path).name for path in job.artifacts} >= {"record.json", "sbom.cdx.json", "push.json", "report.md"}
    assert not left, "the image does not stay on the runner"
