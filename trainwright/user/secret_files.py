"""Files that hold credentials, known by their names: one table for what enters an image and for what is found in one.

The names are those of the tools that write the files; each row says whose. Nothing is opened but files in PEM format:
one with certificates and public keys alone is no secret, as a bundle of authorities.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

# Patterns of paths from any folder on; `/.*` at the end takes all that a folder holds.
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
# What looks like one of them and shows only which settings there are; public halves of keys have other names already.
HARMLESS = (r"\.env[^/]*\.(?:example|sample|template|tmpl|dist|defaults?)",)
# Labels of RFC 7468 and openssl(1) whose content everybody may see.
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
    """The table as data, for the program that looks into an image and cannot import this module."""
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
    """Whether a path, seen from any folder, is one by which a tool keeps credentials."""
    return bool(_compiled("secret").fullmatch(name)) and not _compiled("harmless").fullmatch(name)


def is_secret(name: str, path: Path) -> bool:
    """Whether a file holds credentials, by its name; one in PEM format is looked into.

    Args:
        name: of the file, from the folder that is looked through.
        path: where it is.

    Raises:
        OSError: the file cannot be read.
    """
    return named_like_a_secret(name) and not (_compiled("pem").fullmatch(name) and _public(path))


def _public(path: Path) -> bool:
    if path.stat().st_size > _PEM_BYTES:
        return False
    labels = re.findall(PEM_LABEL, path.read_text(errors="replace"))
    return bool(labels) and set(labels) <= set(PUBLIC)
