"""Reading a Dockerfile back: stages, steps, and whose they are."""

from __future__ import annotations

from trainwright.build.ledger import make_ledger, owner_of
from trainwright.catalog.catalog import load_catalog
from trainwright.engine.buildkit_log import Vertex
from trainwright.plan.dockerfile import diagram, stages, steps
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve

TEXT = """\
# A comment with FROM in it
FROM scratch AS base
ADD rootfs.tar /

FROM base AS os
ENV A=1
RUN apt \\
    # in between
    && more

FROM os AS metis
RUN make
FROM os AS final
# ssh 9.2 (debian)
COPY a b
# metis 5.1.0 (debian)
COPY --from=metis /opt/metis /opt/metis
RUN --mount=type=bind,from=metis,source=/a,target=/b true
RUN ldconfig
LABEL a=b
"""


def test_steps_belong_to_components():
    assert [(s.stage, s.component) for s in steps(TEXT)] == [
        ("base", "base"), ("os", "os"), ("metis", "metis"),
        ("final", "ssh"), ("final", "metis"), ("final", "metis"), ("final", "os"),
    ]  # fmt: skip


def test_stages_and_what_they_need():
    assert [(s.name, s.parent, s.needs) for s in stages(TEXT)] == [
        ("base", "scratch", ()), ("os", "base", ()), ("metis", "os", ()), ("final", "os", ("metis",)),
    ]  # fmt: skip


def test_diagram_has_a_row_per_depth():
    assert diagram(TEXT).splitlines()[2:] == [
        "#     base",
        "#     os <- base",
        "#     metis <- os",
        "#     final <- os + metis",
    ]


def vertex(stage: str, step: int, total: int, seconds: float = 1.0, cached: bool = False) -> Vertex:
    made = Vertex("v", stage=stage, step=step, total=total, seconds=seconds, cached=cached)
    made.component = owner_of(made, steps(TEXT))
    return made


def test_a_from_of_a_registry_image_counts_as_a_step():
    own = steps(TEXT)
    assert owner_of(vertex("final", 1, 4), own) == "ssh"
    assert owner_of(vertex("final", 2, 5), own) == "ssh"
    assert owner_of(vertex("final", 1, 5), own) is None
    assert owner_of(Vertex("v", name="exporting to image"), own) is None


def test_ledger_sums_seconds_and_bytes():
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    vertices = [vertex("metis", 1, 1, 5.0), vertex("final", 1, 4, 1.0, True), vertex("final", 2, 4, 0.5)]
    history = [
        ("LABEL a=b", 0),
        ("RUN /bin/sh -c ldconfig # buildkit", 7),
        ("RUN /bin/sh -c true # buildkit", 1),
        ("COPY /opt/metis /opt/metis # buildkit", 30),
        ("COPY a b # buildkit", 4),
        ("RUN /bin/sh -c apt # buildkit", 100),
        ("ENV A=1", 0),
        ("ADD rootfs.tar / # buildkit", 1000),
    ]
    rows = {row.name: row for row in make_ledger(plan, TEXT, vertices, history)}
    assert (rows["metis"].seconds, rows["metis"].bytes, rows["metis"].cached) == (5.5, 31, False)
    assert (rows["ssh"].seconds, rows["ssh"].bytes, rows["ssh"].cached) == (1.0, 4, True)
    assert (rows["os"].bytes, rows["base"].bytes) == (107, 1000)
    assert sum(row.bytes for row in rows.values()) == sum(size for _, size in history)


def test_layers_of_a_registry_base_are_the_base():
    plan = resolve(make_request(framework="pytorch", cuda="cpu"), load_catalog())
    text = TEXT.replace("FROM scratch AS base\nADD rootfs.tar /", "FROM debian:bookworm-slim AS base")
    history = [("RUN x", 1)] * 2 + [("COPY", 1)] * 2 + [("RUN apt", 100), ("/bin/sh -c #(nop) ADD file", 500)]
    rows = {row.name: row for row in make_ledger(plan, text, [], history)}
    assert rows["base"].bytes == 500
    assert rows["os"].bytes == 101
    # No vertex: the builder had all of it.
    assert all(row.cached for row in rows.values())
