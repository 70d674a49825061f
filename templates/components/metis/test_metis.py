"""METIS partitions a graph, by its program and by its library."""

import json

import pytest

SIDE = 12  # a square grid of SIDE x SIDE vertices; the best cut in two halves is SIDE


def neighbours(vertex):
    row, column = divmod(vertex, SIDE)
    beside = [(row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)]
    return [r * SIDE + c for r, c in beside if 0 <= r < SIDE and 0 <= c < SIDE]


def edge_cut(parts):
    return sum(parts[v] != parts[n] for v in range(SIDE * SIDE) for n in neighbours(v)) // 2


@pytest.fixture
def graph(host):
    """A file in METIS's format: vertices and edges, then the neighbours of each vertex, counted from 1."""
    lines = [" ".join(str(n + 1) for n in neighbours(v)) for v in range(SIDE * SIDE)]
    text = "\n".join([f"{SIDE * SIDE} {2 * SIDE * (SIDE - 1)}", *lines]) + "\n"
    host.check_output("mkdir -p /tmp/smoke_metis && printf %%s %s > /tmp/smoke_metis/grid", text)
    yield "/tmp/smoke_metis/grid"
    host.run("rm -rf /tmp/smoke_metis")


def test_program_partitions_a_graph(host, within, graph):
    done = within(30, f"gpmetis {graph} 2")
    assert done.rc == 0, done.stdout + done.stderr
    parts = [int(word) for word in host.check_output("cat %s", f"{graph}.part.2").split()]
    assert len(parts) == SIDE * SIDE
    assert abs(sum(parts) - SIDE * SIDE / 2) <= 0.03 * SIDE * SIDE
    cut = edge_cut(parts)
    assert cut <= 2 * SIDE, "METIS finds 12 or little more; a random partition cuts 132"
    assert f"Edgecut: {cut}," in done.stdout


@pytest.mark.parametrize("program", ["gpmetis", "ndmetis", "mpmetis", "graphchk"])
def test_programs_are_on_path(host, program):
    assert host.check_output("command -v %s", program) == f"/opt/metis/bin/{program}"


def test_library_partitions_a_graph(python):
    counts = [len(neighbours(v)) for v in range(SIDE * SIDE)]
    starts = [sum(counts[:v]) for v in range(SIDE * SIDE + 1)]
    flat = [n for v in range(SIDE * SIDE) for n in neighbours(v)]
    script = f"""
import ctypes, json
starts, flat = {starts}, {flat}
metis = ctypes.CDLL("libmetis.so")
idx = ctypes.c_int32
options = (idx * 40)()
metis.METIS_SetDefaultOptions(options)
n, one, k, cut = idx(len(starts) - 1), idx(1), idx(4), idx(-1)
part = (idx * n.value)()
ref = ctypes.byref
status = metis.METIS_PartGraphKway(ref(n), ref(one), (idx * len(starts))(*starts), (idx * len(flat))(*flat),
    None, None, None, ref(k), None, None, options, ref(cut), part)
print(json.dumps([status, cut.value, list(part)]))
"""
    status, cut, parts = json.loads(python(script))
    assert status == 1, "METIS_OK is 1"
    assert sorted(set(parts)) == [0, 1, 2, 3]
    assert cut == edge_cut(parts)


def test_header_is_that_of_the_library(host):
    # smdistributed-modelparallel is compiled against 32-bit indices.
    assert host.run("grep -qx '#define IDXTYPEWIDTH 32' /opt/metis/include/metis.h").rc == 0


def test_loader_finds_it(host):
    assert "/opt/metis/lib/libmetis.so" in host.check_output("ldconfig -p")
    assert "not found" not in host.check_output("ldd /opt/metis/bin/gpmetis")
