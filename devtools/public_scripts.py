"""Preflight over public training scripts, held against ``tests/corpus/public.yaml``.

``python -m devtools.public_scripts FOLDER [--fetch [URL]] [--write]``: FOLDER holds a checkout of each repository of
the list, as ``owner+name`` (or ``owner/name``), at the commit that the list names. Without a checkout a script is
skipped; ``--fetch`` makes those that are missing, of the listed scripts' folders alone, from GitHub or from what else
serves ``URL/owner/name``. ``--write`` records today's findings; look at each change before you commit it.
``source_dir`` is the folder that goes into the job, if it is not the script's own; ``hyperparameters`` are what the
repository's own instructions pass.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from trainwright.core.records import parse_record
from trainwright.preflight.preflight import examine
from trainwright.sagemaker.job import Job
from trainwright.script.reader import Reader

LIST = Path(__file__).resolve().parents[1] / "tests" / "corpus" / "public.yaml"
P4D = "ml.p4d.24xlarge"
# The job that fits a script; the list names one for each.
JOBS: dict[str, dict[str, Any]] = {
    "process": {"instance_type": "ml.g5.2xlarge"},
    "process-8": {"instance_type": P4D},
    "hosts": {"instance_type": "ml.c5.4xlarge", "instance_count": 2},
    "hosts-gpu": {"instance_type": "ml.p3.2xlarge", "instance_count": 2},
    "pytorchddp": {"instance_type": P4D, "distribution": {"pytorchddp": {"enabled": True}}},
    "torchrun": {
        "instance_type": P4D,
        "instance_count": 2,
        "distribution": {"torch_distributed": {"enabled": True}},
    },
    "torchrun-host": {"instance_type": P4D, "distribution": {"torch_distributed": {"enabled": True}}},
    "mpi": {
        "instance_type": P4D,
        "instance_count": 2,
        "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
    },
    "smddp": {
        "instance_type": P4D,
        "instance_count": 2,
        "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
    },
    "smp": {
        "instance_type": P4D,
        "distribution": {
            "smdistributed": {"modelparallel": {"enabled": True, "parameters": {"pipeline_parallel_degree": 2}}},
            "mpi": {"enabled": True, "processes_per_host": 8},
        },
    },
    "xla": {"instance_type": "ml.p3.16xlarge", "distribution": {"pytorchxla": {"enabled": True}}},
    "tensorflow": {"instance_type": "ml.g5.2xlarge", "plan": {"framework": "tensorflow"}},
    "tensorflow-hosts": {
        "instance_type": "ml.g5.2xlarge",
        "instance_count": 2,
        "plan": {"framework": "tensorflow"},
    },
    "tensorflow-mpi": {
        "instance_type": P4D,
        "instance_count": 2,
        "plan": {"framework": "tensorflow"},
        "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
    },
    "tensorflow-smddp": {
        "instance_type": P4D,
        "instance_count": 2,
        "plan": {"framework": "tensorflow"},
        "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
    },
    "mwms": {
        "instance_type": P4D,
        "instance_count": 2,
        "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
    },
}


def found_in(checkout: Path, row: dict[str, Any]) -> list[str] | None:
    """Return the findings in a script as ``TW121 error train.py:31``, sorted; None if it is not checked out."""
    path = checkout / row["path"]
    if not path.is_file():
        return None
    job = parse_record(Job, JOBS[row["job"]] | {"hyperparameters": row.get("hyperparameters", {})}, row["path"])
    root = checkout / row["source_dir"] if "source_dir" in row else path.parent
    found = examine(Reader().script(path.resolve(), root.resolve()), job).findings
    return sorted(f"{f.code} {f.severity} {f.path}:{f.line}" for f in found)


def fetch(repository: dict[str, Any], url: str, checkout: Path) -> None:
    """Check out one commit of a repository, of it the folders with the listed scripts and their sources.

    Args:
        repository: its entry of the list.
        url: of the server: the repository is ``URL/owner/name``.
        checkout: the folder to make.

    Raises:
        CalledProcessError: git fails, for example without a network; it prints why.
    """
    folders = {str(row.get("source_dir") or Path(row["path"]).parent) for row in repository["scripts"]}
    patterns = [f"/{folder}/" if folder != "." else "/*" for folder in sorted(folders)]
    address = f"{url.rstrip('/')}/{repository['repository']}"
    for words in (
        ["init", "--quiet", str(checkout)],
        ["-C", str(checkout), "remote", "add", "origin", address],
        ["-C", str(checkout), "sparse-checkout", "set", "--no-cone", *patterns],
        ["-C", str(checkout), "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", repository["commit"]],
        ["-C", str(checkout), "checkout", "--quiet", "FETCH_HEAD"],
    ):
        subprocess.run(["git", *words], check=True)  # noqa: S603, S607 - argv is ours


def main(arguments: list[str]) -> int:
    """Compare the findings with the list; return 1 if they differ."""
    parser = argparse.ArgumentParser(prog="python -m devtools.public_scripts")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fetch", nargs="?", const="https://github.com", metavar="URL")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args(arguments)
    folder = asked.folder
    repositories = yaml.safe_load(LIST.read_text())
    differ, seen, count = 0, 0, Counter[str]()
    for repository in repositories:
        owner, name = repository["repository"].split("/")
        places = (folder / f"{owner}+{name}", folder / owner / name)
        checkout = next((place for place in places if place.is_dir()), places[0])
        if asked.fetch and not checkout.is_dir():
            try:
                fetch(repository, asked.fetch, checkout)
            except subprocess.CalledProcessError:
                shutil.rmtree(checkout, ignore_errors=True)
                print(f"{owner}/{name}: not fetched")
        for row in repository["scripts"]:
            found = found_in(checkout, row)
            if found is None:
                continue
            known = row.pop("findings", [])
            seen += 1
            count.update(line.split(":")[0].rpartition(" ")[0] for line in found)
            for sign, lines in (("+", set(found) - set(known)), ("-", set(known) - set(found))):
                for line in sorted(lines):
                    differ += 1
                    print(f"{owner}/{name} {row['path']}: {sign} {line}")
            if found:
                row["findings"] = found
    print(
        f"{seen} of {sum(len(r['scripts']) for r in repositories)} scripts checked out, {differ} findings differ; now:"
    )
    for what, number in sorted(count.items()):
        print(f"  {number:4} {what}")
    if asked.write:
        LIST.write_text(yaml.safe_dump(repositories, sort_keys=False, width=118, default_flow_style=None))
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
