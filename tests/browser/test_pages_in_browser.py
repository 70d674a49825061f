"""Report pages in a real browser: they fit their width, their controls work, and hostile names do nothing.

A script that looks at the page is added to a copy of it, which is shown in a frame, as the browser's window cannot be
as narrow as a telephone. What it finds goes to the page around the frame, which the browser prints.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet_runs import made_run
from tests.support.report_records import HOSTILE, OTHER, full_record
from trainwright.catalog.catalog import open_catalog
from trainwright.core.text import printable
from trainwright.engine.consent import find
from trainwright.fleet.report import run_page, run_report
from trainwright.report.catalog import catalog_report
from trainwright.report.compare import compare
from trainwright.report.contents import of_record
from trainwright.report.image import report_of
from trainwright.report.page import catalog_page, image_page

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("places")]
SCALE = {"12px", "14px", "16px", "20px", "28px"}
SECONDS = 60

# Before anything else of the page: what goes wrong in it.
WATCH = """
window.wrong = [];
addEventListener("error", (event) => wrong.push(String(event.message)));
document.addEventListener("securitypolicyviolation", (event) => wrong.push("loads " + event.blockedURI));
"""
LOOK = r"""
addEventListener("load", () => {
const seen = (element) => element.offsetParent !== null;
const all = (query) => [...document.querySelectorAll(query)];
const channels = (text) => text.match(/[\d.]+/g).map(Number);
const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const light = (text) => {
  const [r, g, b] = channels(text).slice(0, 3).map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if ((channels(colour)[3] ?? 1) > 0.5) return colour;
  }
  return "rgb(255, 255, 255)";
};
const faint = (element) => {
  const lights = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
  return (lights[0] + 0.05) / (lights[1] + 0.05) < 4.5;
};
const written = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
for (const each of all("details")) each.open = true;
const found = {
  faint: all("body *").filter((e) => seen(e) && written(e) && faint(e)).map((e) => e.textContent.slice(0, 60)),
  dark: light(getComputedStyle(document.body).backgroundColor) < 0.2,
  width: innerWidth,
  across: document.documentElement.scrollWidth,
  sizes: [...new Set(all("body *").filter(seen).map((e) => getComputedStyle(e).fontSize))],
  pwned: typeof pwned,
  cut: all(".scroll").filter((e) => seen(e) && e.scrollWidth > e.clientWidth + 1).map((e) => e.innerText.slice(0, 60)),
  squeezed: all("#against td code").filter((e) => seen(e) && e.innerText.length < 30 && e.getClientRects().length > 2)
    .map((e) => e.innerText),
};
const labels = all(".axis .track span").filter(seen).map((e) => e.getBoundingClientRect());
found.collide = labels.filter((own, n) => n && own.left < labels[n - 1].right).length;
const search = document.querySelector("[data-search]");
if (search) {
  const rows = () => all("#parts tbody tr").filter((row) => !row.hidden);
  const names = () => rows().map((row) => row.cells[0].textContent);
  const ask = (text) => {
    search.value = text;
    search.dispatchEvent(new Event("input"));
  };
  const every = rows().length;
  ask("TORCH bsd");
  found.search = { every, names: names(), says: document.querySelector("output").textContent };
  ask("");
  const last = document.querySelector("#parts thead tr").lastElementChild;
  const bytes = () => rows().map((row) => Number(row.lastElementChild.dataset.value));
  last.click();
  found.up = bytes();
  last.click();
  found.down = bytes();
  found.names = names();
  found.panes = all(".tabs label").map((label) => {
    label.click();
    const maps = all(".map").filter(seen);
    const box = maps[0].getBoundingClientRect();
    // A border of its own makes the smallest tile two pixels wide.
    const outside = [...maps[0].children].map((tile) => tile.getBoundingClientRect()).filter((own) =>
      own.left < box.left - 3 || own.right > box.right + 3 || own.top < box.top - 3 || own.bottom > box.bottom + 3);
    return { maps: maps.length, tiles: maps[0].children.length, wide: box.width, outside: outside.length };
  });
}
found.wrong = wrong;
parent.postMessage(found, "*");
});
"""


AROUND = """<!doctype html><html style="color-scheme: light dark"><body style="margin:0"><script>
addEventListener("message", (event) => {
  const report = document.createElement("pre");
  report.id = "found";
  report.textContent = JSON.stringify(event.data);
  document.body.append(report);
});
</script><iframe src="page.html" width="WIDTH" height="900" style="border:0"></iframe></body></html>"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State of this test alone."""
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def browser() -> str:
    path = find("chromium")
    if path is None:
        pytest.skip("no browser: chromium is not installed")
    return path


@pytest.fixture(scope="module")
def image() -> str:
    """The page of an image that is compared with another one, with hostile names wherever there is a name."""
    before, after = full_record(OTHER), full_record(changed="nccl", smoke="failed")
    return image_page(report_of(after, compare(of_record(before, HOSTILE), of_record(after, "after"))))


@pytest.fixture(scope="module")
def catalog() -> str:
    return catalog_page(catalog_report(open_catalog()))


def looked_at(page: str, browser: str, folder: Path, *, width: int, dark: bool = False) -> dict[str, Any]:
    """What the script finds on a page.

    Args:
        page: the HTML; its rule of what may run stays, and lets these two scripts run as well.
        browser: the program.
        folder: for the page and the browser's profile.
        width: of the frame, in pixels.
        dark: whether the reader prefers dark pages.
    """
    for script, place in ((WATCH, "<head>"), (LOOK, "</body>")):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        page = page.replace("script-src '", f"script-src 'sha256-{digest}' '", 1)
        element = f"<script>{script}</script>"
        page = page.replace(place, place + element if place == "<head>" else element + place, 1)
    (folder / "page.html").write_text(page)
    file = folder / "around.html"
    file.write_text(AROUND.replace("WIDTH", str(width)))
    argv = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    argv += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", "--dump-dom"]
    argv += [
        "--virtual-time-budget=3000",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(
        [*argv, file.as_uri()], capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
    )
    held = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert held, done.stderr[-2000:] or done.stdout[-2000:]
    text = held[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return dict(json.loads(text))


def check_looks(found: dict[str, Any], *, width: int, dark: bool) -> None:
    """What holds for every page: it fits, it can be read, it loads nothing and nothing in it fails."""
    assert found["width"] == width
    assert found["across"] <= width, "the page is wider than the window"
    assert found["dark"] is dark
    assert found["faint"] == [], "text with too little contrast (WCAG 2: 4.5 to 1)"
    assert set(found["sizes"]) <= SCALE
    assert found["cut"] == [], "a table is wider than its place, so its last columns are out of sight"
    assert found["squeezed"] == [], "a short name on three lines"
    assert found["collide"] == 0, "labels of an axis on top of each other"
    assert found["wrong"] == []
    assert found["pwned"] == "undefined"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_of_an_image(browser, image, tmp_path, width, dark):
    found = looked_at(image, browser, tmp_path, width=width, dark=dark)
    check_looks(found, width=width, dark=dark)
    assert printable(HOSTILE) in found["names"]
    assert found["search"]["names"] == ["torch"]
    assert found["search"]["says"] == f"1 of {found['search']['every']}"
    assert found["up"] == sorted(found["up"])
    assert found["down"] == sorted(found["up"], reverse=True)
    assert found["down"][0] > 0
    assert len(found["panes"]) == 3
    for pane in found["panes"]:
        assert pane["maps"] == 1, "one map at a time, and one width of it"
        assert pane["tiles"] > 5
        assert pane["outside"] == 0
        assert pane["wide"] == pytest.approx(1120 if width > 1184 else width - 32, abs=1)


@pytest.mark.parametrize("seconds", [94, 104, 179, 659, 3500])
def test_labels_of_a_build_of_any_length_are_apart(browser, tmp_path, seconds):
    record = full_record()
    assert record.timeline is not None
    first, *_ = record.timeline.steps
    long = record.timeline.replace(steps=(first.replace(start=0.0, seconds=float(seconds)),))
    page = image_page(report_of(record.replace(timeline=long)))
    check_looks(looked_at(page, browser, tmp_path, width=390), width=390, dark=False)


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (390, False)])
def test_the_page_of_the_catalog(browser, catalog, tmp_path, width, dark):
    check_looks(looked_at(catalog, browser, tmp_path, width=width, dark=dark), width=width, dark=dark)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_of_a_run(browser, tmp_path, width, dark):
    page = run_page(run_report(made_run(hostile=True), tmp_path))
    check_looks(looked_at(page, browser, tmp_path, width=width, dark=dark), width=width, dark=dark)


def test_a_page_that_is_spoilt_is_seen(browser, image, tmp_path):
    """The script sees what it is there for."""
    spoilt = "<main><p style='width:3000px;font-size:13px;color:#eee'>wide</p><img src='other.png'>"
    found = looked_at(image.replace("<main>", spoilt, 1), browser, tmp_path, width=390)
    assert found["across"] >= 3000
    assert "13px" in found["sizes"]
    assert "wide" in found["faint"]
    assert "loads file" in found["wrong"]  # of a file, only the scheme is named
