"""Files with credentials, recognised by name: one table for files that enter an image and for those found in one.

The names come from the tools that write the files; each row names its tool. Only files in PEM format are opened: one
with nothing but certificates and public keys, such as a CA bundle, is not a secret.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

# Patterns of paths in any folder; `/.*` at the end matches everything in a folder.
NAMES = (
    # python-dotenv and Docker Compose; direnv has .envrc, cookiecutter-django a folder .envs.
    r"\.env[^/]*(?:/.*)?",
    r"[._]netrc",  # curl, pip, git and W&B keep passwords in ~/.netrc, on Windows in ~/_netrc (Python: netrc)
    r"\.aws/.*",  # AWS CLI User Guide, "Configuration and credential file settings"
    r"\.ssh/.*",  # OpenSSH, pathnames.h: _PATH_SSH_USER_DIR
    # OpenSSH, pathnames.h: _PATH_SSH_CLIENT_ID_*; and copies that people make, such as id_rsa_work and id_rsa.old.
    r"id_(?:rsa|dsa|ecdsa|ed25519|xmss)[^/.]*(?:\.(?:old|bak|orig|save))?",
    r"[^/]+\.(?:pem|key|ppk|p12|pfx)",  # openssl(1), PuTTY, PKCS #12
    r"\.git-credentials|git/credentials",  # git-credential-store(1), "FILES"
    r"\.pypirc",  # Python Packaging User Guide, "The .pypirc file"
    r"pip\.(?:conf|ini)",  # pip, "Configuration": index URLs with a password
    r"\.docker/config\.json|\.dockercfg|\.dockerconfigjson",  # docker login; Kubernetes, "Types of Secret"
    r"\.kube/.*",  # Kubernetes, "Organizing Cluster Access Using kubeconfig Files"
    r"\.?huggingface/token|stored_tokens",  # huggingface_hub, constants.py: HF_TOKEN_PATH, HF_STORED_TOKENS_PATH
    r"\.?wandb/settings",  # wandb login: "the api_key setting in a system or workspace settings file"
    r"kaggle\.json|\.kaggle/.*|kaggle/access_token",  # kaggle-api, "API credentials"
)
# Exceptions that only show which settings exist; public keys do not match the names above.
HARMLESS = (r"\.env[^/]*\.(?:example|sample|template|tmpl|dist|defaults?)",)
# Labels of RFC 7468 and openssl(1) with public content.
PUBLIC = (
    "CERTIFICATE",
    "TRUSTED CERTIFICATE",
    "X509 CERTIFICATE",
    "X509 CRL",
    "CERTIFICATE REQUEST",
    "NEW CERTIFICATE REQUEST",
    "PKCS7",
    "CMS",
    "ATTRIBUTE CERTIFICATE",
    "PUBLIC KEY",
    "RSA PUBLIC KEY",
    "DH PARAMETERS",
    "DSA PARAMETERS",
    "EC PARAMETERS",
)
PEM_LABEL = r"-----BEGIN ([A-Z0-9 ]+)-----"
_PEM_BYTES = 16_000_000  # the largest bundle that is read; a larger file counts as secret


def rules() -> dict[str, Any]:
    """The table as data, for the probe, which runs inside an image and cannot import this module."""
    return {
        "secret": rf"(?i)(?:.*/)?(?:{'|'.join(NAMES)})",
        "harmless": rf"(?i)(?:.*/)?(?:{'|'.join(HARMLESS)})",
        "pem": r"(?i).*\.(?:pem|key)",
        "label": PEM_LABEL,
        "public": list(PUBLIC),
    }


@cache
def _compiled(name: str) -> re.Pattern[str]:
    return re.compile(rules()[name], re.DOTALL)


def named_like_a_secret(name: str) -> bool:
    """Whether a relative path is one under which a tool keeps credentials."""
    return bool(_compiled("secret").fullmatch(name)) and not _compiled("harmless").fullmatch(name)


def is_secret(name: str, path: Path) -> bool:
    """Whether a file contains credentials, by its name; files in PEM format are opened.

    Args:
        name: of the file, relative to the searched folder.
        path: of the file.

    Raises:
        OSError: the file cannot be read.
    """
    return named_like_a_secret(name) and not (_compiled("pem").fullmatch(name) and _public(path))


def _public(path: Path) -> bool:
    if path.stat().st_size > _PEM_BYTES:
        return False
    labels = re.findall(PEM_LABEL, path.read_text(errors="replace"))
    return bool(labels) and set(labels) <= set(PUBLIC)
