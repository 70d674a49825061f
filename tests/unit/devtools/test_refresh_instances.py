"""How the table of instance types is made: reading the packages, merging what they say. No network."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools import instance_claims, instance_merge
from devtools import refresh_instances as refresh
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.runner import Completed
from trainwright.sagemaker.instances import (
    InstanceCorrection,
    read_table,
)

FACTS: instance_claims.Facts = {"gpus": 4, "efa": 1, "vcpus": 32, "memory_gib": 244, "architecture": "x86_64"}


# --- from claims to the table ---------------------------------------------------------------------------------------


def correction(source: str, name: str, field: str, says: Any, taken: Any) -> InstanceCorrection:
    return InstanceCorrection(source=source, instances=(name,), field=field, says=says, taken=taken, why="because")


def faults(
    valid: Sequence[str],
    claims: instance_claims.Claims,
    corrections: Sequence[InstanceCorrection] = (),
    strict: Sequence[str] = (),
) -> list[str]:
    with pytest.raises(RequestError) as refused:
        instance_merge.merge(valid, claims, corrections, training_only=strict)
    listed: list[str] = refused.value.details["faults"]
    assert all(fault in refused.value.message for fault in listed)
    return listed


def test_sources_complete_each_other() -> None:
    claims: instance_claims.Claims = {
        "one": {"ml.a.xlarge": {"gpus": 4, "gpu": "X"}, "ml.not-for-training.xlarge": {"gpus": 9}},
        "two": {"ml.a.xlarge": FACTS, "ml.b.xlarge": {**FACTS, "gpus": 0, "neuron_devices": 2, "neuron_cores": 4}},
        "three": {"ml.a.xlarge": {"toolkit_efa": True}},
    }
    table = instance_merge.merge(["ml.b.xlarge", "ml.a.xlarge"], claims)
    assert list(table) == ["ml.a.xlarge", "ml.b.xlarge"]
    first, second = table.values()
    assert (first.gpus, first.gpu, first.memory_gib, first.toolkit_efa, first.toolkit_rdma) == (
        4,
        "X",
        244,
        True,
        False,
    )
    assert first.sources == ("one", "two", "three")
    assert (second.accelerator, second.neuron_cores, second.sources) == ("neuron", 4, ("two",))


def test_every_contradiction_is_listed() -> None:
    claims: instance_claims.Claims = {
        "one": {"ml.a.xlarge": FACTS, "ml.b.xlarge": FACTS},
        "two": {"ml.a.xlarge": {"gpus": 8, "memory_gib": 244.0}, "ml.b.xlarge": {"efa": 0}},
    }
    assert faults(["ml.a.xlarge", "ml.b.xlarge"], claims) == [
        "ml.a.xlarge: gpus is 4 (one), 8 (two)",
        "ml.b.xlarge: efa is 1 (one), 0 (two)",
    ]


def test_what_is_missing_or_cannot_be_is_listed() -> None:
    claims: instance_claims.Claims = {
        "one": {
            "ml.a.xlarge": {"gpus": 4},
            "ml.b.xlarge": {**FACTS, "neuron_devices": 2},
            "ml.c.xlarge": {**FACTS, "efa": 0},
            "ml.d.xlarge": FACTS,
        },
        "two": {"ml.c.xlarge": {"toolkit_efa": True}, "ml.d.xlarge": {"toolkit_rdma": True}},
    }
    assert faults(["ml.a.xlarge", "ml.b.xlarge", "ml.c.xlarge", "ml.d.xlarge"], claims) == [
        "ml.a.xlarge: no source says efa",
        "ml.a.xlarge: no source says vcpus",
        "ml.a.xlarge: no source says memory_gib",
        "ml.a.xlarge: no source says architecture",
        "ml.b.xlarge: no source says neuron_cores",
        "ml.c.xlarge: efa is 0, but sagemaker-training treats it as an EFA type",
        "ml.d.xlarge: sagemaker-training sets RDMA for it, but not EFA",
    ]
    assert "ml.z.xlarge: no source says gpus" in faults(["ml.z.xlarge"], claims)


def test_a_name_that_is_no_training_type_is_a_typing_error_of_the_source() -> None:
    claims: instance_claims.Claims = {"one": {"ml.a.xlarge": FACTS, "ml.an.xlarge": FACTS}}
    expected = ["one names ml.an.xlarge, which is no training instance type"]
    assert faults(["ml.a.xlarge"], claims, strict=["one"]) == expected
    assert list(instance_merge.merge(["ml.a.xlarge"], claims)) == ["ml.a.xlarge"]


def test_corrections_change_a_name_then_a_value_and_leave_the_claims_alone() -> None:
    claims: instance_claims.Claims = {"one": {"ml.an.xlarge": {"gpus": 1}}, "two": {"ml.a.xlarge": FACTS}}
    both = [
        correction("one", "ml.an.xlarge", "name", "ml.an.xlarge", "ml.a.xlarge"),
        correction("one", "ml.a.xlarge", "gpus", 1, 4),
    ]
    assert instance_merge.merge(["ml.a.xlarge"], claims, both, training_only=["one"])["ml.a.xlarge"].sources == (
        "one",
        "two",
    )
    assert claims["one"] == {"ml.an.xlarge": {"gpus": 1}}


@pytest.mark.parametrize(
    ("stale", "fault"),
    [
        (correction("one", "ml.a.xlarge", "efa", 0, 1), "nothing to correct: one, ml.a.xlarge, efa: it says 1"),
        (correction("one", "ml.q.xlarge", "efa", 0, 1), "nothing to correct: one, ml.q.xlarge, efa: it is not there"),
        (correction("nil", "ml.a.xlarge", "efa", 0, 1), "nothing to correct: nil, ml.a.xlarge, efa: it is not there"),
        (
            correction("one", "ml.b.xlarge", "name", "ml.b.xlarge", "ml.a.xlarge"),
            "must go: one has ml.a.xlarge besides",
        ),
    ],
)
def test_a_correction_that_is_not_needed_any_more_is_a_fault(stale: InstanceCorrection, fault: str) -> None:
    listed = faults(["ml.a.xlarge"], {"one": {"ml.a.xlarge": FACTS, "ml.b.xlarge": FACTS}}, [stale])
    assert len(listed) == 1
    assert fault in listed[0]


def test_names_are_in_the_order_of_their_numbers() -> None:
    names = ["ml.p3.16xlarge", "ml.p3.2xlarge", "ml.p10.xlarge", "ml.p3.8xlarge"]
    table = instance_merge.merge(names, {"one": dict.fromkeys(names, FACTS)})
    assert list(table) == ["ml.p3.2xlarge", "ml.p3.8xlarge", "ml.p3.16xlarge", "ml.p10.xlarge"]


@given(
    st.dictionaries(
        st.sampled_from(["one", "two", "three"]),
        st.fixed_dictionaries({"gpus": st.integers(0, 2)}, optional={"efa": st.integers(0, 1)}),
        min_size=1,
    )
)
def test_a_table_is_made_exactly_where_all_sources_agree(said: dict[str, instance_claims.Facts]) -> None:
    claims: dict[str, dict[str, instance_claims.Facts]] = {
        source: {"ml.a.xlarge": facts} for source, facts in said.items()
    }
    claims["rest"] = {"ml.a.xlarge": {"vcpus": 1, "memory_gib": 0.5, "architecture": "x86_64"}}
    agreed = all(len({facts[field] for facts in said.values() if field in facts}) == 1 for field in ("gpus", "efa"))
    if agreed:
        each = instance_merge.merge(["ml.a.xlarge"], claims)["ml.a.xlarge"]
        assert all(getattr(each, field) == value for facts in said.values() for field, value in facts.items())
    else:
        assert faults(["ml.a.xlarge"], claims)


# --- reading the packages -------------------------------------------------------------------------------------------


def test_constants_are_read_without_running_the_module() -> None:
    module = b"import no_such_module\nA: int = 1\nB = C = ['x', 'y']\nD = len(B)\nraise SystemExit\n"
    assert instance_claims.constant(module, "C") == ["x", "y"]
    with pytest.raises(RequestError, match="no constant Z"):
        instance_claims.constant(module, "Z")
    with pytest.raises(RequestError, match="D is no literal"):
        instance_claims.constant(module, "D")


def test_core_says_count_and_memory_of_one_gpu() -> None:
    same = {"ml.a.xlarge": {"Count": 4, "TotalGpuMemoryInMiB": 65536}}
    table = {"here": same, "there": same}
    assert instance_claims.claims_of_core(json.dumps(table).encode()) == {
        "ml.a.xlarge": {"gpus": 4, "gpu_memory_gib": 16}
    }
    table["there"] = {"ml.a.xlarge": {"Count": 8, "TotalGpuMemoryInMiB": 65536}}
    with pytest.raises(RequestError, match=r"ml\.a\.xlarge differs between regions"):
        instance_claims.claims_of_core(json.dumps(table).encode())


EC2: dict[str, Any] = {
    "NetworkInfo": {"EfaSupported": False},
    "VCpuInfo": {"DefaultVCpus": 8},
    "MemoryInfo": {"SizeInMiB": 7680},
    "ProcessorInfo": {"SupportedArchitectures": ["i386", "x86_64"]},
}
GPUS = {"GpuInfo": {"Gpus": [{"Count": 4, "Name": "A10G", "MemoryInfo": {"SizeInMiB": 22888}}]}}
EFA = {"NetworkInfo": {"EfaSupported": True, "EfaInfo": {"MaximumEfaInterfaces": 3}}}
CHIPS = {"NeuronInfo": {"NeuronDevices": [{"Count": 16, "CoreInfo": {"Count": 2}, "MemoryInfo": {"SizeInMiB": 1}}]}}


def test_moto_says_what_ec2_answered() -> None:
    table = {"c.large": EC2, "g.large": EC2 | GPUS | EFA, "t.large": EC2 | CHIPS}
    claims = instance_claims.claims_of_moto(gzip.compress(json.dumps(table).encode()))
    cpu: instance_claims.Facts = {
        **{"gpus": 0, "neuron_devices": 0, "neuron_cores": 0, "efa": 0},
        **{"vcpus": 8, "memory_gib": 7.5, "architecture": "x86_64"},
    }
    assert claims == {
        "ml.c.large": cpu,
        "ml.g.large": {**cpu, "gpus": 4, "gpu": "A10G", "gpu_memory_gib": 22.35, "efa": 3},
        "ml.t.large": {**cpu, "neuron_devices": 16, "neuron_cores": 32},
    }


# --- the whole refresh, with made-up packages -----------------------------------------------------------------------


class Index:
    """Stands in for pip: knows the newest version of made-up packages and writes their archives."""

    def __init__(self, table: Path) -> None:
        self.newest = {
            **{"botocore": "1.9", "moto": "9.0", "sagemaker-core": "2.0"},
            **{"sagemaker-hyperpod": "3.0", "sagemaker-training": "5.0"},
        }
        self.asked: list[str] = []
        self.gpus_of_hyperpod = 8
        self.remark = ""
        self.table = table

    def run(self, argv: Sequence[str], **_options: float) -> Completed:
        """``pip download`` of one requirement."""
        assert argv[1:3] == ["-m", "pip"]
        assert "download" in argv
        assert "--no-deps" in argv
        folder, wanted = Path(argv[argv.index("-d") + 1]), argv[-1]
        self.asked.append(wanted)
        package, _, version = wanted.partition("==")
        if package not in self.newest:
            return Completed(tuple(argv), 1, "", f"ERROR: No matching distribution found for {wanted}", 0.1)
        self._archive(folder, package, version or self.newest[package])
        return Completed(tuple(argv), 0, "", "", 0.1)

    def _archive(self, folder: Path, package: str, version: str) -> None:
        member, content = self._content(package, version)
        file = f"{package.replace('-', '_')}-{version}"
        if package == "sagemaker-training":
            with (
                # gzip writes the time into its header; the same archive made a second later must be the same file.
                gzip.GzipFile(folder / f"{file}.tar.gz", "wb", mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w") as sdist,
            ):
                info = tarfile.TarInfo(f"{file}/{member}")
                info.size = len(content)
                sdist.addfile(info, io.BytesIO(content))
            return
        with zipfile.ZipFile(folder / f"{file}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(zipfile.ZipInfo(member), content)
            wheel.writestr(zipfile.ZipInfo("remark.txt"), self.remark)

    def _content(self, package: str, version: str) -> tuple[str, bytes]:
        if package == "botocore":
            shapes = {"TrainingInstanceType": {"enum": ["ml.p9.large", "ml.p1.large", "ml.c1.large"]}}
            model = gzip.compress(json.dumps({"shapes": shapes}).encode(), mtime=0)
            return "botocore/data/sagemaker/2017-07-24/service-2.json.gz", model
        if package == "moto":
            types = {"c1.large": EC2, "p9.large": EC2 | GPUS | EFA}
            if version == "5.1.0":  # what it says of a type that the newest release knows counts for nothing
                types = {"p1.large": EC2 | GPUS, "p9.large": EC2}
            return "moto/ec2/resources/instance_types.json.gz", gzip.compress(json.dumps(types).encode(), mtime=0)
        if package == "sagemaker-core":
            table = {"here": {"ml.p9n.large": {"Count": 4, "TotalGpuMemoryInMiB": 4 * 22888}}}
            return "sagemaker/core/image_uri_config/instance_gpu_info.json", json.dumps(table).encode()
        if package == "sagemaker-hyperpod":
            said = {"cpu": 8, "gpu": self.gpus_of_hyperpod, "trainium": 0, "memory": 7.5, "efa": 3}
            return (
                "sagemaker/hyperpod/training/constants.py",
                f"INSTANCE_RESOURCES = {{'ml.p9.large': {said}}}".encode(),
            )
        lists = "SM_EFA_NCCL_INSTANCES = ['ml.p9.large']\nSM_EFA_RDMA_INSTANCES = []\n"
        return "src/sagemaker_training/__init__.py", lists.encode()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Made-up packages whose table goes into a temporary file."""
    made = Index(tmp_path / "instances.json")
    fix = (
        correction("sagemaker-core", "ml.p9n.large", "name", "ml.p9n.large", "ml.p9.large"),
        correction("sagemaker-hyperpod", "ml.p9.large", "gpus", 8, 4),
    )
    monkeypatch.setattr(refresh, "run", made.run)
    monkeypatch.setattr(refresh, "PATH", made.table)
    monkeypatch.setattr(refresh, "CORRECTIONS", fix)
    return made


def test_a_refresh_takes_the_newest_and_writes_where_all_came_from(index: Index) -> None:
    refresh.refresh_instances()
    expected = ["botocore", "moto", "moto==5.1.0", "sagemaker-core", "sagemaker-hyperpod", "sagemaker-training"]
    assert index.asked == expected
    table = read_table(index.table)
    assert list(table.instances) == ["ml.c1.large", "ml.p1.large", "ml.p9.large"]
    newest, retired = table.instances["ml.p9.large"], table.instances["ml.p1.large"]
    assert newest.sources == ("moto", "sagemaker-core", "sagemaker-hyperpod", "sagemaker-training")
    assert (newest.gpus, newest.gpu, newest.gpu_memory_gib, newest.efa) == (4, "A10G", 22.35, 3)
    assert (newest.toolkit_efa, newest.toolkit_rdma) == (True, False)
    assert retired.sources == ("moto-retired",)
    training = table.provenance.sources["sagemaker-training"]
    assert (training.version, training.file) == ("5.0", "sagemaker_training-5.0.tar.gz")
    assert training.member == "sagemaker_training-5.0/src/sagemaker_training/__init__.py"
    assert len(table.provenance.corrections) == 2


def test_a_check_uses_the_recorded_versions_and_changes_nothing(index: Index) -> None:
    refresh.refresh_instances()
    index.newest["moto"] = "10.0"
    index.asked.clear()
    refresh.refresh_instances(check=True)
    assert index.asked == [
        *("botocore==1.9", "moto==9.0", "moto==5.1.0", "sagemaker-core==2.0", "sagemaker-hyperpod==3.0"),
        "sagemaker-training==5.0",
    ]
    edited = index.table.read_text().replace('"gpus": 4, "gpu": "A10G"', '"gpus": 3, "gpu": "A10G"')
    index.table.write_text(edited)
    with pytest.raises(RequestError, match=r"(?s)is stale:.*\"gpus\": 3") as stale:
        refresh.refresh_instances(check=True)
    assert "refresh-instances" in stale.value.remedy
    assert index.table.read_text() == edited


def test_a_check_without_a_file_says_so(index: Index) -> None:
    with pytest.raises(RequestError, match="no such file"):
        refresh.refresh_instances(check=True)
    assert index.asked == []


def test_a_check_refuses_an_archive_with_another_checksum(index: Index) -> None:
    refresh.refresh_instances()
    index.remark = "something else under the same name"
    with pytest.raises(SourceError, match=r"botocore-1\.9-py3-none-any\.whl: the sha256 is"):
        refresh.refresh_instances(check=True)


def test_a_contradiction_leaves_the_file_alone(index: Index) -> None:
    refresh.refresh_instances()
    before = index.table.read_bytes()
    index.gpus_of_hyperpod = 2
    with pytest.raises(RequestError) as refused:
        refresh.refresh_instances()
    assert refused.value.details["faults"] == [
        "a correction has nothing to correct: sagemaker-hyperpod, ml.p9.large, gpus: it says 2",
        "ml.p9.large: gpus is 4 (moto), 4 (sagemaker-core), 2 (sagemaker-hyperpod)",
    ]
    assert index.table.read_bytes() == before


def test_an_index_without_the_package_is_a_source_error(index: Index) -> None:
    del index.newest["sagemaker-hyperpod"]
    with pytest.raises(SourceError, match="could not download sagemaker-hyperpod:\nERROR: No matching"):
        refresh.refresh_instances()
    assert not index.table.exists()


def test_a_package_that_looks_different_is_named(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_content", lambda *_: ("elsewhere.json", b"{}"))
    with pytest.raises(SourceError, match=r"botocore-1\.9-py3-none-any\.whl has no botocore/data"):
        refresh.refresh_instances()
    member = "botocore/data/sagemaker/2017-07-24/service-2.json.gz"
    monkeypatch.setattr(index, "_content", lambda *_: (member, gzip.compress(b"{}")))
    with pytest.raises(RequestError, match=r"botocore-1\.9-py3-none-any\.whl: .* is not as it was: KeyError"):
        refresh.refresh_instances()


def test_the_last_of_several_api_versions_is_read(tmp_path: Path) -> None:
    archive = tmp_path / "botocore-1.9-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        for date in ("2030-01-01", "2017-07-24"):
            wheel.writestr(f"botocore/data/sagemaker/{date}/service-2.json.gz", date)
    name, content = refresh.read_member(archive, "botocore/data/sagemaker/*/service-2.json.gz")
    assert content == b"2030-01-01"
    assert "2030" in name
