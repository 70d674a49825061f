"""Reading a script and the files that it imports."""

from __future__ import annotations

import ast
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.examples import some
from tests.support.training_scripts import everything, write
from trainwright.core.errors import RequestError
from trainwright.preflight.preflight import examine, preflight
from trainwright.script.reader import Module, Reader, parse_module

STDLIB = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


# ---- reading ---------------------------------------------------------------------------------------------------------


@given(st.text(max_size=300))
@example("\x00")
@example("# -*- coding: nonsense -*-")
@example("f'{x!r:{y}}'\nlambda *, a=1, **k: (yield)")
def test_any_text_is_read_or_is_a_finding(text):
    everything(text)


@given(st.binary(max_size=200))
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbfimport os\r\nx = 1\r\n")
@example(b"# coding: latin-1\nx = '\xe9'\n")
def test_any_bytes_are_read_or_are_a_finding(raw):
    parsed = parse_module(Path("a.py"), "a.py", raw)
    assert isinstance(parsed, Module) or parsed.code == "TW100"


NAMES = st.sampled_from(
    [
        "loss",
        "optimizer",
        "scaler",
        "model",
        "os",
        "xm",
        "torch",
        "smp",
        "dist",
        "data",
        "step",
        "rank",
        "args",
        "environ",
        "save",
        "backward",
        "cuda",
        "to",
        "item",
    ]
)
ATOMS = st.one_of(
    NAMES, st.sampled_from(["1", "'cuda'", "'SM_MODEL_DIR'", "'/home/x'", "None", "f'{x}'", "*a", "**k", "..."])
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(ATOMS.filter(lambda atom: not atom.startswith("*")))
    inner = expressions(depth=depth - 1)
    kind = draw(st.sampled_from(["call", "attribute", "item", "binary", "choice", "lambda", "list"]))
    one, two = draw(inner), draw(inner)
    arguments = draw(st.lists(st.one_of(ATOMS, st.builds(lambda n, v: f"{n}={v}", NAMES, inner)), max_size=3))
    return {
        "call": f"({one}).{draw(NAMES)}({', '.join(arguments)})",
        "attribute": f"({one}).{draw(NAMES)}",
        "item": f"({one})[{two}]",
        "binary": f"({one}) * ({two})",
        "choice": f"(({one}) if ({two}) else ({one}))",
        "lambda": f"(lambda {draw(NAMES)}: {one})",
        "list": f"[({one}), ({two})]",
    }[kind]


@st.composite
def statements(draw: st.DrawFn, depth: int = 3, indent: str = "") -> str:
    value = draw(expressions(depth=2))
    kinds = ["expression", "assign", "import", "from"] + (["for", "if", "def", "class", "try", "with"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind in ("for", "if", "def", "class", "try", "with"):
        body = "".join(draw(st.lists(statements(depth=depth - 1, indent=indent + " "), min_size=1, max_size=3)))
        name = draw(NAMES)
        heads = {
            "for": f"for {name} in {value}:",
            "if": f"if {value}:",
            "def": f"def {name}({name}={value}):",
            "class": f"class {name}:",
            "with": f"with {value}:",
            "try": "try:",
        }
        rest = f"{indent}except {name}:\n{body}" if kind == "try" else ""
        return f"{indent}{heads[kind]}\n{body}{rest}"
    target = draw(st.sampled_from(["x", "os.environ['N']", "a, b", "x.y"]))
    return {
        "expression": f"{indent}{value}\n",
        "assign": f"{indent}{target} = {value}\n",
        "import": f"{indent}import torch_xla.core.xla_model as xm, {draw(NAMES)}\n",
        "from": f"{indent}from smdistributed.modelparallel import torch as smp\n",
    }[kind]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=some(100))
@given(st.lists(statements(), min_size=1, max_size=6).map("".join))
def test_no_python_stops_the_rules(text):
    try:
        ast.parse(text)
    except SyntaxError:
        assert [f.code for f in everything(text)] == ["TW100"]
        return
    for finding in everything(text):
        assert finding.line is None or 1 <= finding.line <= text.count("\n") + 1


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(STDLIB))
def test_real_python_stops_nothing(path):
    everything(path.read_text(errors="replace"))


def test_a_syntax_error_is_a_finding_with_its_line(tmp_path):
    entry = write(tmp_path, train="import os\n\ndef f(:\n    pass\n")
    found = preflight([str(entry)])
    assert [(f.code, f.line, f.path) for f in found.findings] == [("TW100", 3, str(entry))]
    assert found.exit_code == 1


def test_a_tree_that_is_too_deep_is_a_finding():
    deep = "x = " + "(" * 90 + "1" + ")" * 90 + "\n" + "y = " + "-" * 3000 + "1\n"
    assert [f.code for f in everything(deep)] == ["TW100"]


@pytest.mark.parametrize(
    "value", ["-" * 350 + "loss.item()", " + ".join(["loss.item()"] * 300), "f(" * 90 + "loss.item()" + ")" * 90]
)
def test_what_is_deep_but_readable_is_read(value):
    text = f"for x in y:\n    loss.backward()\n    z = {value}\n    if {value}:\n        print({value})\n"
    assert "TW150" in {f.code for f in everything(text)}


def test_imports_are_followed_inside_the_folder_alone(tmp_path):
    source = tmp_path / "src"
    entry = write(
        source,
        train="import utils\nfrom pack import part\nfrom pack.deep import *\nimport json\ndef f():\n    import late\n",
        utils="import os\nos.environ['N'] = 4\n",
        late="",
        **{
            "pack/__init__": "from . import sibling\n",
            "pack/part": "",
            "pack/deep": "from ..utils import x\n",
            "pack/sibling": "",
        },
        unused="os.environ['N'] = 4\n",
    )
    (tmp_path / "outside.py").write_text("")
    script = Reader().script(entry, source)
    assert set(script.files) == {
        "train.py",
        "utils.py",
        "late.py",
        "pack/__init__.py",
        "pack/part.py",
        "pack/deep.py",
        "pack/sibling.py",
    }
    assert script.files[0] == "train.py"
    assert {m.name: m.certain for m in script.modules}["late.py"] is False
    assert {m.name: m.certain for m in script.modules}["pack/sibling.py"] is True
    found = examine(script)
    assert [(f.code, f.path, f.line) for f in found.findings] == [("TW160", "utils.py", 2)]


def test_what_an_imported_file_does_alone_is_no_matter(tmp_path):
    tool = "def options(p):\n    p.add_argument('data')\n\nif __name__ == '__main__':\n    p.add_argument('more')\n"
    entry = write(tmp_path, train="import tool\np.parse_args()\n", tool=tool)
    assert preflight([str(entry)]).findings == ()
    entry.write_text("import tool\ntool.options(p)\np.parse_args()\n")
    assert [(f.code, f.path, f.line) for f in preflight([str(entry)]).findings] == [
        ("TW196", str(tmp_path / "tool.py"), 2)
    ]


def test_a_save_of_another_program_is_no_matter(tmp_path):
    text = "import torch\ndef save():\n    torch.save(s, 'x.pt')\ndef push():\n    save()\n"
    text += "if __name__ == '__main__':\n    push()\n"
    entry = write(tmp_path, train="import push_to_hub\n", push_to_hub=text)
    assert preflight([str(entry)]).findings == ()
    assert [f.code for f in preflight([str(tmp_path / "push_to_hub.py")]).findings] == ["TW142"]


def test_files_that_import_each_other_end(tmp_path):
    entry = write(tmp_path, train="import other", other="import train")
    assert Reader().script(entry, tmp_path).files == ("train.py", "other.py")


def test_the_entry_point_is_looked_for_in_the_source_folder(tmp_path):
    entry = write(tmp_path / "src", train="")
    assert preflight(["train.py"], str(tmp_path / "src")).files == (str(entry),)


def test_a_relative_import_in_the_script_is_an_error(tmp_path):
    entry = write(tmp_path, train="from .utils import x\n", utils="x = 1\n")
    assert [f.code for f in preflight([str(entry)]).findings] == ["TW101"]
    entry.write_text("try:\n    from .utils import x\nexcept ImportError:\n    from utils import x\n")
    assert preflight([str(entry)]).findings == ()


@pytest.mark.parametrize("given_", ["missing.py", "train.sh", ""])
def test_what_is_no_script_is_refused(tmp_path, given_):
    write(tmp_path, train="")
    (tmp_path / "train.sh").write_text("echo")
    with pytest.raises(RequestError):
        preflight([str(tmp_path / given_)] if given_ else [])


def test_the_script_is_never_run(tmp_path):
    entry = write(tmp_path, train="import helper\nopen('ran', 'w')\nraise SystemExit(1)\n", helper="open('ran', 'w')\n")
    preflight([str(entry)])
    assert not list(tmp_path.glob("**/ran")) and not Path("ran").exists()
    assert "helper" not in sys.modules
    assert not list(tmp_path.glob("**/__pycache__"))
