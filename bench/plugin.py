"""NCCL's plugin of an image without a GPU and without EFA: two processes move host memory through it, over tcp.

The programs (``bench/plugin/``) are compiled on this machine; a stub stands in for the CUDA runtime, as the real one
resolves nothing without a driver. The plugin is the image's own. Prints what each transfer took; fails if one is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainwright.engine.engine import connect  # noqa: E402

PROGRAMS = Path(__file__).with_name("plugin")
PLUGIN = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", required=True, help="an image with aws-ofi-nccl on Debian 13")
    image = parser.parse_args().image
    engine = connect(setup=False)
    with tempfile.TemporaryDirectory(prefix="plugin-") as name:
        folder = Path(name)
        runtime = ["gcc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcudart.so", "-o", f"{name}/libcudart.so"]
        subprocess.run([*runtime, PROGRAMS / "cudart.c"], check=True)  # noqa: S603
        # Only the C library is linked, as the image's is another release.
        ranks = ["g++", "-std=c++20", "-O2", "-static-libstdc++", "-static-libgcc", "-o", f"{name}/ranks"]
        subprocess.run([*ranks, PROGRAMS / "ranks.cpp", "-ldl"], check=True)  # noqa: S603
        folder.chmod(0o755)
        words = [engine.client.path, "run", "--rm", "--entrypoint", "/mnt/ranks", "-v", f"{name}:/mnt:ro"]
        words += [
            "-e",
            "LD_LIBRARY_PATH=/mnt",
            "-e",
            "FI_PROVIDER=tcp",
            "-e",
            "OFI_NCCL_PROTOCOL=SENDRECV",
            image,
            PLUGIN,
        ]
        return subprocess.run(words, check=False, env=engine.cli_env, timeout=600).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
