"""Notebooks (nbformat 4, with IPython's magics): which code is a training script, and where its findings are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.errors import RequestError
from trainwright.preflight.notebooks import scripts_of
from trainwright.preflight.preflight import preflight

WRONG = "import os\nos.environ['N'] = 4\n"
TRAINS = "loss.backward()\n"


def cell(source: Any, kind: str = "code") -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "outputs": [], "source": source}


def notebook(folder: Path, *sources: Any, language: str = "python", indent: int | None = 1) -> Path:
    """Write a notebook; a text is kept as Jupyter keeps it, as a list of lines."""
    cells = [each if isinstance(each, dict) else cell(each.splitlines(keepends=True)) for each in sources]
    data = {"cells": cells, "metadata": {"language_info": {"name": language}}, "nbformat": 4, "nbformat_minor": 5}
    path = folder / "a.ipynb"
    path.write_text(json.dumps(data, indent=indent))
    return path


def test_a_finding_is_at_its_line_in_the_file(tmp_path):
    path = notebook(tmp_path, cell(["# title"], "markdown"), "x = 1\n", f"\n{WRONG}{TRAINS}")
    (finding,) = preflight([str(path)]).findings
    assert finding.line is not None
    assert "os.environ['N'] = 4" in path.read_text().splitlines()[finding.line - 1]
    assert (finding.code, finding.path) == ("TW160", str(path)) and "cell 3, line 3" in finding.message


@pytest.mark.parametrize("indent", [1, None])
def test_a_cell_may_be_one_text(tmp_path, indent):
    path = notebook(tmp_path, cell(f'x = "\\"{{"\n{WRONG}{TRAINS}'), indent=indent)
    (finding,) = preflight([str(path)]).findings
    assert finding.line is not None
    assert "os.environ['N'] = 4" in path.read_text().splitlines()[finding.line - 1]
    assert "cell 1, line 3" in finding.message


def test_what_writefile_writes_is_a_script(tmp_path):
    path = notebook(
        tmp_path,
        "import sagemaker\nfrom sagemaker.pytorch import PyTorch\nimport os\nos.environ['M'] = 4\n",
        f"%%writefile code/helper.py\n{WRONG}",
        f"%%writefile code/train.py\nimport helper\n{TRAINS}",
        "%%writefile -a code/train.py\nimport os\nos.environ['X'] = 5\n",
        "%%writefile code/requirements.txt\nnumpy\n",
        "%%bash\nos.environ['N'] = 4\n",
    )
    made = preflight([str(path)])
    assert [(f.code, f.message.rpartition(" (")[2]) for f in made.findings] == [
        ("TW160", "cell 2, line 3: code/helper.py)"),
        ("TW160", "cell 4, line 3: code/train.py)"),
    ]
    assert made.subject == f"{path}#code/train.py" and made.files == (str(path),)
    rows = path.read_text().splitlines()
    assert ["os.environ['N'] = 4" in rows[f.line - 1] for f in made.findings if f.line] == [True, False]


def test_a_written_script_imports_what_is_beside_the_notebook(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "helper.py").write_text(WRONG)
    path = notebook(tmp_path, f"%%writefile ./code/train.py\nimport helper\n{TRAINS}")
    (finding,) = preflight([str(path)]).findings
    assert (finding.path, finding.line) == (str(tmp_path / "code" / "helper.py"), 2)


def test_a_script_is_never_written(tmp_path):
    preflight([str(notebook(tmp_path, f"%%writefile ../x.py\n{WRONG}{TRAINS}", f"%%writefile /x.py\n{TRAINS}"))])
    assert [each.name for each in tmp_path.iterdir()] == ["a.ipynb"]
    assert not (tmp_path.parent / "x.py").exists() and not Path("/x.py").exists()


@pytest.mark.parametrize(
    "source",
    [
        f"!pip install torch \\\n  --quiet\n{WRONG}",
        f"%matplotlib inline\n{WRONG}",
        f"files = !ls\n{WRONG}",
        f"if x:\n    %cd y\n{WRONG}",
        f"os?\n{WRONG}",
        f"%%time\n{WRONG}",
        f"await x\n{WRONG}",
    ],
)
def test_magics_are_no_mistakes(tmp_path, source):
    path = notebook(tmp_path, source, TRAINS)
    assert [f.code for f in preflight([str(path)]).findings] == ["TW160"]


def test_a_remainder_after_a_percent_is_no_magic(tmp_path):
    (code,) = scripts_of(notebook(tmp_path, "x = (a\n% b)\n").read_text(), "a.ipynb")
    assert code.lines == ["x = (a", "% b)"]


def test_invalid_python_is_a_finding(tmp_path):
    path = notebook(tmp_path, "def f(:\n", TRAINS)
    (finding,) = preflight([str(path)]).findings
    assert (finding.code, finding.path) == ("TW100", str(path)) and "cell 1, line 1" in finding.message


def test_folders_of_a_container_are_no_matter_in_a_notebook(tmp_path):
    save = f"import torch\n{TRAINS}optimizer.step()\ntorch.save(model.state_dict(), 'model.pt')\n"
    path = notebook(tmp_path, save)
    assert not {"TW142", "TW144", "TW145"} & {f.code for f in preflight([str(path)]).findings}
    path = notebook(tmp_path, f"%%writefile train.py\n{save}")
    assert "TW142" in {f.code for f in preflight([str(path)]).findings}


def test_a_comment_silences_in_a_notebook(tmp_path):
    path = notebook(tmp_path, f"{WRONG.strip()}  # trainwright: ignore[TW160] why\n{TRAINS}")
    made = preflight([str(path)])
    assert made.findings == () and [each.path for each in made.silenced] == [str(path)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 1}', '{"worksheets": []}', '{"cells": [], "cells": []}'])
def test_what_is_no_notebook_is_refused(tmp_path, text):
    (tmp_path / "a.ipynb").write_text(text)
    with pytest.raises(RequestError, match=r"a\.ipynb"):
        preflight([str(tmp_path / "a.ipynb")])


@pytest.mark.parametrize("odd", [1, None, {"a": 1}, [1, None, "loss.backward()\n"], {"cell_type": 3, "source": 4}])
def test_odd_cells_stop_nothing(tmp_path, odd):
    path = notebook(tmp_path, cell(odd), f"{WRONG}{TRAINS}")
    assert [f.code for f in preflight([str(path)]).findings] == ["TW160"]


def test_another_language_is_not_read(tmp_path):
    assert scripts_of(notebook(tmp_path, WRONG, language="R").read_text(), "a.ipynb") == []
