"""Put the NCCL of the wheel on the loader path, so that ``dlopen("libnccl.so.2")`` finds the copy that torch loads."""

import sys
import sysconfig
from pathlib import Path

loader = Path(sys.argv[1] if len(sys.argv) > 1 else "/etc/ld.so.conf.d")
(loader / "nccl.conf").write_text(sysconfig.get_paths()["purelib"] + "/nvidia/nccl/lib\n")
