"""The native stack on NVIDIA's base: what each provider's stages and layers say, for image lines made here."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.catalogs import write_line
from tests.support.dockerfiles import every_dockerfile, of_the_image
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.component import BuildTarget
from trainwright.core.errors import Conflict
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.dockerfile import stages, steps
from trainwright.plan.rendered import render_dockerfile
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

CATALOG = load_catalog()
COMPONENTS: dict[str, Any] = {
    "python": {"provider": "debian", "version": "3.11"},
    "ssh": {"provider": "ubuntu", "version": "8.2"},
    "efa": {"provider": "aws", "version": "1.14.1"},
    "openmpi": {"provider": "source", "version": "4.1.1"},
    "gdrcopy": {"provider": "source", "version": "2.3"},
    "cuda": {"provider": "nvidia", "version": "11.3"},
    "nccl": {"provider": "source", "version": "2.10.3"},
    "aws-ofi-nccl": {"provider": "source", "version": "1.1.3"},
    "pytorch": {"provider": "wheel", "version": "1.10.2"},
}
LINE: dict[str, Any] = {
    "framework": "pytorch",
    "version": "1.10.2",
    "cuda": "11.3",
    "python": "3.11",
    "base": {
        "kind": "nvidia",
        "os": "ubuntu-20.04",
        "image": "nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04",
        "build_image": "nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04",
    },
    "status": "supported",
    "architectures": ["8.0", "7.0"],
    "evidence": [{"source": "this test", "date": "2026-11-21", "says": "nothing"}],
}
Rendered = Callable[..., dict[str, str]]
Made = Callable[..., Catalog]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """``made(line={...}, component={...})``: a catalog of one line; ``None`` leaves a component out."""

    def make(line: dict[str, Any] | None = None, **components: Any) -> Catalog:
        chosen = COMPONENTS | {name.replace("_", "-"): has for name, has in components.items()}
        fields = {**LINE, **(line or {}), "components": {n: c for n, c in chosen.items() if c}}
        if "version" in (line or {}):
            fields["components"]["pytorch"] = {"provider": "wheel", "version": fields["version"]}
        shutil.rmtree(tmp_path / "images", ignore_errors=True)
        write_line(tmp_path / "images", fields, (images_dir() / "pytorch" / "cpu" / "lock.json").read_text())
        return load_catalog(tmp_path / "images", templates_dir())

    return make


@pytest.fixture
def rendered(made: Made) -> Rendered:
    """The text of each stage of the Dockerfile of such a line, and of all of it under no name."""

    def render(line: dict[str, Any] | None = None, **components: Any) -> dict[str, str]:
        catalog = made(line, **components)
        text = render_dockerfile(resolve(make_request(framework="pytorch"), catalog), catalog)
        parts = re.split(r"(?m)^FROM .*? AS (\S+)$", text)
        named = dict(zip(parts[1::2], parts[2::2], strict=True))
        return named | {"": text, "final": named.get("packages", "") + named["final"]}

    return render


def needs(text: str, stage: str) -> set[str]:
    """The stages that a stage is made from."""
    found = next(each for each in stages(text) if each.name == stage)
    return {found.parent, *found.needs}


# The first installer with packages for it.
ON_DEBIAN_12 = {"ssh": {"provider": "debian", "version": "9.2"}, "efa": {"provider": "aws", "version": "1.36.0"}}

# ---- efa and openmpi -----------------------------------------------------------------------------------------------


def kept(text: str) -> str:
    match = re.search(r"-run sh /mnt/efa/install.sh '(.*?)' ", text)
    assert match
    return match[1]


def test_one_mpi_and_one_plugin(rendered):
    made = rendered()
    assert kept(made["final"]) == kept(made["efa"]) == ""
    made = rendered(openmpi={"provider": "efa", "version": "4.1.1"})
    assert kept(made["final"]) == kept(made["efa"]) == "openmpi"
    assert "openmpi" not in made
    made = rendered(
        efa={"provider": "aws", "version": "1.38.0"},
        openmpi={"provider": "efa", "version": "4.1.7"},
        aws_ofi_nccl={"provider": "efa", "version": "1.13.2"},
    )
    assert kept(made["final"]) == "openmpi aws-ofi-nccl"
    assert "aws-ofi-nccl" not in made
    made = rendered(efa={"provider": "aws", "version": "1.38.0"}, aws_ofi_nccl=None)
    assert kept(made["final"]) == "", "a plugin that the plan does not name is not in the image"


def test_installer_reads_the_site_s_sources_with_fresh_lists(rendered):
    run = next(
        s.instruction for s in steps(rendered()[""]) if s.stage == "packages" and "efa/install.sh" in s.instruction
    )
    assert "/mnt/apt-run sh /mnt/efa/install.sh " in run
    assert "--mount=type=secret,id=apt-sources,target=/mnt/apt-sources" in run
    assert "--mount=type=cache,id=trainwright-apt,target=/mnt/cache," in run


def test_installer_runs_with_dnf_on_amazon_linux(rendered):
    amazon = {**LINE["base"], "os": "amazonlinux-2023"}
    made = rendered(
        {"base": amazon},
        ssh={"provider": "amazon", "version": "8.7"},
        efa={"provider": "aws", "version": "1.49.0"},
        aws_ofi_nccl={"provider": "efa", "version": "1.20.0"},
    )
    assert "apt" not in re.sub("(?m)^#.*", "", made[""])
    assert "/mnt/dnf-run sh /mnt/efa/install.sh " in made["final"]
    assert "dpkg" not in made["final"]
    assert "cd /opt/amazon/ofi-nccl/lib64" in made["final"]
    assert "sh /mnt/install.sh 00-sagemaker.conf" in made["final"]


@pytest.mark.parametrize(("version", "is_verified"), [("1.47.0", False), ("1.48.0", True), ("1.51.0", True)])
def test_signature_where_there_is_no_checksum(rendered, version, is_verified):
    jammy = {"base": {**LINE["base"], "os": "ubuntu-22.04"}}
    stage = rendered(jammy, efa={"provider": "aws", "version": version}, aws_ofi_nccl=None)["efa-archive"]
    command = f"sh /mnt/verify.sh aws-efa-installer-{version}.tar.gz 4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
    assert (command in stage) is is_verified
    assert stage.count(" fetch aws") == (3 if is_verified else 1)
    assert stage.count("unpack ") == 1
    assert "unpack " in stage.split(command)[-1], "nothing is unpacked before it is verified"


def test_no_provider_of_libfabric_is_forced(rendered):
    assert "FI_PROVIDER" not in rendered()[""]
    assert "RDMAV_FORK_SAFE=1" in rendered()["final"]


@pytest.mark.parametrize(
    ("version", "kind", "has_cuda"),
    [("1.10.2", "nvidia", False), ("1.11.0", "nvidia", True), ("2.1.0", "nvidia", True), ("2.1.0", "debian", False)],
)
def test_openmpi_knows_cuda_as_aws_has_it(rendered, version, kind, has_cuda):
    base = LINE["base"] if kind == "nvidia" else "debian-12"
    others = {} if kind == "nvidia" else ON_DEBIAN_12
    cuda = "12.1" if version.startswith("2") else "11.3"
    made = rendered({"version": version, "cuda": cuda, "base": base}, **others)
    assert ("--with-cuda=/usr/local/cuda" in made["openmpi"]) is has_cuda
    assert "--enable-orterun-prefix-by-default" in made["openmpi"]


@pytest.mark.parametrize(("version", "folder"), [("4.0.4", "v4.0"), ("4.1.8", "v4.1")])
def test_openmpi_archives(version, folder):
    provider = CATALOG.components["openmpi"].component.providers["source"]
    (source,) = provider.sources_for(version, BuildTarget("pytorch", "1.10.2", "11.3", "3.8")) or ()
    assert source.url == f"https://download.open-mpi.org/release/open-mpi/{folder}/openmpi-{version}.tar.bz2"


def test_openmpi_5_is_not_on_offer():
    for provider in CATALOG.components["openmpi"].component.providers.values():
        assert all(version.startswith("4.") for version in provider.versions)


def test_mca_keys_are_set_in_the_file_alone(rendered):
    made = rendered()
    assert "/mnt/mca_params.sh /opt/amazon/openmpi " in made["openmpi"]
    assert "OMPI_MCA_" not in made[""]


@pytest.mark.parametrize("before", [None, "", "btl = tcp", "  hwloc_base_binding_policy=core\nbtl = tcp\n"])
def test_mca_keys_are_in_the_file_once(tmp_path, before):
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "openmpi-mca-params.conf"
    if before is not None:
        file.write_text(before)
    script = templates_dir() / "components" / "openmpi" / "mca_params.sh"
    for _ in range(2):
        subprocess.run(["sh", script, tmp_path], check=True)
    own = ["hwloc_base_binding_policy = none", "rmaps_base_mapping_policy = slot"]
    assert file.read_text().splitlines() == (["btl = tcp"] if before else []) + own


# ---- nccl and its plugin -------------------------------------------------------------------------------------------


def test_nccl_is_compiled_for_the_line_s_architectures(rendered):
    code = re.search(r'NVCC_GENCODE="(.*?)"', rendered()["nccl"])
    assert code
    assert code[1].split() == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_70,code=sm_70",
        "-gencode=arch=compute_80,code=compute_80",
    ]


@given(
    numbers=st.lists(
        st.sampled_from(["5.2", "7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0"]), min_size=1, unique=True
    )
)
def test_ptx_is_that_of_the_newest(numbers):
    loader = jinja2.FileSystemLoader([templates_dir() / "components", templates_dir()])
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    environment.filters["filled"] = str
    template = environment.get_template("macros.j2")
    words = str(template.make_module({"plan": None}).gencode(numbers)).split()
    newest = max(numbers, key=float).replace(".", "")
    assert words[-1] == f"-gencode=arch=compute_{newest},code=compute_{newest}"
    assert len(words) == len(numbers) + 1
    assert all(f"code=sm_{number.replace('.', '')}" in " ".join(words) for number in numbers)


def test_nccl_without_architectures_is_refused_and_not_compiled_for_all(rendered):
    with pytest.raises(Conflict, match="architectures"):
        rendered({"architectures": []})


def test_lines_that_compile_for_gpus_name_them():
    for entry in CATALOG.lines:
        nccl = entry.line.components.get("nccl")
        if nccl and nccl.provider == "source":
            assert entry.line.architectures, entry.path


def test_the_base_s_own_nccl_goes(rendered):
    assert "remove_base" not in rendered(nccl={"provider": "nvidia", "version": "2.10.3"})["final"]
    assert "/mnt/remove_base.sh" in rendered()["final"]
    wheel = {"provider": "wheel", "version": "2.10.3"}
    plugin = {"provider": "source", "version": "1.5.0"}
    assert "/mnt/remove_base.sh" in rendered(nccl=wheel, aws_ofi_nccl=plugin)["final"]
    assert "remove_base" not in rendered({"base": "debian-12"}, **ON_DEBIAN_12)["final"]


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("1.1.1", "--with-nccl=/opt/nccl", "--enable-platform-aws"),
        ("1.4.0", "--with-nccl=/opt/nccl", "--enable-platform-aws"),
        ("1.5.0", "--disable-static", "--with-nccl"),
        ("1.6.0", "--enable-platform-aws --disable-tests", "--with-nccl"),
        ("1.12.1", "--enable-platform-aws --disable-tests", "--with-nccl"),
    ],
)
def test_options_of_the_plugin(rendered, version, has, lacks):
    stage = rendered(aws_ofi_nccl={"provider": "source", "version": version})["aws-ofi-nccl"]
    assert "--with-libfabric=/opt/amazon/efa --with-mpi=/opt/amazon/openmpi" in stage
    assert has in stage
    assert lacks not in stage


def test_plugin_is_compiled_where_everything_is_that_it_is_compiled_against(rendered):
    made = rendered()
    assert needs(made[""], "aws-ofi-nccl") == {"efa", "nccl", "openmpi"}
    own = rendered(openmpi={"provider": "efa", "version": "4.1.1"}, nccl={"provider": "nvidia", "version": "2.10.3"})
    assert needs(own[""], "aws-ofi-nccl") == {"efa"}
    assert "--with-nccl=/usr\n" in own["aws-ofi-nccl"].replace(" \\\n", "\n")


@pytest.mark.parametrize(
    ("version", "url"),
    [
        ("1.1.1", "archive/v1.1.1.tar.gz"),
        ("1.1.3", "archive/v1.1.3-aws.tar.gz"),
        ("1.6.0", "archive/v1.6.0.tar.gz"),
        ("1.7.1", "archive/v1.7.1-aws.tar.gz"),
        ("1.13.0", "archive/v1.13.0-aws.tar.gz"),
        ("1.14.0", "archive/v1.14.0.tar.gz"),
        ("1.19.0", "releases/download/v1.19.0/aws-ofi-nccl-1.19.0.tar.gz"),
    ],
)
def test_archives_of_the_plugin(version, url):
    provider = CATALOG.components["aws-ofi-nccl"].component.providers["source"]
    (source,) = provider.sources_for(version, BuildTarget("pytorch", "1.10.2", "11.3", "3.8")) or ()
    assert source.url == f"https://github.com/aws/aws-ofi-nccl/{url}"


@pytest.mark.parametrize(
    ("version", "folder"),
    [("1.13.2", "lib/x86_64-linux-gnu"), ("1.16.3", "lib/x86_64-linux-gnu"), ("1.17.1", "lib"), ("1.22.0", "lib")],
)
def test_folder_of_the_installer_s_plugin(version, folder):
    provider = CATALOG.components["aws-ofi-nccl"].component.providers["efa"]
    assert provider.values_for(version)["folder"] == folder


# ---- cuda, gdrcopy, ssh --------------------------------------------------------------------------------------------


def test_start_up_serves_both_contracts(rendered):
    text = of_the_image(rendered()[""])
    assert '\nENTRYPOINT ["/usr/local/bin/cuda-compat"]\n' in text
    assert text.index("ENV BASH_ENV=") > text.rindex("\nRUN "), (
        "no step of a build may decide for the machine that builds"
    )


def test_other_bases_have_no_start_up_program():
    for text in every_dockerfile("pytorch/cu124").values():
        assert "cuda-compat" not in text


def test_gdrcopy_is_the_library_alone(rendered):
    stage = rendered()["gdrcopy"]
    assert re.findall(r"make .* (\w+) \\", stage) == ["lib", "lib_install"]


@pytest.mark.parametrize(("version", "name"), [("7.6", ""), ("8.2", "sagemaker.conf")])
def test_ssh_without_folders_of_settings(rendered, version, name):
    final = rendered(ssh={"provider": "ubuntu", "version": version})["final"]
    assert re.search(r"sh /mnt/install\.sh (\S*) ?&& ", final)[1] == name


@pytest.mark.parametrize("name", ["", "sagemaker.conf"])
def test_settings_of_ssh_are_a_file_of_their_own_or_come_first(tmp_path, name):
    """The script of the step, with folders of its own; dpkg-divert moves the program as Debian's does."""
    folders = {folder: tmp_path / folder.strip("/") for folder in ("/mnt", "/etc", "/usr/sbin", "/usr/lib", "/run")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    shutil.copytree(templates_dir() / "components" / "ssh", folders["/mnt"], dirs_exist_ok=True)
    for folder in ("ssh/ssh_config.d", "ssh/sshd_config.d", "pam.d"):
        (folders["/etc"] / folder).mkdir(parents=True)
    for file in ("ssh_config", "sshd_config"):
        (folders["/etc"] / "ssh" / file).write_text("# the distribution's\n")
    (folders["/etc"] / "pam.d" / "sshd").write_text("session    required     pam_loginuid.so\n")
    (folders["/usr/sbin"] / "sshd").write_text("the server\n")
    text = (folders["/mnt"] / "install.sh").read_text()
    script = re.sub(r"(?<![\w.])(/mnt|/etc|/usr/sbin|/usr/lib|/run)\b", lambda found: str(folders[found[1]]), text)
    script = script.replace("command -v dpkg-divert", "false")
    subprocess.run(["sh", "-c", script, "install.sh", *([name] if name else [])], check=True)
    assert (folders["/usr/lib"] / "openssh" / "sshd").read_text() == "the server\n"
    assert "ssh-keygen" in (folders["/usr/sbin"] / "sshd").read_text()
    assert (folders["/etc"] / "pam.d" / "sshd").read_text() == "session optional pam_loginuid.so\n"
    own = (templates_dir() / "components" / "ssh" / "sshd_config").read_text()
    settings = folders["/etc"] / "ssh"
    if name:
        assert (settings / "sshd_config.d" / name).read_text() == own
        assert (settings / "sshd_config").read_text() == "# the distribution's\n"
    else:
        assert (settings / "sshd_config").read_text() == own + "# the distribution's\n"


# ---- what one archive brings changes together ----------------------------------------------------------------------

BUNDLED = {
    "efa": {"provider": "aws", "version": "1.43.1"},
    "openmpi": {"provider": "efa", "version": "4.1.7"},
    "aws_ofi_nccl": {"provider": "efa", "version": "1.16.2"},
}
JAMMY = {"base": {**LINE["base"], "os": "ubuntu-22.04"}}


@pytest.mark.parametrize(
    ("pins", "rows"),
    [
        (["efa=1.41.0"], {"openmpi is tied to efa", "aws-ofi-nccl is tied to efa"}),
        (["aws-ofi-nccl=1.17.1"], {"aws-ofi-nccl is tied to efa"}),
        (["openmpi=4.1.6"], {"openmpi is tied to efa"}),
    ],
)
def test_another_installer_brings_other_versions(made, pins, rows):
    catalog = made(JAMMY, **BUNDLED)
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework="pytorch", set_=pins), catalog)
    told = {row["constraint"] for row in refused.value.details["rows"]}
    assert told & rows
    assert told <= {f"--set {pin}" for pin in pins} | rows | {"--framework pytorch"}


def test_an_installer_with_what_it_brings(made):
    catalog = made(JAMMY, **BUNDLED)
    pins = ["efa=1.44.0", "openmpi=4.1.7", "aws-ofi-nccl=1.17.1"]
    plan = resolve(make_request(framework="pytorch", set_=pins), catalog)
    assert {c.name: c.version for c in plan.components}.items() >= {"efa": "1.44.0", "aws-ofi-nccl": "1.17.1"}.items()
    assert resolve(make_request(framework="pytorch", set_=["efa=1.44.0"]), catalog).id == plan.id
    same = resolve(make_request(framework="pytorch", set_=["efa=1.43.1"]), catalog)
    assert same.component("efa").version == "1.43.1"
