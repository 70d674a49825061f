"""What ``build --on codebuild`` sends: this program, and what a request needs of the user's folders, in one zip.

CodeBuild unpacks a zip and forgets which files may be run, so everything but the buildspec is in a tar inside of it.
Times, owners and order are fixed: the same content is the same file. Of ``trainwright.toml``, only ``[image]`` is sent,
written anew; the rest is about this machine, and may hold its credentials.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from trainwright.catalog.image_line import cuda_tag
from trainwright.catalog.platforms import AMD64
from trainwright.core.errors import RequestError
from trainwright.core.layout import size
from trainwright.core.paths import data_root, import_root, own_catalog, state_dir
from trainwright.pipeline import buildspec
from trainwright.plan.destination import SAGEMAKER
from trainwright.plan.plan import Plan
from trainwright.plan.plan_lock import lock_path
from trainwright.plan.project import project_text
from trainwright.plan.request import Request
from trainwright.site.site import SITE_FILE, Site
from trainwright.user.files import FoundFile, catalog_files, code_files, named_file, refuse_secrets
from trainwright.user.required import file_of

BUILDSPEC = "buildspec.yml"
ARCHIVE = "trainwright.tar.gz"
PROGRAM, PROJECT = "program", "project"  # the folders in the archive
TEMPLATE = "upload.yml.j2"
# S3 takes 5 GB in one request (PutObject); what an image needs of a folder is far less, and data belongs elsewhere.
LIMIT = 1_000_000_000
_FOLDERS = ("images", "proofs", "templates")
_FRONT_DOOR = ("invoke", "requirements.txt", "tasks.py")
_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip can have
_EXECUTABLE, _PLAIN = 0o755, 0o644


@dataclass(frozen=True)
class Upload:
    """A file to send.

    Attributes:
        path: the zip.
        sha256: its digest.
        size: its bytes.
        sent: names of the files in it that are the user's, as they are in the project's folder.
        words: flags of the request that a project file cannot say.
    """

    path: Path
    sha256: str
    size: int
    sent: tuple[str, ...]
    words: str


def write_upload(path: Path, request: Request, plan: Plan, site: Site) -> Upload:
    """Write the zip of a request.

    Args:
        path: the file to write.
        request: what is to be built.
        plan: what it resolves to here; its lock goes along, if there is one.
        site: says where locks are.

    Raises:
        RequestError: a file looks like credentials, cannot be read or has changed meanwhile, or all are too big.
    """
    users = user_files(request, plan, site)
    total = sum(file.size for file in users.values())
    if total > LIMIT:
        name, largest = max(users.items(), key=lambda each: each[1].size)
        raise RequestError(
            f"{size(total)} would be sent, and {size(LIMIT)} at most may be; the largest file is "
            f"{PurePosixPath(name).name} with {size(largest.size)}",
            remedy="Leave data out of --code (.dockerignore): a job gets it from its channels.",
        )
    content: dict[str, FoundFile | str] = {}
    content |= {f"{PROGRAM}/{name}": file for name, file in program_files().items()}
    content |= {f"{PROJECT}/{name}": file for name, file in users.items()}
    content[f"{PROJECT}/{SITE_FILE}"] = project_file(request)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        out.writestr(_entry(BUILDSPEC), buildspec.render(TEMPLATE, {}))
        with out.open(_entry(ARCHIVE), "w", force_zip64=True) as file:
            _write_archive(file, content)
    with path.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    return Upload(path, digest, path.stat().st_size, tuple(sorted(users)), extra_words(request))


def program_files() -> dict[str, FoundFile]:
    """The files of this program, by their names in a checkout of it; whether it runs from one, or was installed.

    Raises:
        RequestError: it was installed without what starts it.
    """
    data = data_root()
    roots = {"trainwright": import_root() / "trainwright", **{name: data / name for name in _FOLDERS}}
    found = {
        f"{name}/{path.relative_to(root).as_posix()}": path
        for name, root in roots.items()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # What an installed package holds beside its modules has its place in a checkout already.
    found = {name: path for name, path in found.items() if not name.startswith("trainwright/data/")}
    found |= {name: data / name for name in _FRONT_DOOR}
    if missing := [name for name in _FRONT_DOOR if not found[name].is_file()]:
        raise RequestError(
            f"{data}: has no {', '.join(missing)}, and without it this program does not start elsewhere",
            remedy="Install Trainwright again, or use a checkout of it.",
        )
    files = {name: named_file(name, path) for name, path in found.items()}
    # An installed file has lost this.
    return files | {"invoke": FoundFile("invoke", found["invoke"], files["invoke"].size, executable=True)}


def user_files(request: Request, plan: Plan, site: Site) -> dict[str, FoundFile]:
    """What of the user's own files a request needs, by its name in the project's folder.

    Raises:
        RequestError: one looks like credentials, or cannot be read.
    """
    user, found = request.user, dict[str, FoundFile]()
    requirements = None if user.requirements is None else file_of(user.requirements)
    for folder, path in (("requirements", requirements), ("run", user.run)):
        if path is not None:
            one = found[f"files/{folder}/{path.name}"] = named_file(path.name, path)
            if not user.allow_secrets:
                refuse_secrets([one], f"--with-{folder} {path}", "name another file", root=path.parent)
    if user.code is not None:
        code = code_files(user.code, allow_secrets=user.allow_secrets)
        found |= {f"files/code/{file.name}": file for file in code}
    if (catalog := own_catalog()) is not None:
        found |= {f"catalog/{file.name}": file for file in catalog_files(catalog)}
    if (lock := lock_path(plan, site)).is_file():
        found[f"locks/{lock.name}"] = named_file(lock.name, lock)
    if request.allow_unproven:
        # Those that were made for versions without a line: without them, another day would resolve to another plan.
        made = (state_dir() / "locks").glob("*.lock.json")
        found |= {f".trainwright/locks/{path.name}": named_file(path.name, path) for path in made}
    return found


def project_file(request: Request) -> str:
    """The request as ``trainwright.toml``, with its files where the archive has them."""
    user = request.user
    requirements = None if user.requirements is None else f"files/requirements/{user.requirements.name}"
    return project_text(
        {
            "framework": request.framework,
            "cuda": None if request.cuda is None else cuda_tag(request.cuda),
            "version": request.version,
            "python": request.python,
            "base": request.base,
            "for": None if request.destination == SAGEMAKER else request.destination,
            "platform": None if request.platform == AMD64 else request.platform,
            "with": list(request.with_),
            "without": list(request.without),
            "set": dict(request.set_),
            "for_gpus": list(request.gpus),
            "requirements": requirements,
            "apt": list(user.apt),
            "run": None if user.run is None else f"files/run/{user.run.name}",
            "code": None if user.code is None else "files/code",
            "entry_point": user.entry_point,
        }
    )


def extra_words(request: Request) -> str:
    """The flags of a request that a project file has no key for; none of their values has a space."""
    words = ["--allow-unproven"] if request.allow_unproven else []
    words += ["--allow-secrets"] if request.user.allow_secrets else []
    words += ["--allow-change", ",".join(request.user.allow_change)] if request.user.allow_change else []
    return " ".join(words)


def _write_archive(file: IO[bytes], content: Mapping[str, FoundFile | str]) -> None:
    # The level is written into gzip's header, as its time would be.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out,
    ):
        for name, each in sorted(content.items()):
            with _opened(each) as (source, length, executable):
                info = tarfile.TarInfo(name)
                info.size, info.mtime = length, 0
                info.mode = _EXECUTABLE if executable else _PLAIN
                try:
                    out.addfile(info, source)
                except OSError:
                    raise RequestError(f"{name}: has changed while it was read", remedy="Run it again.") from None


@contextmanager
def _opened(each: FoundFile | str) -> Iterator[tuple[IO[bytes], int, bool]]:
    """The content of a file or a text, its length, and whether it may be run."""
    if isinstance(each, str):
        text = each.encode()
        yield io.BytesIO(text), len(text), False
        return
    try:
        file = each.path.open("rb")
    except OSError as refused:
        raise RequestError(f"{each.path}: cannot be read: {refused.strerror}", remedy="Make it readable.") from None
    with file:
        yield file, each.size, each.executable


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.external_attr = _PLAIN << 16
    info.create_system = 3  # Unix, wherever this runs
    return info
