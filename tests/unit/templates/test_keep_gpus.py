"""``keep_gpus`` on libraries that are compiled here, with fat binaries as nvcc's linker leaves them.

Their layout is that of GrigoryEvko/nvopen-tools, fatbin/FORMAT_SPECIFICATION.md, which was read from CUDA's own program
``cuobjdump``: a header of 16 bytes, then parts, each a header and its content. What is expected of a GPU is from the
CUDA C++ Programming Guide, "Binary Compatibility", with its note on Tegra, and "PTX Compatibility".
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.programs import load_program

PTX, CUBIN = 1, 2
LARGE = 20_000  # bytes of one part
Part = tuple[int, int]  # kind, architecture

SOURCE = """
#include <stdio.h>
__asm__(".section .nv_fatbin,\\"a\\"\\n.balign 8\\n.globl fatbins\\n.hidden fatbins\\n"
        "fatbins: .incbin \\"fatbins\\"\\n.text");
extern const char fatbins[] __attribute__((visibility("hidden")));
struct wrapper { int magic, version; const char *data; void *unused; };
#define IN(section_) __attribute__((section(section_), used))
"""
FUNCTIONS = """
const char *unit(int n) { return wrappers[n].data; }
static const int table[] = {1, 2, 3, 4};
static __thread int counted = 30;
static int *volatile places[] = {(int *)&table[1], (int *)&table[3]};
int answer(void) { counted += *places[0] + *places[1]; return counted + 6; }
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_program("components/python/keep_gpus")


@pytest.fixture(scope="module")
def trim() -> ModuleType:
    return load_program("tools/python/trim")


def content(unit: int, part: Part) -> bytes:
    """What a part holds: bytes of its own."""
    return hashlib.sha256(repr((unit, part)).encode()).digest() * (LARGE // 32)


def fatbin(unit: int, parts: Sequence[Part]) -> bytes:
    body = b""
    for kind, architecture in parts:
        held = content(unit, (kind, architecture))
        head = struct.pack("<HHIQ12xI", kind, 0x0101, 64, len(held), architecture)
        body += head.ljust(64, b"\0") + held
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(
    folder: Path,
    units: Sequence[Sequence[Part]],
    *,
    more: str = "",
    spoilt: bytes = b"",
    flags: Sequence[str] = ("-shared",),
) -> Path:
    """A library with these fat binaries, a wrapper for each, and other sections before and behind them."""
    whole, places = b"", []
    for number, parts in enumerate(units):
        places.append(len(whole))
        whole += fatbin(number, parts)
    (folder / "fatbins").write_bytes(spoilt or whole)
    rows = "".join(f"{{0x466243b1, 1, fatbins + {place}, 0}}," for place in places)
    text = f'{SOURCE}static struct wrapper wrappers[] IN(".nvFatBinSegment") = {{{rows}}};\n{FUNCTIONS}{more}'
    (folder / "it.c").write_text(text)
    made = folder / "it.so"
    subprocess.run(["gcc", *flags, "-fPIC", "-o", made, "it.c"], cwd=folder, check=True)
    return made


def parts_of(made: Path, units: int) -> list[list[tuple[Part, bytes]]]:
    """What the program finds in memory behind each wrapper, read in a process of its own."""
    script = f"""
import ctypes, struct, sys
library = ctypes.CDLL({str(made)!r})
assert library.answer() == 42, library.answer()
library.unit.restype = ctypes.c_void_p
for n in range({units}):
    at = library.unit(n)
    magic, version, header, size = struct.unpack("<IHHQ", ctypes.string_at(at, 16))
    assert (magic, version, header) == (0xBA55ED50, 1, 16), (n, magic)
    body = ctypes.string_at(at + 16, size)
    sys.stdout.buffer.write(struct.pack("<Q", size) + body)
"""
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout
    found = []
    for _ in range(units):
        (size,) = struct.unpack_from("<Q", said)
        body, said = said[8 : 8 + size], said[8 + size :]
        found.append([])
        while body:
            kind, _, head, held = struct.unpack_from("<HHIQ", body)
            (architecture,) = struct.unpack_from("<I", body, 28)
            found[-1].append(((kind, architecture), body[head : head + held]))
            body = body[head + held :]
    return found


UNITS = [
    [(CUBIN, 70), (CUBIN, 75), (CUBIN, 80), (CUBIN, 86), (CUBIN, 90), (PTX, 90)],
    [(PTX, 50), (CUBIN, 80), (CUBIN, 100)],
    [(CUBIN, 90), (CUBIN, 90)],  # 9.0 and 9.0a have one number
    [(CUBIN, 100), (CUBIN, 101), (PTX, 90)],  # 10.1 is of Tegra: no other GPU runs its code
]
THIRD, FOURTH = UNITS[2][:1], UNITS[3][:1]  # what stays of them where nothing is for a GPU


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([80], [[(CUBIN, 80)], [(CUBIN, 80)], THIRD, FOURTH]),
        ([80, 90], [[(CUBIN, 80), (CUBIN, 90)], [(PTX, 50), (CUBIN, 80)], UNITS[2], [(PTX, 90)]]),
        ([89], [[(CUBIN, 80), (CUBIN, 86)], [(PTX, 50), (CUBIN, 80)], THIRD, FOURTH]),
        ([75], [[(CUBIN, 75)], [(PTX, 50)], THIRD, FOURTH]),
        ([103], [[(PTX, 90)], [(PTX, 50), (CUBIN, 100)], THIRD, UNITS[3]]),
        ([120], [[(PTX, 90)], [(PTX, 50)], THIRD, [(PTX, 90)]]),
        ([60], [[(CUBIN, 70)], [(PTX, 50)], THIRD, FOURTH]),  # PTX is for newer GPUs only
    ],
)
def test_each_gpu_finds_what_it_would_have_run(
    tool: ModuleType, trim: ModuleType, tmp_path: Path, gpus: list[int], expected: list[list[Part]]
) -> None:
    made = library(tmp_path, UNITS)
    before = made.stat().st_size
    less = tool.keep(trim, str(made), gpus)
    assert made.stat().st_size == before - less
    gone = sum(map(len, UNITS)) - sum(map(len, expected))
    assert less > gone * LARGE - 3 * 4096
    found = parts_of(made, len(UNITS))
    assert [[part for part, _ in unit] for unit in found] == expected
    assert all(held == content(number, part) for number, unit in enumerate(found) for part, held in unit)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fatbins", "it.c", "it.so"]


def test_parts_of_other_kinds_stay(tool: ModuleType, trim: ModuleType, tmp_path: Path) -> None:
    made = library(tmp_path, [[(CUBIN, 80), (8, 75), (CUBIN, 75), (CUBIN, 70)]])
    assert tool.keep(trim, str(made), [80]) > 0
    assert [part for part, _ in parts_of(made, 1)[0]] == [(CUBIN, 80), (8, 75)]


def test_a_library_that_was_stripped(tool: ModuleType, trim: ModuleType, tmp_path: Path) -> None:
    made = library(tmp_path, UNITS)
    subprocess.run(["strip", "--strip-unneeded", made], check=True)
    assert tool.keep(trim, str(made), [80]) > 0
    assert [part for part, _ in parts_of(made, len(UNITS))[0]] == [(CUBIN, 80)]
    # What has been made smaller is a library like any other: readelf finds no fault, and it can be made smaller again.
    said = subprocess.run(["readelf", "-aW", made], check=True, capture_output=True, text=True)
    assert "arning" not in said.stderr
    assert tool.keep(trim, str(made), [80]) == 0


def test_its_other_sections_are_found_where_they_are_now(tool: ModuleType, trim: ModuleType, tmp_path: Path) -> None:
    def contents(name: str) -> str:
        shown = subprocess.run(["readelf", "-x", name, made], check=True, capture_output=True, text=True).stdout
        return "".join(line for line in shown.splitlines(keepends=True) if "0x" in line)

    made = library(tmp_path, UNITS)
    names = [".data", ".comment", ".nvFatBinSegment"]
    before = [contents(name) for name in names[:2]]
    assert tool.keep(trim, str(made), [80]) > 0
    assert [contents(name) for name in names[:2]] == before and "b1436246" in contents(names[2])


def test_a_program_finds_its_own_list_of_segments(tool: ModuleType, trim: ModuleType, tmp_path: Path) -> None:
    # PT_PHDR, which linkers write into programs and lld into libraries, too: the loader computes addresses from it.
    made = library(tmp_path, UNITS, more="int main(void) { return answer(); }", flags=("-pie",))
    assert tool.keep(trim, str(made), [80]) > 0
    assert subprocess.run([made], check=False).returncode == 42


def test_a_library_that_would_be_ruined_stays(
    tool: ModuleType, trim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(old: bytes, smaller: str, *more: object) -> int:
        gone: int = write(old, smaller, *more)
        data = Path(smaller).read_bytes()
        Path(smaller).write_bytes(data.replace(b"GCC: (", b"GCC: [").replace(struct.pack("<4I", 1, 2, 3, 4), bytes(16)))
        return gone

    write = tool.write
    monkeypatch.setattr(tool, "write", careless)
    made = library(tmp_path, UNITS)
    before = made.read_bytes()
    with pytest.raises(tool.Strange):
        tool.keep(trim, str(made), [80])
    assert made.read_bytes() == before and not list(tmp_path.glob("*.kept"))


def test_nothing_to_leave_out(tool: ModuleType, trim: ModuleType, tmp_path: Path) -> None:
    made = library(tmp_path, [[(CUBIN, 80)], [(CUBIN, 80)]])
    before = made.read_bytes()
    assert tool.keep(trim, str(made), [80, 86]) == 0
    assert made.read_bytes() == before


STRANGE = {
    "a pointer into one": ('IN(".data.rel") const char *inside = fatbins + 16;', b""),
    "a second pointer to one": ('IN(".data.rel") const char *start = fatbins;', b""),
    "a wrapper of a part of one": (
        'static struct wrapper odd IN(".nvFatBinSegment") = {0x466243b1, 1, fatbins + 16, 0};',
        b"",
    ),
    "a part without a length": ("", fatbin(0, UNITS[0])[:20] + bytes(12) + fatbin(0, UNITS[0])[32:]),
    "a symbol among them": (
        '__asm__(".section .nv_fatbin\\n.globl seen\\n.set seen, fatbins + 8\\n.text");',
        b"",
    ),
    "another mark": ("", fatbin(0, UNITS[0]).replace(b"\x50\xed\x55\xba", b"\x51\xed\x55\xba")),
    "another version": ("", fatbin(0, UNITS[0])[:4] + b"\2" + fatbin(0, UNITS[0])[5:]),
    "a part that is longer than all": ("", fatbin(0, UNITS[0])[:24] + b"\xff\xff\xff\0" + fatbin(0, UNITS[0])[28:]),
    "one to which nothing points": ("", fatbin(0, UNITS[0]) + fatbin(1, UNITS[1])),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_library_of_another_shape_stays_whole(
    tool: ModuleType, trim: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    more, spoilt = STRANGE[kind]
    site = tmp_path / "site"
    site.mkdir()
    made = Path(shutil.copy(library(tmp_path, UNITS[:1], more=more, spoilt=spoilt), site / "it.so"))
    before = made.read_bytes()
    tool.main(trim, str(site), [80])
    assert made.read_bytes() == before and [path.name for path in site.iterdir()] == ["it.so"]
    assert "it.so stays whole" in capsys.readouterr().out


def test_the_list_of_files_is_kept_true(
    tool: ModuleType, trim: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    (site / "pkg-1.dist-info").mkdir(parents=True)
    made = Path(shutil.copy(library(tmp_path, UNITS), site / "it.so"))
    made.chmod(0o555)
    (site / "other.so").write_text("not a library at all: it has some sixty-four bytes of text, and no more")
    record = site / "pkg-1.dist-info/RECORD"
    record.write_text("it.so,sha256=x,1\nother.so,sha256=y,71\npkg-1.dist-info/RECORD,,\n")
    tool.main(trim, str(site), [80])
    digest = base64.urlsafe_b64encode(hashlib.sha256(made.read_bytes()).digest()).decode().rstrip("=")  # PEP 376
    mine = f"it.so,sha256={digest},{made.stat().st_size}"
    assert record.read_text().splitlines() == [mine, "other.so,sha256=y,71", "pkg-1.dist-info/RECORD,,"]
    assert made.stat().st_mode & 0o777 == 0o555 and ctypes.CDLL(str(made)).answer() == 42
    assert "MB less in 1 libraries" in capsys.readouterr().out


def test_a_library_without_code_for_gpus(tool: ModuleType, trim: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "it.c").write_text("int answer(void) { return 42; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "it.so", "it.c"], cwd=tmp_path, check=True)
    before = (tmp_path / "it.so").read_bytes()
    assert tool.keep(trim, str(tmp_path / "it.so"), [80]) == 0
    assert (tmp_path / "it.so").read_bytes() == before
