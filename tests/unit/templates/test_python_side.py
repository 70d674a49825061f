"""Components of the Python side, resolved and rendered with image lines made here: which files, in which stages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.catalogs import write_line
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.wheel_lock import Lock, LockedPackage
from trainwright.core.errors import Conflict, RequestError
from trainwright.plan.plan import Plan
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

NVIDIA = {
    "kind": "nvidia",
    "os": "ubuntu-20.04",
    "image": "nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04",
    "build_image": "nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04",
}
BIONIC = {
    "kind": "nvidia",
    "os": "ubuntu-18.04",
    "image": "nvidia/cuda:11.1.1-cudnn8-runtime-ubuntu18.04",
    "build_image": "nvidia/cuda:11.1.1-cudnn8-devel-ubuntu18.04",
}
DLC = {"kind": "dlc", "os": "ubuntu-20.04", "image": "pytorch-training:1.12-gpu-py38-cu113-ubuntu20.04-sagemaker-v1"}
IN_BASE = ("cuda", "efa", "openmpi", "nccl", "ssh", "mpi4py")


def selection(provider: str, version: str, *packages: str) -> dict[str, Any]:
    return {"provider": provider, "version": version, "packages": list(packages)}


def catalog_with(tmp_path: Path, components: dict[str, dict[str, Any]], **fields: Any) -> Catalog:
    """A catalog of one image line; what it does not name of the stack lies in the base image."""
    every = {name: selection("base", "1") for name in IN_BASE} | components
    line = {
        "framework": "pytorch",
        "version": "1.10.2",
        "cuda": "11.3",
        "python": "3.8",
        "base": NVIDIA,
        "status": "end-of-support",
        "components": every,
        "evidence": [{"source": "a test", "date": "2026-11-21", "says": "nothing"}],
        **fields,
    }
    pins = [(name, pin) for name, chosen in every.items() for pin in chosen["packages"]]
    packages = [
        LockedPackage(
            name=pin.partition("==")[0],
            version=pin.partition("==")[2],
            file=f"{pin.replace('==', '-')}.tar.gz"
            if name == "mpi4py"
            else f"{pin.replace('==', '-')}-py3-none-any.whl",
            sha256="a" * 64,
            components=(name,),
        )
        for name, pin in pins
    ]
    lock = Lock(python=line["python"], platform="x86_64-manylinux_2_17", packages=tuple(packages))
    write_line(tmp_path / "images", line, lock.dump())
    return load_catalog(images=tmp_path / "images")


def only(catalog: Catalog, **more: Any) -> Plan:
    line = catalog.lines[0].line
    return resolve(make_request(framework=line.framework, cuda=line.cuda, version=line.version, **more), catalog)


def files_of(plan: Plan, name: str) -> list[str | None]:
    component = plan.component(name)
    assert component is not None
    return [source.file for source in component.archives]


def stage_of(dockerfile: str, name: str) -> str:
    return dockerfile.partition(f" AS {name}\n")[2].partition("\nFROM ")[0]


# ---- the interpreter ---------------------------------------------------------------------------------------------


def test_a_python_of_the_distribution_goes_by_its_full_name(tmp_path: Path) -> None:
    catalog = catalog_with(tmp_path, {"python": selection("ubuntu", "3.8", "pip==25.0.1")})
    plan = only(catalog)
    python = plan.component("python")
    assert python is not None
    assert python.system.run == ("python3.8", "libpython3.8", "python3-distutils")
    text = render_dockerfile(plan, catalog)
    assert "/usr/bin/python3.8 -m venv /opt/tools" in text
    assert "/mnt/apt-install binutils python3.8-venv\n" in stage_of(text, "tools")
    assert "/opt/tools/uv venv --python /usr/bin/python3.8 /opt/venv" in text


def test_a_python_without_distutils_asks_for_none(tmp_path: Path) -> None:
    noble = {**NVIDIA, "os": "ubuntu-24.04"}
    plan = only(catalog_with(tmp_path, {"python": selection("ubuntu", "3.12")}, python="3.12", base=noble))
    python = plan.component("python")
    assert python is not None
    assert set(python.system.run) == {"python3.12", "libpython3.12"}


def test_amazon_linux_has_the_venv_module_in_its_python(tmp_path: Path) -> None:
    base = {**NVIDIA, "os": "amazonlinux-2023"}
    catalog = catalog_with(tmp_path, {"python": selection("amazon", "3.12")}, python="3.12", base=base)
    text = render_dockerfile(only(catalog), catalog)
    assert re.search(r"/mnt/dnf-install .*\bpython3\.12\b", stage_of(text, "os"))
    assert re.findall(r"/mnt/dnf-install (.*)", stage_of(text, "tools")) == ["binutils"]
    assert "/mnt/apt-" not in text


def test_amazon_linux_keeps_its_own_curl(tmp_path: Path) -> None:
    base = {**NVIDIA, "os": "amazonlinux-2023"}
    chosen = {"python": selection("amazon", "3.12"), "boost": selection("source", "1.82.0")}
    catalog = catalog_with(tmp_path, chosen, python="3.12", base=base)
    toolchain = stage_of(render_dockerfile(only(catalog), catalog), "toolchain")
    assert " /usr/bin/curl " in toolchain
    assert " curl " not in toolchain


@pytest.mark.parametrize(
    ("python", "pip_first", "told_to_ignore"), [("3.6", True, True), ("3.7", False, True), ("3.8", False, False)]
)
def test_tools_are_those_that_run_on_the_image_s_python(
    tmp_path: Path, python: str, pip_first: bool, told_to_ignore: bool
) -> None:
    chosen = selection("source", "3.7.10") if python == "3.7" else selection("ubuntu", python)
    catalog = catalog_with(tmp_path, {"python": chosen}, python=python, base=BIONIC)
    tools = stage_of(render_dockerfile(only(catalog), catalog), "tools")
    assert ("-r /mnt/pip.txt" in tools) == pip_first
    assert ("--ignore-requires-python" in tools) == told_to_ignore


def test_an_interpreter_from_source_is_there_before_anything_needs_it(tmp_path: Path) -> None:
    chosen = {"python": selection("source", "3.10.12", "pip==25.0.1")}
    catalog = catalog_with(tmp_path, chosen, python="3.10")
    plan = only(catalog)
    assert files_of(plan, "python") == ["Python-3.10.12.tgz"]
    text = render_dockerfile(plan, catalog)
    stages = [line.partition(" AS ")[2] for line in text.splitlines() if line.startswith("FROM ")]
    assert stages.index("python") < stages.index("interpreter") < stages.index("tools") < stages.index("final")
    assert text.count("COPY --from=python /opt/python /opt/python") == 2  # for the image and for the toolchain
    assert "uv venv --python /opt/python/bin/python3.10 /opt/venv" in text
    assert "https://www.python.org/ftp/python/3.10.12/Python-3.10.12.tgz" in stage_of(text, "python")


def test_an_interpreter_of_another_minor_version_is_no_pin(tmp_path: Path) -> None:
    catalog = catalog_with(tmp_path, {"python": selection("source", "3.10.12")}, python="3.10")
    moved = only(catalog, set_=("python=3.10.14",)).component("python")
    assert moved is not None
    assert moved.version == "3.10.14"
    with pytest.raises(Conflict):
        only(catalog, set_=("python=3.11.9",))


# ---- wheels by address -------------------------------------------------------------------------------------------


def test_a_wheel_of_aws_is_fetched_once_and_installed_without_its_dependencies(tmp_path: Path) -> None:
    chosen = {
        "python": selection("ubuntu", "3.8"),
        "pytorch": selection("aws", "1.10.2", "typing-extensions==4.13.2"),
        "torchvision": selection("aws", "0.11.3", "pillow==10.4.0"),
    }
    catalog = catalog_with(tmp_path, chosen)
    plan = only(catalog)
    assert files_of(plan, "pytorch") == ["torch-1.10.2+cu113-cp38-cp38-manylinux1_x86_64.whl"]
    text = render_dockerfile(plan, catalog)
    assert "%2Bcu113-cp38-cp38-manylinux1_x86_64.whl'" in stage_of(text, "pytorch")
    assert "fetch torch-1.10.2+cu113-cp38-cp38-manylinux1_x86_64.whl - " in stage_of(text, "pytorch")
    assert "published without one" in stage_of(text, "toolchain")
    layer = stage_of(text, "pytorch-layer")
    assert "--mount=type=bind,from=pytorch,source=/src,target=/mnt/wheels" in layer
    assert layer.index("requirements/pytorch.txt") < layer.index("from=pytorch")
    assert "from=torchvision,source=/src" in stage_of(text, "torchvision-layer")
    expected = {(e.component, e.fact): e.value for e in plan.expect}
    assert expected["pytorch", "cuda"] == "11.3"
    assert expected["torchvision", "version"] == "0.11.3"


def test_a_wheel_for_another_cuda_version_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"pytorch 1\.12\.1 \(aws\) supports only CUDA 11\.3 Python 3\.8"):
        catalog_with(
            tmp_path,
            {"python": selection("ubuntu", "3.8"), "pytorch": selection("aws", "1.12.1")},
            version="1.12.1",
            cuda="11.6",
        )


def test_the_same_release_built_twice_is_told_apart(tmp_path: Path) -> None:
    chosen = {"python": selection("ubuntu", "3.8"), "pytorch": selection("aws", "1.10.2+20220912")}
    plan = only(catalog_with(tmp_path, chosen))
    assert files_of(plan, "pytorch") == ["torch-1.10.2+cu113-cp38-cp38-linux_x86_64.whl"]
    assert ("pytorch", "version", "1.10.2") in {(e.component, e.fact, e.value) for e in plan.expect}


LIBRARIES = {
    "python": selection("ubuntu", "3.8"),
    "pytorch": selection("aws", "1.10.2"),
    "boost": selection("source", "1.73.0"),
    "rmm": selection("source", "0.15.0"),
    "metis": selection("source", "5.1.0"),
    "gdrcopy": selection("base", "2.3"),
    "smdistributed-dataparallel": selection("aws", "1.4.0"),
    "smdistributed-modelparallel": selection("aws", "1.7.0"),
}


def with_libraries(tmp_path: Path, **changes: dict[str, Any] | None) -> Catalog:
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    chosen = {name: value for name, value in {**LIBRARIES, **named}.items() if value is not None}
    known = load_catalog().components
    return catalog_with(tmp_path, {name: value for name, value in chosen.items() if name in known})


def test_smdistributed_wheels_are_those_of_the_framework_python_and_cuda(tmp_path: Path) -> None:
    catalog = with_libraries(tmp_path)
    plan = only(catalog)
    component = plan.component("smdistributed-dataparallel")
    assert component is not None
    assert [a.url for a in component.archives] == [
        "https://smdataparallel.s3.amazonaws.com/binary/pytorch/1.10.2/cu113/2022-02-18/"
        "smdistributed_dataparallel-1.4.0-cp38-cp38-linux_x86_64.whl"
    ]
    text = render_dockerfile(plan, catalog)
    assert "SMDATAPARALLEL_PT=1 /opt/tools/into-layer --no-index" in text
    # The libraries before the wheels that are linked with them.
    final = text.partition(" AS packages\n")[2]
    order = [final.index(f"from={name}") for name in ("boost", "rmm", "metis")]
    assert max(order) < final.index("from=smdistributed-dataparallel") < final.index("from=smdistributed-modelparallel")


@pytest.mark.parametrize("lacking", ["boost", "rmm", "metis", "smdistributed_dataparallel"])
def test_smdistributed_needs_what_it_was_linked_with(tmp_path: Path, lacking: str) -> None:
    catalog = with_libraries(tmp_path, **{lacking: None})
    with pytest.raises(Conflict) as caught:
        only(catalog)
    assert f"requires {lacking.replace('_', '-')}" in str(caught.value.details["rows"])


def test_rmm_builds_from_what_was_fetched_and_fetches_nothing_itself(tmp_path: Path) -> None:
    catalog = with_libraries(tmp_path)
    stage = stage_of(render_dockerfile(only(catalog), catalog), "rmm")
    assert len(re.findall(r"\bfetch \S+ \S+ '", re.sub(r" \\\n\s*", " ", stage))) == 5
    assert "-DFETCHCONTENT_FULLY_DISCONNECTED=ON" in stage
    for name in ("CNMEM", "SPDLOG", "THRUST"):
        assert f"-DFETCHCONTENT_SOURCE_DIR_{name}=/src/{name.lower()}" in stage
    assert "-DBUILD_TESTS=OFF" in stage


# ---- the rest ----------------------------------------------------------------------------------------------------


def test_mpi4py_is_compiled_where_open_mpi_is(tmp_path: Path) -> None:
    chosen = {
        "python": selection("ubuntu", "3.6"),
        "openmpi": selection("debian", "4.1.4"),
        "mpi4py": selection("source", "3.1.6", "mpi4py==3.1.6"),
    }
    catalog = catalog_with(tmp_path, chosen, python="3.6", base=BIONIC)
    text = render_dockerfile(only(catalog), catalog)
    assert " AS wheels\n" not in text
    stage = stage_of(text, "mpi4py")
    assert stage.index("COPY --from=openmpi /opt/amazon/openmpi") < stage.index("pip wheel")
    assert "MPICC=/opt/amazon/openmpi/bin/mpicc" in stage
    assert "--mount=type=bind,from=mpi4py,source=/wheels/mpi4py,target=/mnt/wheels" in text


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_the_toolkit_is_told_the_framework_s_module(tmp_path: Path, framework: str) -> None:
    chosen = {
        "python": selection("ubuntu", "3.8"),
        framework: selection("base", "1"),
        "sagemaker-toolkit": selection("wheel", "4.9.0", "sagemaker-training==4.9.0"),
    }
    plan = only(catalog_with(tmp_path, chosen, framework=framework))
    assert plan.environment["SAGEMAKER_TRAINING_MODULE"] == f"sagemaker_{framework}_container.training:main"


def test_the_training_compiler_takes_all_of_one_build(tmp_path: Path) -> None:
    chosen = {
        "python": selection("base", "3.8"),
        "pytorch": selection("base", "1.12.0"),
        "torch-xla": selection("aws", "1.12"),
    }
    catalog = catalog_with(
        tmp_path, chosen, framework="pytorch-trcomp", component="pytorch", version="1.12.0", base=DLC
    )
    plan = only(catalog)
    component = plan.component("torch-xla")
    assert component is not None
    folders = {str(archive.url).rpartition("/")[0] for archive in component.archives}
    assert len(folders) == 1
    assert [str(a.file).partition("-")[0] for a in component.archives] == [
        "torch_xla",
        "torch",
        "torchvision",
        "torchaudio",
    ]
    assert plan.environment["USE_SMDEBUG"] == "0"
    assert any("refuse custom images" in notice for notice in plan.notices)
    text = render_dockerfile(plan, catalog)
    assert "--no-deps --reinstall --no-index" in text.partition(" AS final\n")[2]


def test_tensorflow_of_the_index_may_be_built_for_an_older_cuda_12(tmp_path: Path) -> None:
    chosen = {"python": selection("ubuntu", "3.12"), "tensorflow": selection("wheel", "2.21.0", "tensorflow==2.21.0")}
    plan = only(catalog_with(tmp_path, chosen, framework="tensorflow", version="2.21.0", cuda="12.9", python="3.12"))
    assert ("tensorflow", "cuda", "12.5*") in {(e.component, e.fact, e.value) for e in plan.expect}
