"""Which image lines words select, and what is said of a word that selects none."""

from __future__ import annotations

import pytest

from trainwright.catalog.catalog import load_catalog
from trainwright.catalog.listing import select
from trainwright.core.errors import RequestError

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("words", "near", "far"),
    [
        (("tensorflw",), "tensorflow", "pytorch"),
        ((None, "cu999"), "cu129", "pytorch"),
        # 2.18 and its CUDA of 12.5 are TensorFlow's, 11.3 is PyTorch's alone.
        (("tensorflow", "cu113"), "cu112", "cu113 or"),
        (("pytorch", "cu124", "2.6.9"), "2.6.0", "2.13.0"),
    ],
    ids=str,
)
def test_only_what_could_stand_there_is_offered(words: tuple[str | None, ...], near: str, far: str) -> None:
    with pytest.raises(RequestError) as refused:
        select(CATALOG, *words)
    offered = refused.value.message.partition(". ")[2]
    assert near in offered
    assert far not in offered
    assert len(offered) < 200


def test_a_line_goes_by_the_cuda_of_its_published_tag_as_well() -> None:
    found = {entry.name for entry in select(CATALOG, "pytorch", "cu133")}
    assert found == {"2.13.0-cu133"}
