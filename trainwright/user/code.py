"""The folder of ``--code`` and the script of ``--entry-point``, as a user names them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.text import fits
from trainwright.user.dockerignore import NAME as IGNORE_FILE

# Folders of the system (Filesystem Hierarchy Standard 3.0): not a user's code, and far too many files.
_SYSTEM = {"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var"}
_ENDLESS = ("/dev/", "/proc/", "/sys/")
# The toolkit accepts only names of this form (sagemaker-training 5.1.4); it would refuse the job later.
_ENTRY_POINT = r"[A-Za-z0-9._+][A-Za-z0-9._+/-]*"


def code_folder(code: str) -> Path:
    """The folder of ``--code``, links resolved.

    Raises:
        RequestError: it is missing, not a folder, or a system folder.
    """
    if not code:
        raise RequestError("--code is empty", remedy="For example: --code src --entry-point train.py")
    try:
        folder = Path(code).resolve()
        there, is_folder = folder.exists(), folder.is_dir()
    except (OSError, RuntimeError) as refused:
        why = refused.strerror if isinstance(refused, OSError) else "a link loop"
        raise RequestError(f"--code {code}: cannot be opened: {why}") from None
    if not is_folder:
        wrong = "is not a directory" if there else "no such folder"
        raise RequestError(f"--code {code}: {wrong}", remedy="Use the folder that contains your script.")
    if {str(folder), str(Path(code).absolute())} & _SYSTEM or str(folder).startswith(_ENDLESS):
        raise RequestError(
            f"--code {code}: is a system folder, and all of it would be baked into the image",
            remedy="Use a folder that contains your script and little else.",
        )
    return folder


def check_entry_point(entry_point: str, folder: Path, names: Collection[str], code: str) -> None:
    """Refuse an entry point that is not among the baked files.

    Args:
        entry_point: relative to the folder.
        folder: of ``--code``.
        names: of the files that are baked.
        code: the folder as the user named it.

    Raises:
        RequestError: with the nearest script.
    """
    if not fits(_ENTRY_POINT, entry_point, limit=1024) or ".." in Path(entry_point).parts:
        raise RequestError(
            f"--entry-point {entry_point}: must be a plain path inside --code (letters, digits and . _ + - /)"
        )
    if PurePosixPath(entry_point).as_posix() in names:
        return
    if (folder / entry_point).is_file():
        raise RequestError(
            f"--entry-point {entry_point}: is in {code}, but would not be baked",
            remedy=f"{IGNORE_FILE} leaves it out, or it belongs to a cache, an environment or version control.",
        )
    scripts = sorted(name for name in names if name.endswith(".py"))
    near = f"It contains {', '.join(scripts)}" if len(scripts) <= 5 else did_you_mean(entry_point, scripts[:1000])
    raise RequestError(
        f"--entry-point {entry_point}: not in {code}", remedy=near if scripts else f"{code} contains no Python file."
    )
