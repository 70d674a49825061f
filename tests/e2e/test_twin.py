"""The recipe of AWS's developer guide, executed: every step of the shipped templates runs, on a twin of its inputs.

What stands in for what is printed when the test begins, and told in docs/twin.md.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import image_tests
from tests.support.cuda_faults import COVERED, STUB, STUB_FAIL, TWIN, TWIN_FAIL
from tests.support.planted import failing, planted
from tests.support.skips import short_of
from tests.twin.bases import make_bases
from tests.twin.catalog import FOR_UBUNTU, RULES, SEED, Twin, changed_rules, changed_templates, make_twin, seed_plan
from tests.twin.hosts import two_hosts
from tests.twin.pack import sha256_of, tar_gz, tree
from tests.twin.standins import PYTHON, SHAPES
from trainwright.engine.engine import connect
from trainwright.site.site import load_site

pytestmark = pytest.mark.cuda
FREE_GB = 12
BASE_NAME = "trainwright-twin/cuda"
REQUEST = ("--framework", SEED[0], "--cuda", SEED[1], "--version", SEED[2], "--python", PYTHON)


@dataclass(frozen=True)
class Place:
    """A twin and the words that make the program take it."""

    twin: Twin
    words: tuple[str, ...]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, docker, state) -> Iterator[Place]:
    engine, site = connect(setup=False), load_site()
    root = Path(engine.data_root or "/")
    if short := short_of(FREE_GB, shutil.disk_usage(root if root.exists() else "/").free, "the twin with its cache"):
        pytest.skip(short)
    folder = tmp_path_factory.mktemp("twin")
    try:
        bases = make_bases(engine, site, BASE_NAME, folder)
        twin = make_twin(folder, bases)
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print("\nWhat stands in for what:\n" + twin.table())
        yield Place(twin, _words(twin.catalog, twin.mirror, folder / "trainwright.toml"))
    finally:
        docker("rmi", "--force", f"{BASE_NAME}:runtime", f"{BASE_NAME}:devel", check=False)
        # Build contexts hold links to the same large files.
        for large in (folder, *state.glob("contexts/*/archives/pytorch")):
            shutil.rmtree(large, ignore_errors=True)


def _words(catalog: Path, mirror: Path, site: Path) -> tuple[str, ...]:
    site.write_text(f'artifact_mirror = "{mirror}"\n')
    return ("--catalog", str(catalog), "--site", str(site))


@pytest.fixture(scope="module")
def built(place, program, docker):
    done = program("build", *REQUEST, *place.words, "--smoke", "--json", "--progress", "plain")
    try:
        assert done.code == 0, done.out[-6000:] + done.err[-6000:]
        yield done.json
    finally:
        tags = done.json.get("tags", []) if done.out.startswith("{") else []
        docker("rmi", "--force", *tags, check=False) if tags else None


@pytest.fixture(scope="module")
def python(built, docker):
    """What a script prints in the image."""

    def run(script: str, *options: str) -> str:
        return docker("run", "--rm", "--network", "none", *options, built["tags"][0], "python3", "-c", script)

    return run


def test_the_templates_are_the_shipped_ones(place):
    assert changed_templates(place.twin) == []
    assert sorted(changed_rules(place.twin)) == sorted([*RULES, FOR_UBUNTU])


def test_every_archive_of_the_recipe_has_a_stand_in(place):
    plan, _ = seed_plan()
    wanted = [(c.name, (a.file or "").replace("cp38", "cp39")) for c in plan.components for a in c.archives]
    assert [(each.component, each.file) for each in place.twin.standins] == wanted
    assert {"efa", "nccl", "aws-ofi-nccl", "metis", "rmm", "boost", "pytorch"} <= {name for name, _ in wanted}


def test_the_plan_is_that_of_the_recipe(place, built):
    """The same components from the same providers; versions differ only where Debian 11 has another."""
    plan, _ = seed_plan()
    record = json.loads(Path(built["record"]).read_text())["plan"]
    said = {c["name"]: (c["provider"], c["version"]) for c in record["components"]}
    different = {c.name for c in plan.components if said.pop(c.name) != (c.provider, c.version)}
    assert different == {"python", "ssh", "openmpi"}
    assert said == {}


def test_the_probe_found_what_the_plan_says(built):
    facts = built["probe"]["facts"]
    assert facts["efa"]["version"] == "1.14.1"
    assert facts["cuda"]["version"] == "11.3"
    assert facts["cuda"]["compat"] == "apart"
    assert (facts["nccl"]["version"], facts["nccl"]["copies"]) == ("2.10.3", "1")
    assert facts["nccl"]["version"] == facts["pytorch"]["nccl"]
    assert (facts["aws-ofi-nccl"]["release"], facts["aws-ofi-nccl"]["missing"]) == ("1.1.3", "none")
    assert (facts["pytorch"]["build"], facts["pytorch"]["cuda"]) == ("1.10.2+cu113", "11.3")
    assert facts["openmpi"]["orted"] == "/opt/amazon/openmpi/bin/orted"
    assert facts["smdistributed-modelparallel"]["version"] == "1.7.0"
    assert facts["smdistributed-dataparallel"]["version"] == "1.4.0"
    assert not built["probe"]["compilers"]
    assert not built["probe"]["duplicates"]


def test_smoke_is_all_green(built):
    assert built["smoke"]["failed"] == 0
    rows = json.loads((Path(built["record"]).parent / "smoke.json").read_text())["rows"]
    record = json.loads(Path(built["record"]).read_text())
    planned = [component["name"] for component in record["plan"]["components"]]
    assert len(planned) > 12
    assert image_tests.reported(rows) == image_tests.expected(planned)
    assert all(image_tests.skipped(rows))


@pytest.mark.parametrize(("faults", "expected"), [(TWIN, TWIN_FAIL), (STUB, STUB_FAIL)], ids=["twin", "stub"])
def test_planted_faults_are_found(built, faults, expected, tmp_path):
    folder = Path(built["record"]).parent
    plan, rows = (json.loads((folder / name).read_text()) for name in ("plan.json", "smoke.json"))
    with planted(built["tags"][0], faults, "trainwright-test/planted:twin", tmp_path) as image:
        _, failed = failing(image, plan, tmp_path, COVERED, image_tests.of(rows["rows"], COVERED))
    assert failed == expected


def test_nccl_is_compiled_for_the_gpus_of_the_line(python):
    script = "import ctypes; f = ctypes.CDLL('libnccl.so.2').ncclTwinGencode; f.restype = ctypes.c_char_p; print(f())"
    said = python(script)
    assert "arch=compute_70,code=sm_70" in said
    assert "arch=compute_80,code=sm_80" in said
    assert "compute_60" not in said


def test_the_plugin_loads_and_asks_libfabric(docker, built):
    tag = built["tags"][0]
    listed = docker(
        "run", "--rm", "--network", "none", tag, "sh", "-c", "ldd $(ldconfig -p | sed -n 's/.*libnccl-net.so .*=> //p')"
    )
    assert "libfabric.so.1 => /opt/amazon/efa/lib" in listed
    assert "not found" not in listed


def test_smdistributed_finds_what_it_is_linked_to(python):
    both = "import json, smdistributed.{0}.torch as it; print(json.dumps(it.facts()))"
    # RMM is linked to the driver, which a host brings; the base image's own one plays it.
    found = json.loads(python(both.format("modelparallel"), "--env", "LD_LIBRARY_PATH=/opt/cuda-compat"))
    assert found == {"metis": 1, "rmm": 1500}
    found = json.loads(python(both.format("dataparallel")))
    assert found == {"nccl": 21003, "boost": "filesystem 1_73", "mpi": 3}


def test_nothing_of_the_base_image_is_in_the_way(docker, built):
    """Its driver is off the loader path, its NCCL is gone, and so is the package source whose key nobody has."""
    gone = "/usr/local/cuda/compat /usr/lib/x86_64-linux-gnu/libnccl.so.2"
    look = f"ldconfig -p | grep -c libcuda.so; ls {gone} /etc/apt/sources.list.d"
    seen = docker(
        "run", "--rm", "--network", "none", "--entrypoint", "sh", built["tags"][0], "-c", f"{look} 2>&1; true"
    )
    assert seen.splitlines()[0] == "0", "libcuda of the compat folder is on the loader path"
    assert seen.count("No such file") == 2
    assert "cuda.list" not in seen


RANKS = """
import json, os, socket
import torch
import torch.distributed as dist
from mpi4py import MPI
world = MPI.COMM_WORLD
host = socket.gethostname()  # mpirun hands the SM_ variables of the first host to all
os.environ.update(MASTER_ADDR="algo-1", MASTER_PORT="29600", RANK=str(world.rank), WORLD_SIZE=str(world.size))
os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
dist.init_process_group("gloo")
value = torch.tensor([float(world.rank + 1)])
dist.all_reduce(value)
hosts = world.allgather(host)
with open(os.path.join(os.environ["SM_MODEL_DIR"], f"rank{world.rank}.json"), "w") as out:
    json.dump({"hosts": hosts, "sum": value.item(), "host": host}, out)
dist.destroy_process_group()
"""


def test_a_job_on_two_hosts(built, docker):
    """`train` over MPI, as SageMaker starts it: sshd on both, mpirun on the first, orted on the second."""
    mpi: dict[str, Any] = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 1}
    mpi |= {"sagemaker_mpi_custom_mpi_options": "", "sagemaker_instance_type": "ml.p3.16xlarge"}
    hosts = two_hosts(docker, built["tags"][0], RANKS, mpi)
    for host, ended in hosts.items():
        assert ended.status == 0, (host, ended.said[-3000:])
        assert "output/failure" not in ended.files
    assert "output/success" in hosts["algo-1"].files
    for number, (host, ended) in enumerate(hosts.items()):
        report = json.loads(ended.files[f"model/rank{number}.json"])
        assert report["hosts"] == ["algo-1", "algo-2"]
        assert report["sum"] == 3.0
        assert report["host"] == host


def test_a_second_build_does_nothing(built, place, program):
    again = program("build", *REQUEST, *place.words, "--smoke", "--json")
    assert again.code == 0, again.err[-3000:]
    assert again.json["cached"]
    assert again.json["image_id"] == built["image_id"]


def _linked(mirror: Path, target: Path) -> Path:
    """A second mirror with the files of the first."""
    target.mkdir()
    for path in mirror.iterdir():
        os.link(path, target / path.name)
    return target


def test_other_bytes_than_the_checksum_says_end_with_8(place, program, tmp_path):
    mirror = _linked(place.twin.mirror, tmp_path / "mirror")
    (broken,) = [each for each in place.twin.standins if each.component == "boost"]
    content = broken.path.read_bytes()
    (mirror / broken.file).unlink()
    (mirror / broken.file).write_bytes(content[:-1])
    done = program("build", *REQUEST, *_words(place.twin.catalog, mirror, tmp_path / "site.toml"), "--json")
    assert done.code == 8, done.err[-3000:]
    assert (done.json["component"], done.json["file"]) == ("boost", broken.file)
    assert broken.file in done.err


def test_a_step_that_fails_names_its_component(place, program, tmp_path):
    catalog = tmp_path / "catalog"
    shutil.copytree(place.twin.catalog, catalog)
    mirror = _linked(place.twin.mirror, tmp_path / "mirror")
    (nccl,) = [each for each in place.twin.standins if each.component == "nccl"]
    files = tree(SHAPES / "nccl", {"MAJOR": "2", "MINOR": "10", "PATCH": "3"})
    files["src/init.cc"] += b"\n#error this one does not compile\n"
    (mirror / nccl.file).unlink()
    tar_gz(mirror / nccl.file, "nccl", files)
    path = catalog / "templates/components/nccl/component.yaml"
    data = yaml.safe_load(path.read_text())
    data["providers"]["source"]["versions"]["2.10.3"]["sources"][0]["sha256"] = sha256_of(mirror / nccl.file)
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    done = program("build", *REQUEST, *_words(catalog, mirror, tmp_path / "site.toml"), "--json")
    assert done.code == 5, done.err[-3000:]
    assert done.json["component"] == "nccl"
    assert "this one does not compile" in "".join(done.json["last_lines"])
