"""The site of the documentation: every page, every link, nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools.site import SiteFailed, build_site, make
from trainwright.verbs.find import FAMILIES

MENU = "site_name: test\nuse_directory_urls: false\nnav:\n  - Start: index.md\n  - Other: other.md\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "left.html").write_text("of an earlier run")
    build_site(folder)
    return folder


def test_the_site_has_every_page_and_a_search(site: Path) -> None:
    assert not (site / "left.html").exists()
    for page in ("index", "docs/push", "docs/decisions/0083-the-site-is-made-by-zensical", "bench/index", "CHANGELOG"):
        assert (site / f"{page}.html").is_file(), page
    assert "quartiles" in (site / "search.json").read_text()  # a word of bench/README.md
    assert (site / "docs/pictures/build.svg").is_file()


def test_the_page_of_verbs_has_each_of_them(site: Path) -> None:
    text = (site / "docs/verbs.html").read_text()
    assert re.findall(r'<h3 id="[^"]*">([a-z-]+)<', text) == [name for family in FAMILIES for name in family.names]
    assert "--keep-going" in text


def test_no_page_fetches_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        fetched = re.findall(
            r"<(?:script|img|iframe)[^>]*\ssrc=.?(?:https?:)?//|<link[^>]*rel=.?stylesheet[^>]*//", page.read_text()
        )
        assert fetched == [], page


def pages_of(folder: Path, **texts: str) -> Path:
    pages = folder / "pages"
    pages.mkdir()
    for name, text in texts.items():
        (pages / f"{name}.md").write_text(text)
    return pages


def test_links_that_lead_somewhere(tmp_path: Path) -> None:
    make(pages_of(tmp_path, index="# A\n[b](other.md#c)\n", other="# B\n## C\n[a](index.md)\n"), MENU)
    assert 'href="other.html#c"' in (tmp_path / "site/index.html").read_text()


@pytest.mark.parametrize("link", ["nowhere.md", "other.md#no-such"])
def test_a_link_to_nowhere_is_an_error(tmp_path: Path, link: str) -> None:
    with pytest.raises(SiteFailed, match=r"index\.md:2"):
        make(pages_of(tmp_path, index=f"# A\n[b]({link})\n", other="# B\n"), MENU)


def test_a_page_that_the_menu_lacks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SiteFailed, match=r"nav lacks third\.md"):
        make(pages_of(tmp_path, index="# A\n", other="# B\n", third="# C\n"), MENU)
