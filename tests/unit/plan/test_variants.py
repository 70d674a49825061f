"""What each option of an image line changes in its Dockerfile, and that the linter sees every shape of instruction."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.variants import (
    Variant,
    difference,
    expectations,
    expected_differences,
    sample,
    shapes,
)
from tests.support.dockerfiles import LINES, every_dockerfile, of_the_image, rendered

EXPECTED = Path(__file__).parent / "variants"
OPTIONS = [(name, option) for name, entry in LINES.items() for option in entry.line.options]
PLAIN = "FROM a AS os\nRUN one \\\n    two 1.2\n\nFROM os AS final\nCOPY b c\nLABEL x=1\n"


def variant(text: str, name: str = "x/y", plain: str = PLAIN) -> Variant:
    return Variant(name, "more", "3.4", plain, text)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_changes_what_is_expected_and_nothing_else(name: str, option: str) -> None:
    (made,) = [each for each in rendered(name)[1] if each.option == option]
    expected = expected_differences((EXPECTED / f"{option}.diff").read_text())
    assert difference(made) == expected[name], "./invoke generate writes the expectations anew"


def test_another_base_is_expected_as_a_whole() -> None:
    whole = {path.name: path.read_text() for path in EXPECTED.glob("*.Dockerfile")}
    assert whole
    made = {
        f"{name.replace('/', '-')}-{each.option}.Dockerfile": of_the_image(each.text)
        for name in LINES
        if (EXPECTED / f"{name.replace('/', '-')}-dlc.Dockerfile").is_file()
        for each in rendered(name)[1]
        if each.base
    }
    assert made == whole


def test_every_option_has_an_expectation_and_no_other_has() -> None:
    files = {path.stem: path.read_text() for path in EXPECTED.glob("*.diff")}
    expected = [(name, option) for option, text in files.items() for name in expected_differences(text)]
    assert sorted(expected) == sorted(OPTIONS)


# ---- differences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("COPY b c\n", "COPY b c\nRUN more-3.4\n", "@@ final @@\n COPY b c\n+RUN more-VERSION\n"),
        ("RUN one", "RUN other", "@@ os @@\n FROM a AS os\n-RUN one \\\n+RUN other \\\n"),
        ("COPY b c\n", "", "@@ final @@\n FROM os AS final\n-COPY b c\n"),
        ("\nFROM os", "\nFROM a AS new\n\nFROM os", "@@ new @@\n     two N\n+FROM a AS new\n"),
        ("FROM a AS os", "# head\nFROM a AS os", "@@ before the first stage @@\n \n+# head\n"),
    ],
)
def test_a_difference_tells_what_and_where(old: str, new: str, told: str) -> None:
    assert PLAIN.count(old) == 1
    assert difference(variant(PLAIN.replace(old, new))) == told


def test_words_of_a_filled_list_are_told_apart() -> None:
    """One more word moves all that follow it into other lines; none of these is a change."""
    listed = PLAIN + 'RUN x \\\n    /mnt/apt-install a c \\\n        d 7.2\nLABEL l="1 3.4" m=2\n'
    more = (
        PLAIN
        + 'RUN x \\\n    /mnt/apt-install a \\\n        b c d e-3.4 7.3.4\nLABEL l="1 3.4" \\\n    m=2 n="o 3.4"\n'
    )
    packages = "@@ final @@\n     /mnt/apt-install\n+\tb\n-\t7.2\n+\te-VERSION\n+\t7.3.4\n"
    labels = '@@ final @@\n LABEL\n+\tn="o VERSION"\n'
    assert difference(variant(more, plain=listed)) == packages + labels
    # What follows a list is not in it.
    text = "RUN /mnt/apt-install a \\\n    b \\\n    && c d\nRUN e f\n"
    told = difference(variant(text.replace("c d", "c d g"), plain=text))
    assert told == "@@ before the first stage @@\n RUN /mnt/apt-install\n-    && c d\n+    && c d g\n"


def test_the_place_counts() -> None:
    """The same line in another stage, or further down in the same, is another difference."""
    places = [n for n, line in enumerate(PLAIN.splitlines(keepends=True), 1) if not line.endswith("\\\n")]
    lines = PLAIN.splitlines(keepends=True)
    seen = {difference(variant("".join([*lines[:n], "RUN new\n", *lines[n:]]))) for n in places if lines[n - 1] != "\n"}
    assert len(seen) == len([n for n in places if lines[n - 1] != "\n"])


def test_lines_with_one_difference_share_one_expectation() -> None:
    same = [variant(PLAIN + "RUN 3.4\n", name) for name in ("a/1", "a/2")]
    other = variant(PLAIN + "RUN x\n", "b/3")
    (text,) = expectations([*same, other]).values()
    assert text.count("# ") == 2
    assert expected_differences(text) == {each.name: difference(each) for each in (*same, other)}


def test_many_lines_are_named_in_several_rows() -> None:
    many = [variant(PLAIN + "RUN x\n", f"pytorch/2.{n}.0-cu124") for n in range(40)]
    (text,) = expectations(many).values()
    assert max(map(len, text.splitlines())) <= 120
    assert set(expected_differences(text)) == {each.name for each in many}


# ---- the linter ------------------------------------------------------------------------------------------------------


def test_the_linter_s_sample_has_every_shape_of_instruction() -> None:
    texts = [text for name in list(LINES)[::5] for text in every_dockerfile(name).values()]
    chosen = sample(texts)
    every, kept = ({shape for text in some for shape in shapes(text)} for some in (texts, chosen))
    assert every <= kept
    assert 1 < len(chosen) < len(texts)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("RUN a 1.2", "RUN a 1.3", True),
        ("RUN echo " + "a" * 64, "RUN echo " + "b" * 64, True),
        ("RUN get https://a/b.tar", "RUN get https://c/d", True),
        ('LABEL io.trainwright.cuda=12.4 \\\n    io.trainwright.x="y"', "LABEL io.trainwright.cuda=cpu", True),
        ("RUN a", "RUN b", False),
        ("RUN a", "RUN a \\\n  && b", False),
        ("LABEL io.trainwright.cuda=1 mine=2", "LABEL io.trainwright.cuda=1", False),
        ("RUN a\nRUN b", "RUN b\nRUN a", False),
        ("FROM a AS b\nRUN x", "FROM a AS c\nRUN x", False),
    ],
)
def test_a_shape_leaves_out_what_no_linter_looks_at(one: str, other: str, same: bool) -> None:
    assert (set(shapes(one)) == set(shapes(other))) is same
