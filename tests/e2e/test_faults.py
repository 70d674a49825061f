"""Faults in the middle: nothing half-made keeps a good tag, the answer has a remedy, the next run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.doubles.bridge import delete_bridge
from tests.e2e.conftest import BRIDGE
from tests.support import builds
from trainwright.build.options import BuildOptions
from trainwright.build.store import BuildRecord, all_records
from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import BuildFailed, EngineError, Failure, ProofFailed
from trainwright.engine.engine import connect, find_client
from trainwright.plan.plan import Expectation, Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.site.site import Site, load_site
from trainwright.sources.debian_base import make_base
from trainwright.sources.gather import gather

ROOT = Path(__file__).resolve().parents[2]
TAG = "trainwright-test/fault:1"
BASE, LAYERED = "trainwright-test/fault-base:1", "trainwright-test/fault-base:2"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch, docker):
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))
    yield
    docker("rmi", "--force", TAG, check=False)


def small_plan(catalog: Catalog) -> Plan:
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), catalog)
    return plan.replace(tags=(TAG,))


def build(plan: Plan, catalog: Catalog, site: Site | None = None, *, no_cache: bool = False) -> BuildRecord:
    options = BuildOptions(progress="none", no_cache=no_cache)
    engine = connect(setup=False)
    return builds.build(gather(plan, catalog, site or load_site()), engine, options=options, say=lambda _: None)


def tagged(docker) -> str:
    return docker("images", "--quiet", "--no-trunc", TAG)


def test_a_planted_difference_fails_the_build_and_moves_no_tag(small_catalog, docker):
    plan = small_plan(small_catalog)
    good = build(plan, small_catalog)
    assert tagged(docker) == good.image_id
    wrong = Expectation(component="python", fact="version", value="3.99.*")
    kept = [e for e in plan.expect if (e.component, e.fact) != ("python", "version")]
    lying = plan.replace(expect=(*kept, wrong), environment={**plan.environment, "TW_NEW": "1"})
    with pytest.raises(ProofFailed) as refused:
        build(lying, small_catalog)
    assert refused.value.exit_code == 6
    assert "3.99" in refused.value.message
    assert tagged(docker) == good.image_id
    docker("rmi", refused.value.details["image_id"])


def test_a_library_that_the_plan_does_not_hold_fails_the_build(small_catalog, docker):
    path = small_catalog.components["ssh"].path / "Dockerfile.j2"
    text = path.read_text().replace("{% endmacro %}", "ENV FI_PROVIDER=efa\n{% endmacro %}")
    path.write_text(text)
    with pytest.raises(ProofFailed, match="FI_PROVIDER") as refused:
        build(small_plan(small_catalog), small_catalog)
    assert not tagged(docker)
    docker("rmi", refused.value.details["image_id"])


def test_a_failing_step_names_component_step_and_last_lines(small_catalog, docker):
    path = small_catalog.components["ssh"].path / "Dockerfile.j2"
    good = path.read_text()
    path.write_text(good.replace("{% endmacro %}", "RUN echo the last words; exit 42\n{% endmacro %}"))
    with pytest.raises(BuildFailed) as refused:
        build(small_plan(small_catalog), small_catalog)
    failure = refused.value
    assert failure.exit_code == 5
    assert failure.details["component"] == "ssh"
    assert failure.details["step_exit_code"] == 42
    assert any("the last words" in line for line in failure.details["last_lines"])
    assert Path(failure.details["log"]).is_file()
    assert not tagged(docker)
    path.write_text(good)
    assert build(small_plan(small_catalog), small_catalog).cached_steps > 0


def test_a_wrong_checksum_fails_the_build(small_catalog, docker):
    plan = small_plan(small_catalog)
    python = plan.component("python")
    assert python is not None
    from trainwright.catalog.tools import tools_lock

    tool = next(p for p in tools_lock("3.11").packages if p.name == "setuptools")
    from trainwright.plan.plan import PlannedSource

    wrong = PlannedSource(package=f"{tool.name}=={tool.version}", file=tool.file, sha256="0" * 64)
    changed = python.replace(sources=(wrong,))
    components = tuple(changed if c.name == "python" else c for c in plan.components)
    with pytest.raises(Failure) as refused:
        build(plan.replace(components=components), small_catalog)
    assert refused.value.exit_code == 8
    assert "hash" in str(refused.value.details.get("last_lines", refused.value.message)).lower()
    assert not tagged(docker)


def test_ctrl_c_ends_with_5_and_the_next_run_goes_on(state, environment, docker, tmp_path):
    """Through the program: the signal reaches the builder, which drops what it was at."""
    words = ["build", "--framework", "pytorch", "--cuda", "cpu", "--without", "metis,efa", "--no-cache"]
    script = str(Path(sys.executable).with_name("invoke"))
    own = {**environment, "TRAINWRIGHT_STATE": str(tmp_path / "interrupted")}
    process = subprocess.Popen(
        [script, *words, "--progress", "plain"], cwd=ROOT, env=own, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if "[os 1/1] RUN" in line:
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 5, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not out
    tag = "trainwright/pytorch:2.13.0-cpu-py311-debian12-no-efa-no-metis"
    assert not docker("images", "--quiet", tag)


def test_a_killed_engine_ends_with_4_and_the_next_run_resumes(small_catalog, spare_engine, monkeypatch):
    site = load_site().replace(build_network="host")
    plan = small_plan(small_catalog)
    bridge = Path("/sys/class/net/docker0").exists()
    with spare_engine() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.endpoint)
        # Killed as soon as apt has begun: the base is in the cache by then, the rest is not.
        from threading import Thread

        log = Path(os.environ["TRAINWRIGHT_STATE"]) / "logs" / f"{plan.id[:16]}.log"

        def kill_when_apt_runs() -> None:
            for _ in range(600):
                if log.is_file() and "Reading package lists" in log.read_text(errors="replace"):
                    break
                time.sleep(0.1)
            engine.kill()

        killer = Thread(target=kill_when_apt_runs)
        killer.start()
        with pytest.raises(EngineError) as refused:
            build(plan, small_catalog, site)
        killer.join()
        assert refused.value.exit_code == 4
        assert "doctor" in refused.value.remedy
        engine.start()
        record = build(plan, small_catalog, site)
        assert record.cached_steps >= 1
        assert build(plan, small_catalog, site).cached
    assert Path("/sys/class/net/docker0").exists() == bridge, "the first engine keeps its network"


def test_a_lost_network_ends_with_a_remedy(small_catalog, spare_engine, monkeypatch):
    """The second engine's bridge leads nowhere, so build steps reach nothing; then it is gone as well."""
    with spare_engine() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.endpoint)
        with pytest.raises(BuildFailed) as unreachable:
            build(small_plan(small_catalog), small_catalog)
        delete_bridge(BRIDGE)
        with pytest.raises(BuildFailed) as gone:
            build(small_plan(small_catalog), small_catalog)
    for refused in (unreachable.value, gone.value):
        assert refused.exit_code == 5
        assert refused.details["component"] == "os"
        assert "doctor" in refused.remedy
    assert BRIDGE in gone.value.remedy


def test_an_engine_that_lost_a_layer_ends_with_a_remedy(small_catalog, spare_engine, monkeypatch, tmp_path):
    """The engine itself is brought into that state: cache from before its start is deleted, the layer made again."""
    site = load_site().replace(build_network="host", base_image=LAYERED)
    root = make_base("bookworm", site, say=lambda _: None).path
    (tmp_path / "word").write_text("of the base")
    os.utime(tmp_path / "word", (0, 0))
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nCOPY word /word\n")
    with spare_engine() as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.endpoint)
        monkeypatch.setenv("DOCKER_BUILDKIT", "1")

        def docker(*words: str) -> None:
            subprocess.run([find_client().path, *words], check=True, capture_output=True)

        docker("import", str(root), BASE)
        docker("build", "--tag", LAYERED, str(tmp_path))
        engine.kill()
        engine.start()
        docker("rmi", LAYERED)
        docker("builder", "prune", "--all", "--force")
        docker("build", "--tag", LAYERED, str(tmp_path))
        plan = resolve(make_request(framework="pytorch", cuda="cpu"), small_catalog, LAYERED).replace(tags=(TAG,))
        with pytest.raises(BuildFailed) as refused:
            build(plan, small_catalog, site)
        assert "restart docker" in refused.value.remedy
        engine.kill()
        engine.start()
        assert build(plan, small_catalog, site).image_id, "what the remedy says helps"


def test_a_full_disk_ends_with_a_remedy_and_leaves_no_tag(small_catalog, spare_engine, monkeypatch, docker):
    site = load_site().replace(build_network="host")
    with spare_engine(tmpfs="180m") as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.endpoint)
        with pytest.raises(Failure) as refused:
            build(small_plan(small_catalog), small_catalog, site)
        # In the second engine, which had no image before. What is left of the build may be there without a name.
        named = docker("images", "--all", "--format", "{{.Repository}}:{{.Tag}}").split()
        assert set(named) <= {"<none>:<none>"}
    assert refused.value.exit_code in (4, 5)
    assert "disk" in refused.value.remedy.lower()
    assert all_records() == []
