"""Instance types: the shipped table, looking names up. No network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools import instance_merge
from devtools import refresh_instances as refresh
from trainwright.core.errors import RequestError
from trainwright.sagemaker.instances import (
    PATH,
    instance,
    load_instances,
    read_table,
    shipped_table,
)

NAMES = sorted(load_instances())


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
    assert given_fields == set(row.__struct_fields__) - {"sources"}
    assert all(each.sources and set(each.sources) <= set(sources) for each in table.instances.values())
    typo = next(each for each in table.provenance.corrections if each.field == "name")
    assert (typo.source, typo.instances, typo.taken) == ("sagemaker-core", ("ml.g5n.xlarge",), "ml.g5.xlarge")
    assert table.provenance.corrections == refresh.CORRECTIONS


def test_the_file_is_small_and_in_the_form_that_the_tool_writes() -> None:
    text = PATH.read_text()
    assert len(text) < refresh.MAX_BYTES
    table = shipped_table()
    assert instance_merge.table_text(table.instances, table.provenance) == text
    assert list(table.instances) == sorted(table.instances, key=instance_merge._natural)


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
