"""Instance types: the shipped table, looking names up, how the table is made of several packages. No network."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools import refresh_instances as refresh
from trainwright.core.errors import RequestError, SourceError
from trainwright.core.runner import Completed
from trainwright.sagemaker.instances import (
    PATH,
    InstanceCorrection,
    instance,
    load_instances,
    read_table,
    shipped_table,
)

NAMES = sorted(load_instances())
FACTS: refresh.Facts = {"gpus": 4, "efa": 1, "vcpus": 32, "memory_gib": 244, "architecture": "x86_64"}


# --- the shipped table ----------------------------------------------------------------------------------------------


def test_every_training_type_is_there() -> None:
    kinds = Counter(each.accelerator for each in load_instances().values())
    assert kinds == {None: 163, "gpu": 58, "neuron": 4}  # 225, of which 62 have an accelerator


ACCELERATED = {
    *("g4dn", "g5", "g6", "g6e", "g7", "g7e"),
    *("p2", "p3", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200"),
    *("trn1", "trn1n", "trn2"),
}


def test_a_type_has_accelerators_where_its_family_has() -> None:
    """A GPU type that no source knows would otherwise pass for a CPU type."""
    for name, each in load_instances().items():
        assert (each.accelerator is not None) == (each.family in ACCELERATED), name
        assert not (each.gpus and each.neuron_devices), name
        assert (each.neuron_cores > 0) == (each.neuron_devices > 0), name
        if name != "ml.p6e-gb200.36xlarge":  # in no source that has names and memory
            assert (each.gpu is not None) == (each.gpu_memory_gib is not None) == (each.gpus > 0), name


@pytest.mark.parametrize(
    ("name", "gpus", "neuron_devices", "efa"),
    [
        ("ml.p3.2xlarge", 1, 0, 0),
        ("ml.p3.8xlarge", 4, 0, 0),
        ("ml.p3.16xlarge", 8, 0, 0),
        ("ml.p3dn.24xlarge", 8, 0, 1),
        ("ml.p4d.24xlarge", 8, 0, 4),
        ("ml.p5.48xlarge", 8, 0, 32),
        ("ml.p5en.48xlarge", 8, 0, 16),
        ("ml.p6e-gb200.36xlarge", 4, 0, 16),
        ("ml.g5.xlarge", 1, 0, 0),
        ("ml.g4dn.12xlarge", 4, 0, 1),
        ("ml.trn1.2xlarge", 0, 1, 0),
        ("ml.trn1.32xlarge", 0, 16, 8),
        ("ml.trn2.48xlarge", 0, 16, 16),
        ("ml.c5.18xlarge", 0, 0, 0),
        ("ml.c5n.18xlarge", 0, 0, 1),
    ],
)
def test_known_counts(name: str, gpus: int, neuron_devices: int, efa: int) -> None:
    each = instance(name)
    assert (each.gpus, each.neuron_devices, each.efa) == (gpus, neuron_devices, efa)


def test_known_details() -> None:
    a100 = instance("ml.p4d.24xlarge")
    assert (a100.gpu, a100.gpu_memory_gib, a100.vcpus, a100.memory_gib) == ("A100", 40, 96, 1152)
    assert instance("ml.p3.8xlarge").gpu == "V100"
    assert instance("ml.g5.xlarge").gpu_memory_gib == instance("ml.g5.48xlarge").gpu_memory_gib == 22.35
    arm = [name for name in NAMES if instance(name).architecture == "arm64"]
    assert arm == ["ml.p6e-gb200.36xlarge"]


@pytest.mark.parametrize(
    ("name", "processes"),
    [("ml.p3.8xlarge", 4), ("ml.trn1.32xlarge", 32), ("ml.trn2.48xlarge", 64), ("ml.m5.xlarge", 1)],
)
def test_processes_per_host(name: str, processes: int) -> None:
    assert instance(name).processes_per_host == processes


def test_the_toolkit_knows_ten_efa_types_and_misses_29() -> None:
    """The lists of sagemaker-training 5.1.4; one more release may change them, and the plan's advice with them."""
    accelerated = [each for each in load_instances().values() if each.accelerator]
    by_itself = {each.name for each in accelerated if each.toolkit_efa}
    assert by_itself == {
        *("ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge", "ml.p4d.24xlarge"),
        *("ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge", "ml.trn1.32xlarge", "ml.p6e-gb200.36xlarge"),
    }
    assert sum(each.efa > 0 and not each.toolkit_efa for each in accelerated) == 29
    no_rdma = {each.name for each in accelerated if each.toolkit_efa and not each.toolkit_rdma}
    assert no_rdma == {"ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge"}


def test_provenance_names_every_source() -> None:
    table = shipped_table()
    sources = table.provenance.sources
    assert {each.package for each in sources.values()} == {
        *("botocore", "moto", "sagemaker-core", "sagemaker-hyperpod", "sagemaker-training")
    }
    assert all(each.version in each.file for each in sources.values())
    given_fields = {field for each in sources.values() for field in each.gives}
    row = next(iter(table.instances.values()))
    assert given_fields == set(type(row).model_fields) - {"sources"}
    assert all(each.sources and set(each.sources) <= set(sources) for each in table.instances.values())
    typo = next(each for each in table.provenance.corrections if each.field == "name")
    assert (typo.source, typo.instances, typo.taken) == ("sagemaker-core", ("ml.g5n.xlarge",), "ml.g5.xlarge")
    assert table.provenance.corrections == refresh.CORRECTIONS


def test_the_file_is_small_and_in_the_form_that_the_tool_writes() -> None:
    text = PATH.read_text()
    assert len(text) < refresh.MAX_BYTES
    table = shipped_table()
    assert refresh.table_text(table.instances, table.provenance) == text
    assert list(table.instances) == sorted(table.instances, key=refresh._natural)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"instances": {"ml.x": {}}}', '{"instances": {"ml.x": 1}}'])
def test_a_damaged_file_is_a_request_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "instances.json"
    with pytest.raises(RequestError, match="no such file"):
        read_table(path)
    path.write_text(content)
    with pytest.raises(RequestError, match=r"instances\.json"):
        read_table(path)


# --- names ----------------------------------------------------------------------------------------------------------


@given(st.sampled_from(NAMES))
def test_every_name_finds_its_own_record(name: str) -> None:
    assert instance(name).name == name
    assert load_instances()[name] is instance(name)


@given(
    st.sampled_from(NAMES), st.sampled_from([str.upper, lambda n: n[3:], lambda n: n.replace(".", "_"), "{} ".format])
)
def test_another_spelling_of_a_name_is_refused_with_that_name_alone(name: str, spell: Callable[[str], str]) -> None:
    with pytest.raises(RequestError) as refused:
        instance(spell(name))
    assert refused.value.exit_code == 2
    assert refused.value.details["nearest"] == [name]


@given(st.text(max_size=40) | st.from_regex(r"ml\.[a-z0-9-]{1,6}\.[0-9]{0,2}xlarge", fullmatch=True))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        assert instance(text).name == text
    except RequestError as refused:
        assert text not in NAMES
        assert set(refused.details["nearest"]) <= set(NAMES)
        assert repr(text) in refused.message


@given(st.sampled_from(NAMES), st.data())
def test_a_slip_of_the_pen_still_has_near_names(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(3, len(name) - 1))
    slip = name[:place] + name[place + 1 :]
    if slip not in NAMES:
        with pytest.raises(RequestError, match="Did you mean ml"):
            instance(slip)


def test_what_is_like_nothing_gets_the_families() -> None:
    with pytest.raises(RequestError, match=r"The families are .*p4d, p4de.*trn2\.$") as refused:
        instance("banana")
    assert refused.value.details["nearest"] == []


# --- from claims to the table ---------------------------------------------------------------------------------------


def correction(source: str, name: str, field: str, says: Any, taken: Any) -> InstanceCorrection:
    return InstanceCorrection(source=source, instances=(name,), field=field, says=says, taken=taken, why="because")


def faults(
    valid: Sequence[str],
    claims: refresh.Claims,
    corrections: Sequence[InstanceCorrection] = (),
    strict: Sequence[str] = (),
) -> list[str]:
    with pytest.raises(RequestError) as refused:
        refresh.merge(valid, claims, corrections, training_only=strict)
    listed: list[str] = refused.value.details["faults"]
    assert all(fault in refused.value.message for fault in listed)
    return listed


def test_sources_complete_each_other() -> None:
    claims: refresh.Claims = {
        "one": {"ml.a.xlarge": {"gpus": 4, "gpu": "X"}, "ml.not-for-training.xlarge": {"gpus": 9}},
        "two": {"ml.a.xlarge": FACTS, "ml.b.xlarge": {**FACTS, "gpus": 0, "neuron_devices": 2, "neuron_cores": 4}},
        "three": {"ml.a.xlarge": {"toolkit_efa": True}},
    }
    table = refresh.merge(["ml.b.xlarge", "ml.a.xlarge"], claims)
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
    claims: refresh.Claims = {
        "one": {"ml.a.xlarge": FACTS, "ml.b.xlarge": FACTS},
        "two": {"ml.a.xlarge": {"gpus": 8, "memory_gib": 244.0}, "ml.b.xlarge": {"efa": 0}},
    }
    assert faults(["ml.a.xlarge", "ml.b.xlarge"], claims) == [
        "ml.a.xlarge: gpus is 4 (one), 8 (two)",
        "ml.b.xlarge: efa is 1 (one), 0 (two)",
    ]


def test_what_is_missing_or_cannot_be_is_listed() -> None:
    claims: refresh.Claims = {
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
    claims: refresh.Claims = {"one": {"ml.a.xlarge": FACTS, "ml.an.xlarge": FACTS}}
    expected = ["one names ml.an.xlarge, which is no training instance type"]
    assert faults(["ml.a.xlarge"], claims, strict=["one"]) == expected
    assert list(refresh.merge(["ml.a.xlarge"], claims)) == ["ml.a.xlarge"]


def test_corrections_change_a_name_then_a_value_and_leave_the_claims_alone() -> None:
    claims: refresh.Claims = {"one": {"ml.an.xlarge": {"gpus": 1}}, "two": {"ml.a.xlarge": FACTS}}
    both = [
        correction("one", "ml.an.xlarge", "name", "ml.an.xlarge", "ml.a.xlarge"),
        correction("one", "ml.a.xlarge", "gpus", 1, 4),
    ]
    assert refresh.merge(["ml.a.xlarge"], claims, both, training_only=["one"])["ml.a.xlarge"].sources == ("one", "two")
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
    table = refresh.merge(names, {"one": dict.fromkeys(names, FACTS)})
    assert list(table) == ["ml.p3.2xlarge", "ml.p3.8xlarge", "ml.p3.16xlarge", "ml.p10.xlarge"]


@given(
    st.dictionaries(
        st.sampled_from(["one", "two", "three"]),
        st.fixed_dictionaries({"gpus": st.integers(0, 2)}, optional={"efa": st.integers(0, 1)}),
        min_size=1,
    )
)
def test_a_table_is_made_exactly_where_all_sources_agree(said: dict[str, refresh.Facts]) -> None:
    claims: dict[str, dict[str, refresh.Facts]] = {source: {"ml.a.xlarge": facts} for source, facts in said.items()}
    claims["rest"] = {"ml.a.xlarge": {"vcpus": 1, "memory_gib": 0.5, "architecture": "x86_64"}}
    agreed = all(len({facts[field] for facts in said.values() if field in facts}) == 1 for field in ("gpus", "efa"))
    if agreed:
        each = refresh.merge(["ml.a.xlarge"], claims)["ml.a.xlarge"]
        assert all(getattr(each, field) == value for facts in said.values() for field, value in facts.items())
    else:
        assert faults(["ml.a.xlarge"], claims)


# --- reading the packages -------------------------------------------------------------------------------------------


def test_constants_are_read_without_running_the_module() -> None:
    module = b"import no_such_module\nA: int = 1\nB = C = ['x', 'y']\nD = len(B)\nraise SystemExit\n"
    assert refresh.constant(module, "C") == ["x", "y"]
    with pytest.raises(RequestError, match="no constant Z"):
        refresh.constant(module, "Z")
    with pytest.raises(RequestError, match="D is no literal"):
        refresh.constant(module, "D")


def test_core_says_count_and_memory_of_one_gpu() -> None:
    same = {"ml.a.xlarge": {"Count": 4, "TotalGpuMemoryInMiB": 65536}}
    table = {"here": same, "there": same}
    assert refresh.claims_of_core(json.dumps(table).encode()) == {"ml.a.xlarge": {"gpus": 4, "gpu_memory_gib": 16}}
    table["there"] = {"ml.a.xlarge": {"Count": 8, "TotalGpuMemoryInMiB": 65536}}
    with pytest.raises(RequestError, match=r"ml\.a\.xlarge differs between regions"):
        refresh.claims_of_core(json.dumps(table).encode())


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
    claims = refresh.claims_of_moto(gzip.compress(json.dumps(table).encode()))
    cpu: refresh.Facts = {
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
            with tarfile.open(folder / f"{file}.tar.gz", "w:gz") as sdist:
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
