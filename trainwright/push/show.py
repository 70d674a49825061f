"""The document of ``push`` as text for people."""

from __future__ import annotations

from typing import Any

from trainwright.core.layout import size, table


def push_text(document: dict[str, Any]) -> str:
    """What is where under which tags, and the two lines that use it."""
    blocks = []
    for row in document["images"]:
        tags = [(one["tag"], one["state"] + (f": {one['says']}" if one["says"] else "")) for one in row["tags"]]
        sent = "there already" if row["layers_present"] is None else f"{row['layers_sent']} layers sent"
        if row["layers_sent"]:
            sent += f" ({size(row['sent_bytes'])})"
        if row["layers_present"]:
            sent += f", {row['layers_present']} there already"
        lines = [
            f"image   {row['image']}  {sent} in {row['seconds']:.0f} s",
            *(f"tag     {line}" for line in table(tags).splitlines()),
            f"sbom    {row['sbom']}" + (f", attached as {row['sbom_digest']}" if row["sbom_digest"] else ""),
            f"uri     {row['uri']}",
        ]
        blocks.append("\n".join(lines))
    last = document["images"][-1]
    blocks.append("\n".join(["use it", *usage(last["uri"], last["cuda"], last["entry_point"])]))
    return "\n\n".join(blocks)


def usage(uri: str, cuda: str, entry_point: str | None) -> list[str]:
    """The two lines of Python that train with an image."""
    kind = "ml.m5.xlarge" if cuda == "cpu" else "ml.g5.xlarge"
    script = "" if entry_point else ', entry_point="train.py"'
    arguments = f'image_uri="{uri}", role=ROLE, instance_count=1, instance_type="{kind}"{script}'
    return ["from sagemaker.estimator import Estimator", f'Estimator({arguments}).fit({{"training": "s3://…"}})']
