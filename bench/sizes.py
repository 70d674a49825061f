"""What images weigh unpacked, and compressed as a registry keeps them: bytes of each layer, without a registry."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measured import keep, machine, measured, today  # noqa: E402
from trainwright.cli.output import say  # noqa: E402
from trainwright.core.layout import size  # noqa: E402
from trainwright.engine.engine import Engine, connect  # noqa: E402

# The third: what a request for the framework alone takes; bench/efa.py weighs it without EFA for NCCL.
FOR_GPUS = "pytorch:cu124 --for-gpus 8.0,9.0"
LINES = ("pytorch:cu124", FOR_GPUS, "pytorch", "pytorch:cpu")
_CHUNK = 1 << 20


def layers_of(saved: IO[bytes]) -> Iterator[tuple[int, int]]:
    """(unpacked, compressed) bytes of each layer of an image, in the order of ``docker save``.

    Compressed with gzip at its usual level, as ``docker push`` does; a layer that is compressed already is not again.
    """
    with tarfile.open(fileobj=saved, mode="r|") as archive:
        for entry in archive:
            body = archive.extractfile(entry) if entry.isreg() else None
            if body is None:
                continue
            first = body.read(_CHUNK)
            if first[257:262] != b"ustar" and first[:2] != b"\x1f\x8b":
                continue  # a configuration, a manifest
            packing = zlib.compressobj(6, wbits=31)
            opening = zlib.decompressobj(wbits=31) if first[:2] == b"\x1f\x8b" else None
            unpacked = compressed = 0
            while first:
                if opening is None:
                    unpacked, compressed = unpacked + len(first), compressed + len(packing.compress(first))
                else:
                    unpacked, compressed = unpacked + len(opening.decompress(first)), compressed + len(first)
                first = body.read(_CHUNK)
            yield unpacked, compressed + (len(packing.flush()) if opening is None else 0)


def build(request: str, site: str, *more: str, **kept: Any) -> subprocess.CompletedProcess[str]:
    """Run ``build`` for a request, in its words, with a site file if there is one."""
    argv = [sys.executable, str(ROOT / "tasks.py"), "build", *request.split(), *more]
    argv += ["--site", site] if site else []
    return subprocess.run(argv, text=True, check=False, **kept)  # noqa: S603 - argv is ours


def weigh(engine: Engine, request: str, site: str) -> dict[str, Any]:
    """The sizes of the image of a request, which is built, if only from the cache."""
    done = build(request, site, "--json", stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"{request}: {done.stdout}")
    built = json.loads(done.stdout)
    say(f"{request}: compressing {size(built['size_bytes'])}")
    argv = [engine.client.path, "save", built["image_id"]]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as saving:  # noqa: S603
        assert saving.stdout is not None
        layers = list(layers_of(saving.stdout))
    if saving.returncode or not layers:
        raise SystemExit(f"{request}: docker save ended with {saving.returncode}")
    compressed = sum(packed for _, packed in layers)
    return {"image": built["tags"][0], "unpacked": built["size_bytes"], "compressed": compressed, "layers": len(layers)}


def main() -> None:
    """Build, weigh, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", nargs="*", default=LINES, help=f"as build takes it (default: {', '.join(LINES)})")
    parser.add_argument("--site", default="", help="a site file, where archives are in a folder of this machine")
    words = parser.parse_args()
    engine = connect(say=say)
    before = measured("sizes")
    found = dict(before.values) if before is not None else {}
    for request in words.requests:
        # Those of other requests may be from another day and machine.
        found[request] = {**weigh(engine, request, words.site), "date": today(), "machine": machine(engine)}
        each = found[request]
        print(f"{request}: {each['image']}: {size(each['unpacked'])} unpacked, {size(each['compressed'])} compressed")
        keep("sizes", found, engine)


if __name__ == "__main__":
    main()
