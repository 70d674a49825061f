"""``list``: current lines first, filters, and tables that fit a terminal."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.support.in_process import call
from trainwright.build.store import BuiltDocument, BuiltRow
from trainwright.catalog import listing
from trainwright.catalog.catalog import open_catalog
from trainwright.catalog.image_line import version_key
from trainwright.catalog.listing import CURRENT, LineRow
from trainwright.core.errors import RequestError
from trainwright.verbs.list_ import built_text, lines_text


@cache
def rows() -> tuple[LineRow, ...]:
    catalog = open_catalog()
    return listing.lines(catalog, catalog.lines, {}).lines


def document(lines: tuple[LineRow, ...]) -> listing.ListDocument:
    return listing.ListDocument(schema="trainwright/list/1", lines=lines)


def names(text: str) -> list[str]:
    """The first word of each line that is one of an image line."""
    known = {row.name for row in rows()}
    return [line.split()[0] for line in text.splitlines() if line.strip() and line.split()[0] in known]


def test_lines_past_their_support_are_counted_and_json_has_them():
    text = call("list").stdout
    current = [row for row in rows() if row.status in CURRENT]
    assert sorted(names(text)) == sorted(row.name for row in current)
    assert f"{len(rows()) - len(current)} older" in text
    assert len(json.loads(call("list", "--json").stdout)["lines"]) == len(rows())
    assert len(names(call("list", "--all").stdout)) == len(rows())


def test_the_newest_comes_first_within_a_framework():
    for own in listing.by_framework(rows()).values():
        versions = [version_key(row.version) for row in own]
        assert versions == sorted(versions, reverse=True)
    first, *_ = listing.by_framework(rows()).values()
    assert first[0].status == "supported"


def test_a_framework_without_current_lines_shows_what_it_has():
    old = next(name for name, own in listing.by_framework(rows()).items() if not {r.status for r in own} & {*CURRENT})
    assert len(names(call("list", "--framework", old).stdout)) == len([r for r in rows() if r.framework == old])


@pytest.mark.parametrize(
    ("flags", "holds"),
    [
        (["--status", "end-of-support"], lambda row: row.status == "end-of-support"),
        (["--needs", "packages"], lambda row: row.needs == "packages"),
        (["--python", "3.11"], lambda row: row.python == "3.11"),
        (["--base", "dlc"], lambda row: row.kind == "dlc"),
        (["--with", "cuda-compiler"], lambda row: "cuda-compiler" in (*row.components, *row.options)),
        (["--needs", "packages", "--with", "metis"], lambda row: row.needs == "packages" and "metis" in row.components),
        (["--cuda", "cu124", "--base", "debian"], lambda row: (row.cuda, row.kind) == ("cu124", "debian")),
    ],
)
def test_filters(flags, holds):
    expected = [row.name for row in rows() if holds(row)]
    assert expected
    found = json.loads(call("list", "--json", *flags).stdout)["lines"]
    assert sorted(row["name"] for row in found) == sorted(expected)
    assert sorted(names(call("list", *flags).stdout)) == sorted(expected)


# aws/deep-learning-containers, f1e622e4, docker/pytorch/Dockerfile.cuda: FROM nvidia/cuda:13.3.0, torch of cu130.
def test_a_line_whose_tag_names_another_cuda_has_both():
    document = call("list", "--framework", "pytorch", "--json").stdout
    named = {row["name"]: row["published_cuda"] for row in json.loads(document)["lines"] if row["published_cuda"]}
    assert named == {"2.13.0-cu133": "cu133"}
    (told,) = [n for n in call("list", "--framework", "pytorch").stdout.splitlines() if n.startswith("in 2.13.0-cu133")]
    assert "pytorch is cu130" in told
    assert "base image cu133" in told
    assert "base image" not in call("list", "--framework", "pytorch", "--cuda", "cu132").stdout


# AWS's release notes of SMP v2.7.0 have 2.4.1 and 2.5.1; docker/pytorch/Dockerfile.cpu at 7b00481e is of 2.13.0.
@pytest.mark.parametrize(
    ("flags", "commands"),
    [
        (["--framework", "pytorch-smp"], ["--framework pytorch-smp --base dlc   # --version 2.5.1, 2.4.1,"]),
        (
            ["--framework", "pytorch-smp", "--cuda", "cu124"],
            ["pytorch-smp --cuda cu124 --base dlc   # --version 2.5.1"],
        ),
        (
            ["--base", "dlc", "--cuda", "cpu"],
            [
                "--framework pytorch --cuda cpu --base dlc   # --version ",
                "--framework tensorflow --cuda cpu --base dlc",
            ],
        ),
    ],
)
def test_containers_without_a_line_are_named_where_there_is_no_line(flags, commands):
    refused = call("list", *flags)
    assert refused.returncode == 2
    assert "Did you mean" not in refused.stderr
    told = [line for line in refused.stderr.splitlines() if line.startswith("./invoke plan ")]
    assert len(told) == len(commands)
    for line, command in zip(told, commands, strict=True):
        assert command in line
        assert call(*line.partition("#")[0].split()[1:]).returncode == 0


def test_a_list_says_that_containers_need_no_line():
    note = "./invoke plan --framework pytorch --cuda cpu --base dlc"
    for flags in ([], ["--base", "dlc"], ["--framework", "pytorch"]):
        assert note in call("list", *flags).stdout
    for flags in (["--cuda", "cu113"], ["--needs", "packages"]):
        assert note not in call("list", *flags).stdout
    assert "Known" in call("list", "--base", "dlc", "--cuda", "cpu", "--status", "supported").stderr


def test_proven_lines():
    never = tuple(row.replace(proof=row.proof.replace(state="never", date="")) for row in rows())
    with pytest.raises(RequestError, match="proven") as refused:
        listing.filtered(document(never), {"proof": "proven"})
    assert "Known: never" in f"{refused.value.message} {refused.value.remedy}"
    first = rows()[0].replace(proof=never[0].proof)
    proven = first.replace(proof=first.proof.replace(state="proven", date="2026-11-21"))
    kept = listing.filtered(document((proven, *never[1:])), {"proof": "proven"})
    assert kept.lines == (proven,)


def test_a_long_tag_has_a_line_of_its_own_on_a_narrow_terminal():
    tag = "trainwright/pytorch:2.13.0-cpu-py311-debian12-compiler"
    image = BuiltRow(
        image_id=f"sha256:{'ab' * 32}", tags=(tag,), plan="ab", size_bytes=10**9, seconds=113.0, smoke="passed",
        built_at="2026-11-27T10:50:00+00:00", record="record.json",
    )  # fmt: skip
    built = BuiltDocument(schema="trainwright/built/1", images=(image,))
    narrow = built_text(built, width=80).splitlines()
    assert tag in narrow and max(map(len, narrow)) <= 80
    for width in (120, None):
        _, row = built_text(built, width=width).splitlines()
        assert row.endswith(f"  {tag}") and "1.00 GB" in row


def test_a_component_is_told_before_its_providers():
    lines = call("list", "--components").stdout.splitlines()
    summary = next(number for number, line in enumerate(lines) if line.startswith("nccl "))
    assert "NVIDIA's collective communication library" in lines[summary]
    assert lines[summary + 1].startswith("   ") and "wheel" in lines[summary + 1]


def test_a_value_that_no_line_has_is_named():
    done = call("list", "--python", "3.19")
    assert done.returncode == 2
    assert "Did you mean" in done.stderr


@pytest.mark.parametrize("width", [60, 80, 110, 200, None])
@pytest.mark.parametrize("every", [False, True])
def test_a_table_fits_its_terminal(width, every):
    lines = lines_text(document(rows()), every=every, width=width).splitlines()
    assert width is None or max(map(len, lines)) <= width
    head = lines[0].split()
    assert {"name", "version", "cuda", "status", "size", "proven"} <= {*head}
    assert ("options" in head) is (width in (200, None))
    for line in lines[1:]:
        assert not line.startswith("  ") or any(row.version in line for row in rows())


def test_options_that_do_not_fit_are_counted():
    row = next(row for row in rows() if len(row.options) > 3)
    whole = lines_text(document((row,)), width=None).splitlines()[1]
    assert whole.endswith(",".join(row.options))
    short = lines_text(document((row,)), width=len(whole) - 1).splitlines()[1]
    assert short.endswith(f" {','.join(row.options[:-1])} +1")


def test_the_line_that_a_framework_alone_takes_is_marked():
    taken = json.loads(call("plan", "--framework", "pytorch", "--json").stdout)
    found = [row for row in json.loads(call("list", "--framework", "pytorch", "--json").stdout)["lines"] if row["bare"]]
    assert [(row["version"], row["cuda"]) for row in found] == [(taken["version"], "cu132")]
    text = call("list", "--framework", "pytorch").stdout
    assert [line.split()[0] for line in text.splitlines() if " * " in line] == [found[0]["name"]]
    assert "* what --framework alone takes" in text
    assert "*" not in call("list", "--framework", "pytorch", "--cuda", "cpu").stdout


def test_sizes_are_those_of_lines_as_last_measured():
    row = rows()[0]
    for count, size in ((5_040_000_000, "5.04 GB"), (None, "-")):
        head, line, *_ = lines_text(document((row.replace(size_bytes=count),)), width=None).splitlines()
        assert line[head.index("size") :].startswith(f"{size} ")


def test_the_flags_and_the_columns_are_called_the_same():
    head = call("list", "--all", "--framework", "pytorch").stdout.splitlines()[0].split()
    row = next(row for row in rows() if row.kind == "nvidia")
    assert head.index("os") < head.index("base")
    text = lines_text(document((row,)), width=None).splitlines()
    assert dict(zip(text[0].split(), text[1].split(), strict=False))["base"] == "nvidia"
    refused = call("list", "--base", "dbian").stderr
    assert "--base dbian: no image line has it. Did you mean debian" in refused
