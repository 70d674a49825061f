"""Training Compiler: its parts belong together, and a script knows how many GPUs there are however it was started."""

import json

import pytest


def test_parts_come_from_one_build(python, plan):
    # All wheels of the component, by their own metadata: a base image's torch beside this torch_xla does not load.
    chosen = next(c for c in plan["components"] if c["name"] == "torch-xla")
    files = [s["file"] for s in chosen["sources"] if (s.get("file") or "").endswith(".whl") and s.get("url")]
    wanted = {name.split("-")[0].replace("_", "-"): name.split("-")[1] for name in files}
    script = f"import importlib.metadata as m, json; print(json.dumps([m.version(n) for n in {sorted(wanted)!r}]))"
    assert json.loads(python(script)) == [wanted[name] for name in sorted(wanted)]


def test_libraries_of_the_compiler_are_found(host, python):
    script = "import importlib.util; print(list(importlib.util.find_spec('_XLAC').submodule_search_locations or []) or "
    path = python(script + "importlib.util.find_spec('_XLAC').origin)")
    torch = python("import os, torch; print(os.path.dirname(torch.__file__) + '/lib')")
    said = host.check_output("env LD_LIBRARY_PATH=%s ldd %s", torch, path)
    assert {line.split()[0] for line in said.splitlines() if "not found" in line} <= {"libcuda.so.1"}


def test_devices_named_by_somebody_are_kept(host):
    assert host.check_output("GPU_NUM_DEVICES=3 python3 -c 'import os; print(os.environ[\"GPU_NUM_DEVICES\"])'") == "3"


def test_no_devices_are_made_up(host, gpus):
    if gpus:
        pytest.skip("there are GPUs")
    assert host.check_output("python3 -c 'import os; print(os.environ.get(\"GPU_NUM_DEVICES\"))'") == "None"


@pytest.mark.usefixtures("requires_gpu")
def test_devices_are_counted(python):
    script = "import os, torch; print(int(os.environ['GPU_NUM_DEVICES']) == torch.cuda.device_count())"
    assert python(script) == "True"
