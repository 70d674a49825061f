"""Whole answers to requests that five image lines cannot give: reasons with evidence, the remedy, ordered offers.

What is expected was worked out from the files of these lines (their CUDA, version, Python and base) and from the
rule for offers: fewest words given up, then the nearest CUDA and version, the newest first, and the CPU last.
"""

from __future__ import annotations

import shutil

import pytest

from tests.support.catalogs import write_hello
from tests.support.conflicts import assert_offers_resolve, conflict_of, plan_of
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.core.errors import Conflict
from trainwright.core.paths import images_dir, templates_dir
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

NAMES = ("cpu", "cu126", "2.5.1-cu124", "2.4.0-cu124", "1.10.2-cu113-2022-09")
WHOLE = load_catalog()
CATALOG = Catalog(
    [entry for entry in WHOLE.lines if entry.line.framework == "pytorch" and entry.name in NAMES],
    WHOLE.components,
    WHOLE.rules,
)
VERSIONS = "no image line has it; lines have 1.10.2, 2.4.0, 2.5.1, 2.7.1, 2.13.0"
BUILD = "./invoke build --framework pytorch "
ADD_LINE = "Use one of the commands above, or add an image line in images/pytorch/ (see CONTRIBUTING.md)."
CU113, CU126 = "--cuda cu113 --version 1.10.2", "--cuda cu126 --version 2.7.1"
NEWER, OLDER = "--cuda cu124 --version 2.5.1", "--cuda cu124 --version 2.4.0"
CPU = "--cuda cpu --version 2.13.0"
UNPROVEN = (
    "No image line has that version. Use one of the commands above, or add an image line beside "
    "images/pytorch/cu126/line.yaml (see CONTRIBUTING.md), or try it unproven: --allow-unproven"
)


def test_the_lines_are_those_that_the_answers_were_worked_out_from() -> None:
    found = {(e.name, e.line.version, e.line.cuda, e.line.python, e.line.base.kind) for e in CATALOG.lines}
    assert found == {
        ("cpu", "2.13.0", "cpu", "3.11", "debian"),
        ("cu126", "2.7.1", "12.6", "3.11", "debian"),
        ("2.5.1-cu124", "2.5.1", "12.4", "3.11", "nvidia"),
        ("2.4.0-cu124", "2.4.0", "12.4", "3.11", "nvidia"),
        ("1.10.2-cu113-2022-09", "1.10.2", "11.3", "3.8", "nvidia"),
    }


@pytest.mark.parametrize(
    ("words", "rows", "offers", "remedy"),
    [
        pytest.param(
            {"cuda": "cu117"},
            [("--cuda cu117", "no image line has it; lines have cu113, cu124, cu126, cpu")],
            [CU113, NEWER, OLDER],  # 0.4 from CUDA 11.3, 0.7 from 12.4
            ADD_LINE,
            id="the nearest CUDA",
        ),
        pytest.param(
            {"version": "2.5.1", "cuda": "cu126"},
            [
                ("--cuda cu126", "only in images/pytorch/cu126/line.yaml (2.7.1)"),
                ("--version 2.5.1", "only in images/pytorch/2.5.1-cu124/line.yaml (cu124)"),
            ],
            [CU126, NEWER, OLDER],
            ADD_LINE,
            id="two words that no line has together",
        ),
        pytest.param(
            {"cuda": "cu124", "python": "3.10"},
            [("--python 3.10", "no image line has it; lines have Python 3.8, Python 3.11")],
            [f"{NEWER} --python 3.11", f"{OLDER} --python 3.11", f"{CU126} --python 3.11"],
            ADD_LINE,
            id="an offer names the word that changes",
        ),
        pytest.param(
            {"cuda": "cpu", "base": "nvidia"},
            [
                ("--cuda cpu", "only in images/pytorch/cpu/line.yaml (debian-12)"),
                (
                    "--base nvidia",
                    "only in images/pytorch/1.10.2-cu113-2022-09/line.yaml (cu113), "
                    "images/pytorch/2.4.0-cu124/line.yaml (cu124), images/pytorch/2.5.1-cu124/line.yaml (cu124)",
                ),
            ],
            [f"{CPU} --base debian", f"{NEWER} --base nvidia", f"{OLDER} --base nvidia"],
            ADD_LINE,
            id="CPU and CUDA are far apart",
        ),
        pytest.param(
            {"version": "9.0"}, [("--version 9.0", VERSIONS)], [CU126, NEWER, OLDER], ADD_LINE, id="CUDA before CPU"
        ),
        pytest.param(
            {"version": "2.7.99", "cuda": "cu126"},
            [("--version 2.7.99", VERSIONS)],
            [CU126, NEWER, OLDER],
            UNPROVEN,
            id="newer than every line",
        ),
        pytest.param(
            {"set_": ["metis=9"]},
            [
                (
                    "--set metis=9",
                    "no image line has it; templates/components/metis knows 5.1.0 from debian; "
                    "templates/components/metis knows 5.1.0 from source",
                )
            ],
            [CU126, NEWER, OLDER],
            ADD_LINE,
            id="a version that no provider knows",
        ),
        pytest.param(
            {"version": "2.13.0", "cuda": "cu126", "set_": ["metis=5.2.1"]},
            [
                ("--cuda cu126", "only in images/pytorch/cu126/line.yaml (2.7.1)"),
                ("--version 2.13.0", "only in images/pytorch/cpu/line.yaml (cpu)"),
            ],
            [CU126, CPU, NEWER],
            ADD_LINE,
            id="a pin that changes nothing is no reason",
        ),
    ],
)
def test_the_whole_answer(words: dict, rows: list[tuple[str, str]], offers: list[str], remedy: str) -> None:
    pins = words.get("set_", [])
    conflict = conflict_of(*pins, catalog=CATALOG, **{name: value for name, value in words.items() if name != "set_"})
    assert [(row["constraint"], row["evidence"]) for row in conflict.details["rows"]] == rows
    commands = [offer["command"] for offer in conflict.details["offers"]]
    assert commands == [BUILD + offer for offer in offers]
    assert conflict.remedy == remedy
    assert conflict.message.startswith("no image line for --framework pytorch ")
    assert_offers_resolve(conflict, CATALOG)


def test_what_requires_a_component_is_told_at_once_and_may_stay_out_with_it() -> None:
    conflict = conflict_of(with_="compiler", without="openmpi", catalog=CATALOG)
    needing = "aws-ofi-nccl", "mpi4py", "sagemaker-toolkit", "smdistributed-dataparallel", "smdistributed-modelparallel"
    together = ", ".join(f"{name} requires openmpi" for name in needing)
    rows = conflict.details["rows"]
    assert [row["constraint"] for row in rows] == ["--without openmpi", together]
    assert rows[0]["evidence"] == "the request leaves it out"
    assert [each.partition(": ")[0] for each in rows[1]["evidence"].split("; ") if ": " in each] == list(needing)
    assert conflict.message == f"--framework pytorch --with compiler --without openmpi: {together}"
    assert conflict.remedy == "Use one of the commands above."
    commands = [offer["command"].removeprefix(BUILD) for offer in conflict.details["offers"]]
    assert commands == [
        f"{CU126} --with compiler",
        f"{CU126} --with compiler --without openmpi,mpi4py,sagemaker-toolkit",
        f"{NEWER} --with compiler",
    ]


def test_a_tied_pin_is_explained_and_the_nearest_known_version_offered() -> None:
    conflict = conflict_of("nccl=2.99", cuda="cu124", catalog=CATALOG)
    rows = {row["constraint"]: row["evidence"] for row in conflict.details["rows"]}
    assert list(rows) == ["--set nccl=2.99", "nccl is tied to pytorch"]
    assert "incompatible NCCL version" in rows["nccl is tied to pytorch"]
    known = rows["--set nccl=2.99"].removeprefix("no image line has it; templates/components/nccl knows ")
    assert known.startswith("2.3.5, 2.3.7, ")
    assert known.endswith(", 2.30.7 from source")
    commands = [offer["command"].removeprefix(BUILD) for offer in conflict.details["offers"]]
    assert commands == [f"{NEWER} --set nccl=2.30.7", f"{OLDER} --set nccl=2.30.7", CU126]


def test_what_a_rule_refuses_is_the_answer_to_a_component_that_no_line_has() -> None:
    """``apex`` is foreseen by the rules alone: templates/rules.yaml."""
    conflict = conflict_of(with_="apex", cuda="cu130", without="bitsandbytes", catalog=WHOLE)
    rows = {row["constraint"]: row["evidence"] for row in conflict.details["rows"]}
    assert rows["--with apex"].startswith("no image line has it; NVIDIA's apex as a component: ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"with_": "apex", "cuda": "cu113"}, "NVIDIA's apex as a component: "),
        ({"with_": "horovod", "version": "2.0"}, "Horovod as a component: "),
        ({"with_": "horovod", "cuda": "cu117"}, "Horovod as a component: "),
        ({"with_": "horovod", "version": "1.13.1", "base": "dlc"}, "Horovod as a component: "),
        ({"with_": "horovod", "version": "2.13"}, "Horovod with PyTorch 2.1 or newer: "),
    ],
)
def test_a_rule_answers_for_a_component_where_it_holds_for_the_other_words(words: dict[str, str], told: str) -> None:
    rows = {row["constraint"]: row["evidence"] for row in conflict_of(catalog=WHOLE, **words).details["rows"]}
    assert rows[f"--with {words['with_']}"].startswith(f"no image line has it; {told}")


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("pytorch", {"with_": "apex"}),
        ("pytorch", {"with_": "apex", "version": "2.4.0", "base": "dlc"}),
        ("tensorflow", {"with_": "apex", "cuda": "cpu"}),
        ("tensorflow", {"with_": "horovod", "version": "2.12"}),
        ("huggingface-pytorch", {"with_": "horovod"}),
    ],
)
def test_the_reason_for_a_component_that_rules_alone_know_is_told_once(framework: str, words: dict[str, str]) -> None:
    with pytest.raises(Conflict) as refused:
        resolve(make_request(framework=framework, **words), WHOLE)
    name = words["with_"]
    ((word, evidence),) = [(row["constraint"], row["evidence"]) for row in refused.value.details["rows"]]
    assert word == f"--with {name}"
    assert f"--base dlc with one of these versions needs no --with {name}" in evidence
    offered = [offer["command"] for offer in refused.value.details["offers"]]
    assert words.get("base") is None or f"--version {words['version']} --base dlc" in offered[0]


@pytest.mark.parametrize("added", ["cuda-compiler", "flash-attn", "nccl-tests"])
@pytest.mark.parametrize("words", [{"cuda": "cu128"}, {"cuda": "cu126", "python": "3.13"}, {"version": "2.9.1"}])
def test_what_is_compiled_with_nvcc_is_refused_where_there_is_none(words: dict[str, str], added: str) -> None:
    """The wheels nvidia-cuda-nvcc-cu12 12.6.85 and 12.8.93 have bin/ptxas alone; flash-attn and nccl-tests are compiled
    with nvcc whoever provides them."""
    conflict = conflict_of(catalog=WHOLE, with_=added, **words)
    rows = {row["constraint"]: row["evidence"] for row in conflict.details["rows"]}
    assert "ptxas" in rows["nvcc of CUDA 12.6 to 12.9 as a component"]
    offered = [offer["command"] for offer in conflict.details["offers"]]
    assert any(f"--with {added}" in command for command in offered)


def test_what_nvcc_does_not_compile_is_not_refused_for_want_of_it() -> None:
    assert plan_of(catalog=WHOLE, cuda="cu128", with_="transformer-engine,deepspeed").cuda == "12.8"


def test_a_rule_that_no_word_is_about_is_no_reason() -> None:
    """aws-ofi-nccl with CUDA 11.3 is in lines on NVIDIA's image, so nothing about PyTorch 2 keeps them apart."""
    conflict = conflict_of(cuda="cu113", base="debian", with_="aws-ofi-nccl", catalog=WHOLE)
    rows = [row["constraint"] for row in conflict.details["rows"]]
    assert [row for row in rows if not row.startswith("--framework")] == [
        "--cuda cu113",
        "--base debian",
        "--with aws-ofi-nccl",
    ]


def test_a_rule_between_two_words_is_among_the_reasons() -> None:
    """PyTorch 2.0 was built for CUDA 11.7 and newer, and bitsandbytes is an option of lines of PyTorch 2 alone."""
    conflict = conflict_of(cuda="cu113", with_="bitsandbytes", catalog=WHOLE)
    rows = [row["constraint"] for row in conflict.details["rows"]]
    assert rows == ["--cuda cu113", "--with bitsandbytes", "PyTorch 2 or newer with CUDA older than 11.7"]


def test_the_newest_of_the_installers_that_have_a_version_is_offered() -> None:
    """Open MPI 4.1.6 is in the installers 1.28.0 to 1.34.0 of EFA (aws-parallelcluster-cookbook, 3.11.0)."""
    whole = load_catalog()
    (entry,) = [each for each in whole.lines if each.line.framework == "pytorch" and each.name == "1.10.2-cu113"]
    catalog = Catalog([entry], whole.components, whole.rules)
    commands = [offer["command"] for offer in conflict_of("openmpi=4.1.6", catalog=catalog).details["offers"]]
    assert commands == ["./invoke build --framework pytorch --cuda cu113 --version 1.10.2 --set efa=1.34.0"]


# Which Open MPI or plugin these installers have is not in a list that was read, so the image takes its own.
@pytest.mark.parametrize(
    ("version", "pin", "own"),
    [
        ("2.11.0", "1.50.0", ["openmpi=source"]),
        ("2.11.0", "1.51.0", ["openmpi=source"]),
        ("2.7.1", "1.48.0", ["aws-ofi-nccl=source"]),
    ],
)
def test_a_pinned_installer_is_offered_with_components_of_its_own(version, pin, own) -> None:
    conflict = conflict_of(f"efa={pin}", version=version, base="nvidia", catalog=WHOLE)
    commands = [offer["command"] for offer in conflict.details["offers"]]
    words = " ".join(f"--set {each}" for each in sorted([f"efa={pin}", *own]))
    assert any(f"--version {version} --base nvidia {words}" in command for command in commands), commands
    assert_offers_resolve(conflict, WHOLE)


# images/pytorch/2.7.1-cu128 and 2.11.0-cu130 start from Ubuntu 22.04 and Amazon Linux 2023.
@pytest.mark.parametrize(("version", "pin"), [("2.7.1", "1.48.0"), ("2.11.0", "1.50.0")])
def test_a_rule_for_another_distribution_is_no_reason(version, pin) -> None:
    conflict = conflict_of(f"efa={pin}", version=version, base="nvidia", catalog=WHOLE)
    assert not [row for row in conflict.details["rows"] if "Ubuntu" in row["constraint"]]


@pytest.mark.parametrize(
    ("installer", "openmpi"),
    # aws/aws-parallelcluster-cookbook, CHANGELOG.md: 3.1.5, 3.6.0 and 3.11.0; pull request #2953.
    [("1.18.0", "4.1.4"), ("1.22.1", "4.1.5"), ("1.34.0", "4.1.6"), ("1.41.0", "4.1.7")],
)
def test_open_mpi_of_an_installer(installer, openmpi) -> None:
    tied = WHOLE.components["openmpi"].component.providers["efa"].tied
    assert tied is not None and tied.versions[installer] == openmpi


def test_a_component_that_no_line_lists_comes_with_the_entry_to_write(tmp_path) -> None:
    shutil.copytree(templates_dir(), tmp_path / "templates")
    write_hello(tmp_path / "templates")
    own = load_catalog(images_dir(), tmp_path / "templates")
    catalog = Catalog(CATALOG.lines, own.components, own.rules)
    conflict = conflict_of(with_="hello", cuda="cu124", catalog=catalog)
    rows = {row["constraint"]: row["evidence"] for row in conflict.details["rows"]}
    exists = "no image line has it; templates/components/hello exists: provider debian has 2.10"
    assert rows == {"--with hello": exists}
    assert conflict.remedy is not None
    assert conflict.remedy.startswith("Add hello to images/pytorch/2.5.1-cu124/line.yaml, under options:")
    assert '  hello: {provider: debian, version: "2.10"}\n' in conflict.remedy
    assert conflict.remedy.endswith("\nOr use one of the commands above.")
    commands = [offer["command"] for offer in conflict.details["offers"]]
    assert commands[0] == f"./invoke build --framework pytorch {NEWER}"
