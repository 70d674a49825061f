"""Bases that are not made on the spot: NVIDIA's images, AWS's containers, and which of several lines answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.catalogs import write_line
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import Selection
from trainwright.core.errors import Conflict, RequestError
from trainwright.core.paths import templates_dir
from trainwright.plan.extend import registry_reference
from trainwright.plan.plan import Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.sagemaker.dlc import PublishedImage, load_dlc

LINE = {
    "framework": "pytorch",
    "version": "2.8.0",
    "cuda": "12.9",
    "python": "3.12",
    "status": "supported",
    "base": {
        "kind": "nvidia",
        "os": "ubuntu-22.04",
        "image": "nvidia/cuda:12.9.1-base-ubuntu22.04",
        "build_image": "nvidia/cuda:12.9.1-devel-ubuntu22.04",
    },
    "architectures": ["8.0", "9.0"],
    "components": {
        "python": {"provider": "debian", "version": "3.11"},
        "metis": {"provider": "source", "version": "5.1.0"},
    },
    "evidence": [{"source": "this test", "date": "2026-11-21", "says": "nothing"}],
}
SHIPPED = load_catalog()
EMPTY = {"packages": [], "platform": "x86_64-manylinux_2_28", "python": "3.12", "schema": "trainwright/lock/1"}


def catalog_of(folder: Path, *lines: dict[str, object]) -> Catalog:
    """A catalog with these lines alone; each is the one above with other values."""
    for changes in lines:
        write_line(folder, {**LINE, **changes}, json.dumps(EMPTY))
    return load_catalog(images=folder, templates=templates_dir())


def plan_of(catalog: Catalog, region: str | None = None, **words: object) -> Plan:
    return resolve(make_request(framework="pytorch", **words), catalog, region=region)  # type: ignore[arg-type]


def test_build_stages_start_from_the_devel_image_and_the_image_from_the_small_one(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, {})
    plan = plan_of(catalog)
    text = render_dockerfile(plan, catalog)
    assert "ARG BASE_IMAGE=nvidia/cuda:12.9.1-base-ubuntu22.04" in text
    assert "FROM ${BASE_IMAGE} AS base" in text
    assert "FROM ${BUILD_IMAGE} AS toolchain" in text
    assert "/mnt/apt-install " in text
    apt_run = (templates_dir() / "tools" / "apt" / "apt-run").read_text()
    assert apt_run.index("rm -f /etc/apt/sources.list.d/cuda") < apt_run.index("\napt-get update"), "a rotated key"
    assert plan.environment["PATH"].startswith("/opt/venv/bin:")


def test_a_set_that_nobody_published_is_taken_only_by_name(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, {}, {"version": "2.9.0", "released": False})
    assert plan_of(catalog, cuda="cu129").version == "2.8.0"
    assert plan_of(catalog, version="2.9.0").version == "2.9.0"


def test_the_newest_line_of_a_cuda_version_says_that_there_are_others(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, {}, {"version": "2.7.1"})
    plan = plan_of(catalog, cuda="cu129")
    assert plan.version == "2.8.0"
    assert any("2.7.1" in notice for notice in plan.notices)
    named = plan_of(catalog, cuda="cu129", version="2.8.0")
    assert named.notices == ()
    assert named.id == plan.id, "what is said of other lines is no part of the image"


def test_of_several_lines_the_preferred_one_answers_and_a_pin_picks_the_other(tmp_path: Path) -> None:
    with_ssh = {**LINE["components"], "ssh": {"provider": "debian", "version": "9.2"}}
    catalog = catalog_of(tmp_path, {"components": with_ssh, "variant": "ssh"}, {"preferred": True})
    assert plan_of(catalog).component("ssh") is None
    assert plan_of(catalog, with_="ssh").component("ssh") is not None


def test_extending_a_container_of_aws(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, {})
    plan = plan_of(catalog, version="2.8.0", base="dlc", region="eu-west-1")
    assert plan.base.image == (
        "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
    )
    assert {component.provider for component in plan.components} == {"base"}
    assert plan.id == plan_of(catalog, version="2.8.0", base="dlc", region="cn-north-1").id
    assert plan.id != plan_of(catalog).id
    text = render_dockerfile(plan, catalog)
    assert "uv venv" not in text, "the container's own interpreter is used"
    assert "ENV PATH" not in text


def test_packages_of_the_user_go_into_the_container_s_interpreter(tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("einops==0.8.1\n")
    catalog = catalog_of(tmp_path / "lines", {})
    text = render_dockerfile(plan_of(catalog, base="dlc", requirements=str(wanted)), catalog)
    assert 'uv pip install --python "$(command -v python3)" --break-system-packages' in text


@pytest.mark.parametrize(
    ("region", "start"),
    [
        ("us-west-2", "763104351884.dkr.ecr.us-west-2.amazonaws.com/"),
        ("cn-north-1", "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/"),
        (None, "public.ecr.aws/deep-learning-containers/"),
    ],
)
def test_registries(region: str | None, start: str) -> None:
    image = "pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
    assert registry_reference(image, region) == start + image


def test_what_the_gallery_lacks_comes_from_the_first_region() -> None:
    image = "pytorch-training:1.13.1-gpu-py39-cu117-ubuntu20.04-sagemaker"
    assert registry_reference(image, None).startswith("763104351884.dkr.ecr.us-west-2.")


def test_a_region_without_containers_is_refused() -> None:
    with pytest.raises(RequestError, match="us-west-2"):
        registry_reference("pytorch-training:2.8.0-gpu", "us-wset-2")


def test_a_line_without_a_container_is_a_conflict(tmp_path: Path) -> None:
    catalog = catalog_of(tmp_path, {"version": "2.8.7"})
    with pytest.raises(Conflict):
        plan_of(catalog, base="dlc", version="2.8.7")


# ---- what is claimed of a container ------------------------------------------------------------------------------


def shipped(**words: object) -> Plan:
    return resolve(make_request(**words), SHIPPED)  # type: ignore[arg-type]


def test_only_the_name_of_a_container_is_a_claim() -> None:
    plan = shipped(framework="pytorch", version="2.13.0", cuda="cu133", base="dlc")
    claimed = {component.name: component.version for component in plan.components if component.version}
    assert claimed == {"python": "3.12", "pytorch": "2.13.0", "cuda": "13.3"}
    assert {(e.component, e.fact) for e in plan.expect} == {(name, "version") for name in claimed}
    labelled = {name for name in plan.labels if ".component." in name}
    assert labelled == {f"io.trainwright.component.{name}" for name in claimed}
    # docker/pytorch/2.13/cuda/uv.lock of aws/deep-learning-containers has no mpi4py (e0ecedea, grep -c: 0).
    assert plan.component("mpi4py") is None
    (note,) = [notice for notice in plan.notices if "the build reads what the container holds" in notice]
    assert "AWS's Dockerfile of 2026-07-22 (f1e622e4) installs efa 1.49.0" in note


# Of Hugging Face's, every line is for a container of AWS, so nobody has to say so.
@pytest.mark.parametrize(
    ("framework", "base"), [("pytorch", "dlc"), ("huggingface-pytorch", "dlc"), ("huggingface-pytorch", None)]
)
def test_known_bad_versions_of_a_container_are_told(framework: str, base: str | None) -> None:
    # docker/pytorch/Dockerfile.cuda at f1e622e4: EFA_VERSION=1.47.0, whose plugin is 1.18.0
    plan = shipped(framework=framework, version="2.11.0", base=base)
    (told,) = [notice for notice in plan.notices if "aws/deep-learning-containers#6668" in notice]
    assert "AWS's Dockerfile of 2026-07-22 (f1e622e4) installs it" in told
    pinned = shipped(framework=framework, version="2.11.0", base=base, set_=("aws-ofi-nccl=1.20.0",))
    # 2.13.0 has EFA 1.49.0
    for other in (pinned, shipped(framework="pytorch", version="2.13.0", base="dlc")):
        assert not [notice for notice in other.notices if "#6668" in notice]


def test_what_is_asked_of_a_container_waits_for_the_look() -> None:
    plan = shipped(framework="pytorch", version="2.13.0", base="dlc", with_="metis", set_=("efa=1.50.0",))
    assert plan.component("metis") is not None
    assert ("efa", "1.50.0") in {(e.component, e.value) for e in plan.expect}
    assert plan.tags == shipped(framework="pytorch", version="2.13.0", base="dlc").tags[:1] + plan.tags[1:]
    with pytest.raises(Conflict):
        shipped(framework="pytorch", version="2.13.0", base="dlc", set_=("pytorch=2.12.0",))


def test_wishes_of_a_line_that_has_only_containers_wait_for_the_look_as_well() -> None:
    plan = shipped(framework="huggingface-pytorch", version="2.11.0", with_="mpi4py", set_=("efa=1.49.0",))
    assert plan.component("mpi4py") is not None
    assert ("efa", "1.49.0") in {(e.component, e.value) for e in plan.expect}
    assert [notice for notice in plan.notices if notice.startswith("--with mpi4py: AWS's Dockerfile")]


def test_a_wish_never_leads_to_a_container_by_itself() -> None:
    with pytest.raises(Conflict):
        shipped(framework="pytorch", cuda="cu113", set_=("openmpi=5.0.7",))


@pytest.mark.parametrize(
    ("words", "image"),
    [
        (
            {"framework": "pytorch", "cuda": "cpu", "version": "2.8.0", "base": "dlc"},
            "public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0-cpu-py312-ubuntu22.04-sagemaker",
        ),
        (
            {"framework": "pytorch-smp", "version": "2.5.1"},
            "658645717510.dkr.ecr.us-west-2.amazonaws.com/smdistributed-modelparallel:2.5.1-gpu-py311-cu124",
        ),
    ],
)
def test_containers_that_no_line_describes(words: dict[str, str], image: str) -> None:
    plan = shipped(**words)
    assert plan.base.image == image
    assert {component.provider for component in plan.components} == {"base"}
    assert not plan.unlocked


def test_what_aws_does_not_install_is_told_before_anything_is_pulled() -> None:
    # docker/pytorch/2.13/cuda/uv.lock has no mpi4py (e0ecedea, grep -c: 0); that for CPUs has 4.1.1 (7b00481e).
    words = {"framework": "pytorch", "version": "2.13.0", "base": "dlc"}
    plan = shipped(**words, cuda="cu133", with_="mpi4py,efa,torchvision,xformers")
    (told,) = [notice for notice in plan.notices if "--with" in notice]
    assert told.startswith("--with mpi4py: AWS's Dockerfile of 2026-07-22 (f1e622e4) does not install it")
    assert not [n for n in shipped(**words, cuda="cpu", with_="mpi4py").notices if "--with" in n]
    unread = shipped(framework="pytorch", version="2.14.0", base="dlc", with_="mpi4py")
    assert not [notice for notice in unread.notices if "--with" in notice]


def against(**words: object) -> list[str]:
    """What AWS's Dockerfile says against words of a request, each in one notice."""
    return [each for each in shipped(framework="pytorch", base="dlc", **words).notices if each.startswith("--")]


# docker/pytorch/Dockerfile.cuda of AWS's repository at f1e622e4 has EFA_VERSION=1.49.0 for 2.13.0, and its lock
# flash-attn 2.8.3; pytorch/training/docker/1.10/py3/cu113/Dockerfile.gpu at f023343d has SMP 1.11.2.
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            {"set_": ("mpi4py=4.1.1",)},
            "--set mpi4py=4.1.1: AWS's Dockerfile of 2026-07-22 (f1e622e4) does not install it",
        ),
        ({"set_": ("efa=1.47.0",)}, "--set efa=1.47.0: AWS's Dockerfile of 2026-07-22 (f1e622e4) installs efa 1.49.0"),
        ({"set_": ("efa=1.49",)}, "--set efa=1.49: AWS's Dockerfile of 2026-07-22 (f1e622e4) installs efa 1.49.0"),
        ({"set_": ("flash-attn=2.7.4",)}, "installs flash-attn 2.8.3"),
        ({"without": "efa"}, "--without efa: AWS's Dockerfile of 2026-07-22 (f1e622e4) installs efa 1.49.0"),
        ({"without": "ssh"}, "--without ssh: AWS's Dockerfile of 2026-07-22 (f1e622e4) installs ssh;"),
        (
            {"version": "1.10.2", "set_": ("smdistributed-modelparallel=1.7.0",)},
            "AWS's Dockerfile of 2022-09-20 (f023343d) installs smdistributed-modelparallel 1.11.2",
        ),
    ],
)
def test_what_aws_s_dockerfile_says_against_a_request(words: dict[str, object], told: str) -> None:
    (notice,) = against(**{"version": "2.13.0", **words})
    assert told in notice
    assert "the build ends with a conflict" in notice


@pytest.mark.parametrize(
    "words",
    [
        {"set_": ("efa=1.49.0", "flash-attn=2.8.3", "ssh=9.6")},  # ssh: it names no version
        {"set_": ("efa=base",)},
        {"set_": ("xformers=0.0.35",)},  # no Dockerfile is read for it
        {"without": "metis"},
        {"version": "2.14.0", "set_": ("mpi4py=4.1.1",)},  # not in AWS's repository yet
    ],
)
def test_what_aws_s_dockerfile_does_not_contradict(words: dict[str, object]) -> None:
    assert against(**{"version": "2.13.0", **words}) == []


def test_rules_are_for_images_of_one_s_own_not_for_pins_of_a_container() -> None:
    # setup.py of flash_attn 2.8.3.post2 refuses CUDA 11.3; whether AWS has compiled it, the build sees.
    plan = shipped(framework="pytorch", version="1.10.2", base="dlc", set_=("flash-attn=2.8.3",))
    assert (plan.cuda, plan.component("flash-attn").version) == ("11.3", "2.8.3")  # type: ignore[union-attr]


@pytest.mark.parametrize("words", [{}, {"cuda": "cu130"}])
def test_a_pin_never_leads_from_a_gpu_container_to_one_for_cpus(words: dict[str, str]) -> None:
    # The container for CPUs has mpi4py 4.1.1 (docker/pytorch/2.13/cpu/uv.lock at 7b00481e), that for GPUs does not.
    plan = shipped(framework="pytorch", version="2.13.0", base="dlc", set_=("mpi4py=4.1.1",), **words)
    assert str(plan.base.image).endswith("/pytorch:2.13.0-cu133-amzn2023-sagemaker")
    assert ("mpi4py", "4.1.1") in {(e.component, e.value) for e in plan.expect}
    with pytest.raises(Conflict):  # no container for GPUs has it, and those for CPUs have no CUDA
        shipped(framework="pytorch", version="2.13.0", base="dlc", set_=("cuda=12.1",))


def test_a_container_has_no_provider_to_choose() -> None:
    with pytest.raises(Conflict):
        shipped(framework="pytorch", version="2.13.0", base="dlc", set_=("nccl=source",))


def test_what_is_only_quoted_of_a_container_is_no_part_of_its_plan() -> None:
    plan = shipped(framework="pytorch", version="2.13.0", cuda="cu133", base="dlc")
    assert "flash-attn 2.8.3" in " ".join(plan.notices)
    assert plan.component("flash-attn") is None


GPU_IMAGES = [each for each in load_dlc().images if each.device == "gpu" and each.cuda]


@pytest.mark.parametrize("image", GPU_IMAGES, ids=lambda image: f"{image.repository}:{image.tag}")
def test_each_gpu_container_whose_cuda_is_known_can_be_extended(image: PublishedImage) -> None:
    python = f"{image.python[2]}.{image.python[3:]}" if image.python else None
    plan = shipped(framework=image.framework, version=image.version, cuda=image.cuda, base="dlc", python=python)
    if "huggingface" not in image.repository and "trcomp" not in image.repository:  # these lines start from others
        assert str(plan.base.image).endswith(f"/{image.repository}:{image.tag}")


# sagemaker-core 2.27.0, tensorflow.json, has it; AWS's repository begins after its release.
def test_a_container_of_which_too_little_is_known_is_named() -> None:
    words = {"framework": "tensorflow", "version": "1.15.2"}
    with pytest.raises(Conflict) as refused:
        shipped(**words, base="dlc")
    said = "".join(row["evidence"] for row in refused.value.details["rows"])
    assert "tensorflow-training:1.15.2-gpu-py37" in said
    assert "CONTRIBUTING.md" in said
    with pytest.raises(Conflict) as refused:
        shipped(**words, base="nvidia")
    assert "1.15.2-gpu" not in "".join(row["evidence"] for row in refused.value.details["rows"])


# docs/src/data/pytorch/2.14-cuda-sagemaker.yml of aws/deep-learning-containers, 1f8757ef: cu133, Python 3.12
@pytest.mark.parametrize("words", [{}, {"cuda": "cu133"}, {"version": "2.14"}])
def test_a_gpu_container_without_a_line_comes_before_that_for_cpus(words: dict[str, str]) -> None:
    plan = shipped(**{"framework": "pytorch", "version": "2.14.0", "base": "dlc", **words})
    assert str(plan.base.image).endswith("/pytorch:2.14.0-cu133-amzn2023-sagemaker")
    claimed = {component.name: component.version for component in plan.components if component.version}
    assert claimed == {"python": "3.12", "pytorch": "2.14.0", "cuda": "13.3"}
    cpu = shipped(framework="pytorch", version="2.14.0", cuda="cpu", base="dlc")
    assert str(cpu.base.image).endswith("/pytorch:2.14.0-cpu-amzn2023-sagemaker")


def test_the_line_of_a_container_is_taken_before_its_name_alone() -> None:
    for cuda in ("cu130", "cu133"):  # of PyTorch's build, and of AWS's tag
        plan = shipped(framework="pytorch", version="2.13.0", cuda=cuda, base="dlc")
        assert plan.cuda == "13.0"
    hugging = shipped(framework="huggingface-pytorch", version="2.11", base="dlc")
    assert hugging.component("huggingface").provider == "wheel"  # type: ignore[union-attr]


def test_a_container_of_hugging_face_without_a_line_claims_its_transformers() -> None:
    plan = shipped(framework="huggingface-tensorflow", version="2.4.1", cuda="cu110", base="dlc")
    # Of four with that version, the last.
    assert "training:2.4.1-transformers4.10.2-gpu-py37-cu110-ubuntu18.04" in str(plan.base.image)
    assert ("huggingface", "4.10.2") in {(e.component, e.value) for e in plan.expect}


def test_a_distribution_that_aws_does_not_name_is_told() -> None:
    # AWS's release notes of SMP v2.7.0: EFA 1.32.0 and NCCL 2.21.5, as in pytorch/training/docker/2.3/py3/cu121
    # (1059e445), on Ubuntu 20.04; PyTorch 2.4 with CUDA 12.1 has no container.
    plan = shipped(framework="pytorch-smp", version="2.4.1")
    assert plan.base.os == "ubuntu-20.04"
    told = "that of pytorch-training:2.3.0-gpu-py311-cu121-ubuntu20.04-sagemaker is taken"
    assert [notice for notice in plan.notices if told in notice]
    known = shipped(framework="pytorch", version="2.14.0", base="dlc")
    assert not [notice for notice in known.notices if "is taken" in notice]


def test_packages_of_the_container_are_frozen(tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("einops==0.8.1\n")
    words = {"framework": "pytorch", "version": "2.13.0", "base": "dlc", "requirements": str(wanted)}
    held = render_dockerfile(shipped(**words), SHIPPED)
    assert "pip list" in held
    assert "--constraints /mnt/base.txt" in held
    assert "sed -i" not in held
    freed = render_dockerfile(shipped(**words, allow_change="Numpy,six"), SHIPPED)
    assert "sed -i -E '/^(numpy|six)==/Id' /mnt/base.txt" in freed
    with pytest.raises(RequestError, match="torch"):
        shipped(**words, allow_change="torch")
    with pytest.raises(RequestError, match="only for images that extend"):
        shipped(framework="pytorch", cuda="cpu", requirements=str(wanted), allow_change="six")
    with pytest.raises(RequestError, match="without --with-requirements"):
        shipped(framework="pytorch", base="dlc", allow_change="six")


def test_a_component_may_lack_a_version_only_in_a_base_image() -> None:
    assert Selection(provider="base").version == ""
    with pytest.raises(ValueError, match="'version' is missing"):
        Selection(provider="wheel")
