"""NCCL's plugin for EFA by version: what upstream's sources say of themselves, and what an image is held to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.component import BuildTarget
from trainwright.core.data_files import read_yaml
from trainwright.core.errors import Conflict
from trainwright.core.paths import templates_dir
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

SHAPE = Path(__file__).resolve().parents[2] / "twin" / "shapes" / "ofi"
CATALOG = load_catalog()
UPSTREAM = read_yaml(Path(__file__).with_name("plugin_tags.yaml"))
# Of EFA installer 1.51.0 by AWS's list of its changes; upstream had no tag of it on 2026-11-26.
WITHOUT_TAG = {"1.22.0"}
DEBIAN_13 = {"cu126": "2.7.1", "cu128": "2.9.1", "cu130": "2.13.0", "cu132": "2.15.0"}
# The first headings of RELEASENOTES.md in the tag v1.1.3-aws.
NOTES = """# AWS OFI NCCL Release notes

# Supported Distributions
# v1.1.3 release notes

# v1.1.2 release notes
"""


PROVIDERS = CATALOG.components["aws-ofi-nccl"].component.providers
OF_SOURCE = sorted(PROVIDERS["source"].versions)


def test_every_version_is_held_to_its_tag():
    assert {version for provider in PROVIDERS.values() for version in provider.versions} - WITHOUT_TAG == set(UPSTREAM)


@pytest.mark.parametrize("version", OF_SOURCE)
def test_a_version_is_expected_of_the_library_only_if_it_prints_one(version):
    expect = PROVIDERS["source"].expect_for(version)
    assert ("version" in expect) == UPSTREAM[version]["prints"]
    assert expect.get("version", expect.get("release")) == "{version}"
    assert expect["missing"] == "none"


@pytest.mark.parametrize(("provider", "version"), [*(("source", each) for each in OF_SOURCE), ("debian", "1.21.1")])
def test_the_archive_is_that_of_the_tag(provider, version):
    (source,) = PROVIDERS[provider].sources_for(version, BuildTarget("pytorch", "1.10.2", "11.3", "3.8")) or ()
    assert f"/{UPSTREAM[version]['tag']}{'/' if '/releases/' in source.url else '.tar.gz'}" in source.url


@pytest.mark.parametrize("version", UPSTREAM)
def test_the_probe_reads_the_version_that_the_library_prints(version, tmp_path):
    """The compiler joins the words: "Initializing " PACKAGE_STRING, which is the name and the version of AC_INIT."""
    said = UPSTREAM[version]
    if not said["prints"]:
        return
    init = version if said["init"] == ".release_version" else said["init"]
    (tmp_path / "library").write_bytes(b"\0%s:%d NET/OFI Initializing aws-ofi-nccl " + init.encode() + b"\n\0")
    (probe,) = CATALOG.components["aws-ofi-nccl"].component.probe
    (search,) = re.findall(r"grep -aoE '[^']*'", probe.run)
    found = subprocess.run(["sh", "-c", f"{search} library"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.search(probe.match["version"], found.stdout, re.MULTILINE)[1] == version


@pytest.mark.parametrize("version", OF_SOURCE)
def test_only_options_that_the_tag_knows(version):
    values = PROVIDERS["source"].values_for(version)
    asked = set(re.findall(r"--(?:enable|disable)-(platform-aws|tests)|--(with-nccl)", values["options"]))
    assert {a or b for a, b in asked} <= set(UPSTREAM[version]["options"])


@pytest.mark.parametrize("version", OF_SOURCE)
def test_no_program_is_compiled_that_needs_mpicc(version):
    """`mpicc: command not found`, exit status 2 of `make install` of v1.1.3-aws without it, 2026-11-26."""
    values = PROVIDERS["source"].values_for(version)
    folders = re.search(r"SUBDIRS='([^']*)'", values["make"])
    if UPSTREAM[version]["mpicc"]:  # no option leaves the programs out
        assert folders and folders[1].split() == ["src", "topology"]
    else:
        assert folders or "--disable-tests" in values["options"]


def test_release_is_that_of_the_archive_s_notes(tmp_path):
    plan = resolve(make_request(framework="pytorch", cuda="cu113", version="1.10.2"), CATALOG)
    assert ("aws-ofi-nccl", "release", "1.1.3") in {(e.component, e.fact, e.value) for e in plan.expect}
    step = re.search(r"(sed -n '[^']*' RELEASENOTES\.md .*?) > \S+/RELEASE", render_dockerfile(plan, CATALOG))
    assert step
    (tmp_path / "RELEASENOTES.md").write_text(NOTES)
    said = subprocess.run(["sh", "-c", step[1]], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    (probe,) = [p for p in plan.probes if p.component == "aws-ofi-nccl"]
    assert (found := re.search(probe.match["release"], said, re.MULTILINE))
    assert found[1] == "1.1.3"


def test_later_versions_need_no_notes():
    plan = resolve(make_request(framework="pytorch", cuda="cu113", version="1.12.1"), CATALOG)
    assert "RELEASENOTES" not in render_dockerfile(plan, CATALOG)


def test_a_conflict_offers_the_installer_that_brings_the_version():
    asked = {"framework": "pytorch", "version": "2.9.0", "base": "nvidia"}
    with pytest.raises(Conflict) as refused:
        resolve(make_request(**asked, set_=["aws-ofi-nccl=1.20.0"]), CATALOG)
    commands = [offer["command"] for offer in refused.value.details["offers"]]
    assert any("--version 2.9.0" in each and each.endswith(" --set efa=1.49.0") for each in commands)


@pytest.mark.parametrize(("installer", "hangs"), [("1.47.0", True), ("1.49.0", False)])
def test_the_plugin_that_hangs_is_named(installer, hangs):
    """aws/deep-learning-containers#6668, 2026-08-27."""
    plan = resolve(
        make_request(framework="pytorch", version="2.9.0", base="nvidia", set_=[f"efa={installer}"]), CATALOG
    )
    assert any("1.18.0 hangs in large broadcasts" in notice for notice in plan.notices) == hangs


def test_no_line_has_the_plugin_that_hangs():
    chosen = [each.line.components.get("aws-ofi-nccl") for each in CATALOG.lines]
    assert "1.18.0" not in {each.version for each in chosen if each and each.provider != "base"}


# ---- on Debian's libfabric -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuda", DEBIAN_13)
def test_lines_on_debian_13_have_it(cuda):
    plan = resolve(make_request(framework="pytorch", cuda=cuda, version=DEBIAN_13[cuda]), CATALOG)
    plugin = plan.component("aws-ofi-nccl")
    assert plugin is not None and plugin.provider == "debian"
    assert not any("TCP between hosts" in notice for notice in plan.notices)
    without = make_request(framework="pytorch", cuda=cuda, version=DEBIAN_13[cuda], without="aws-ofi-nccl")
    assert any("TCP between hosts" in notice for notice in resolve(without, CATALOG).notices)


def test_the_bare_framework_is_the_newest_supported_line_with_it():
    plan = resolve(make_request(framework="pytorch"), CATALOG)
    newest = max((e.line for e in CATALOG.lines_of("pytorch") if e.line.status == "supported"), key=version_of)
    assert (plan.version, plan.base.os, plan.python) == (newest.version, "debian-13", "3.13")
    assert plan.component("aws-ofi-nccl")


def version_of(line) -> list[int]:
    return [int(part) for part in line.version.partition("+")[0].split(".")]


def test_it_is_configured_as_upstream_s_checks_need_it():
    """m4/check_pkg_cuda.m4 of v1.21.1 looks into lib64, for libcudart.so or libcudart_static.a; check_pkg_libfabric.m4
    and check_pkg_hwloc.m4 put the include folder of a named place before the compiler's own, which breaks
    ``#include_next`` if it is /usr/include. m4/get_version.sh reads .release_version where there is no git."""
    plan = resolve(make_request(framework="pytorch"), CATALOG)
    (step,) = re.findall(r"RUN unpack aws-ofi-nccl.*?\n\n", render_dockerfile(plan, CATALOG), re.DOTALL)
    for option in ("--with-cuda=/usr/local/cuda", "--enable-cudart-dynamic", "--enable-platform-aws"):
        assert option in step
    assert "--with-libfabric=/opt/libfabric" in step and "--with-hwloc" not in step
    assert "echo 1.21.1 > .release_version" in step
    assert "libhwloc-dev" in plan.component("aws-ofi-nccl").system.build


WITH_PLUGIN = [
    each for each in CATALOG.lines if "aws-ofi-nccl" in each.line.components and each.line.base.os == "debian-13"
]


@pytest.mark.parametrize("entry", WITH_PLUGIN, ids=lambda entry: f"{entry.line.framework}-{entry.name}")
def test_a_wheel_of_which_it_needs_the_headers_is_in_the_image_if_another_component_needs_it(entry):
    """TensorFlow takes ptxas and libdevice from the wheel of nvcc, PyTorch has its own."""
    line = entry.line
    asked = {"framework": line.framework, "cuda": line.cuda, "version": line.version, "python": line.python}
    plan = resolve(make_request(**asked), CATALOG)
    other = resolve(make_request(**asked, without="aws-ofi-nccl"), CATALOG)
    assert plan.component("aws-ofi-nccl").provider == "debian"
    wheels = {each.package for c in plan.components if c.name != "aws-ofi-nccl" for each in c.wheels}
    assert wheels == {each.package for c in other.components for each in c.wheels}
    assert ("nvidia-cuda-nvcc-cu12==12.9.86" in wheels) == (line.framework == "tensorflow")


REQUIREMENTS = {
    "cu12": {
        "cuda": "nvidia-cublas-cu12===12.8.4.1\nnvidia-cuda-runtime-cu12===12.8.90\nnvidia-cuda-nvrtc-cu12===12.8.93\n",
        "efa": "nvidia-cuda-nvcc-cu12===12.8.93\nnvidia-nvml-dev-cu12===12.8.90\n",
    },
    "cu13": {
        "cuda": "cuda-toolkit===13.0.3.0\nnvidia-cuda-runtime===13.0.96\n",
        "efa": "nvidia-cuda-crt===13.0.88\nnvidia-nvml-dev===13.0.87\n",
    },
    "cu13 with the compiler": {
        "cuda": "nvidia-cuda-runtime===13.0.96\n",
        "efa": "nvidia-nvml-dev===13.0.87\n",
        "cuda-compiler": "nvidia-cuda-cccl===13.0.85\nnvidia-cuda-crt===13.0.88\nnvidia-cuda-nvcc===13.0.88\n",
    },
}
HEADERS = {
    "cu12": {
        "nvidia-cuda-runtime-cu12===12.8.90",
        "nvidia-cuda-nvcc-cu12===12.8.93",
        "nvidia-nvml-dev-cu12===12.8.90",
    },
    "cu13": {"nvidia-cuda-runtime===13.0.96", "nvidia-cuda-crt===13.0.88", "nvidia-nvml-dev===13.0.87"},
    "cu13 with the compiler": {
        "nvidia-cuda-runtime===13.0.96",
        "nvidia-cuda-crt===13.0.88",
        "nvidia-cuda-nvcc===13.0.88",
        "nvidia-nvml-dev===13.0.87",
    },
}


@pytest.mark.parametrize("case", REQUIREMENTS)
def test_headers_come_from_the_locked_wheels_of_whichever_component_has_them(tmp_path, case):
    mnt, venv = tmp_path / "mnt", tmp_path / "venv"
    for name, text in REQUIREMENTS[case].items():
        (mnt / "wheels" / name).mkdir(parents=True)
        (mnt / "requirements").mkdir(exist_ok=True)
        (mnt / "requirements" / name).write_text(text)
    (venv / "bin").mkdir(parents=True)
    for path, text in {mnt / "uv": f'echo "$@" >> {tmp_path}/said', venv / "bin" / "python": "true"}.items():
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    script = (templates_dir() / "components" / "efa" / "cuda_headers.sh").read_text()
    own = script.replace("/mnt", str(mnt)).replace("/opt/venv", str(venv))
    subprocess.run(["sh", "-c", own, "sh", "/usr/bin/python3"], check=True)
    assert set((mnt / "headers.txt").read_text().split()) == HEADERS[case]
    made, installed = (tmp_path / "said").read_text().splitlines()
    assert made.split()[-3:] == ["--python", "/usr/bin/python3", str(venv)]
    for name in REQUIREMENTS[case]:
        assert f"--find-links {mnt}/wheels/{name}" in installed
    assert "--require-hashes" in installed


def test_wheels_with_headers_are_mounted_from_the_component_that_has_them():
    # The compiler's component has crt, too, and then it is there.
    plan = resolve(make_request(framework="pytorch", cuda="cu130", version="2.13.0", with_="cuda-compiler"), CATALOG)
    text = render_dockerfile(plan, CATALOG)
    (step,) = re.findall(r"RUN [^\n]*(?:\\\n[^\n]*)*cuda_headers\.sh /usr/bin/python3", text)
    assert set(re.findall(r"source=requirements/([a-z-]+)\.txt", step)) == {"cuda", "cuda-compiler", "efa"}


# ---- the twin ------------------------------------------------------------------------------------------------------


def test_the_twin_s_plugin_says_as_little_as_upstream_s():
    configure = (SHAPE / "configure.ac").read_text()
    assert f"AC_INIT([aws-ofi-nccl], [{UPSTREAM['1.1.3']['init']}])" in configure
    assert "PACKAGE_" not in "".join(path.read_text() for path in (SHAPE / "src").iterdir())
