"""A wheel of one module that no index has."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile

NAME = "twprivate-1.0-py3-none-any.whl"


def wheel() -> bytes:
    """The wheel of ``twprivate`` 1.0, a module with ``ANSWER = 42``."""
    files = {
        "twprivate.py": "ANSWER = 42\n",
        "twprivate-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: twprivate\nVersion: 1.0\n",
        "twprivate-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text)}")
    files["twprivate-1.0.dist-info/RECORD"] = "\n".join([*rows, "twprivate-1.0.dist-info/RECORD,,"]) + "\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()
