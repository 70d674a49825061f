"""Where the hosts of a rehearsal get packages from: this machine's indexes, for jobs with a ``requirements.txt``.

On the platform that is the internet, or a mirror of the VPC. Here it is what pip is told on this machine, given to the
hosts as pip's own configuration: mounted read-only, never part of the image.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from trainwright.rehearse.opt_ml import CONTROL
from trainwright.site.site import Site

_PLACE = f"{CONTROL}/site"


@dataclass(frozen=True)
class HostIndexes:
    """What every host is given beside the control folder: folders to mount (source, place in the host), variables."""

    mounts: tuple[tuple[Path, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def write_indexes(site: Site, control: Path) -> HostIndexes:
    """Write pip's configuration for the hosts into the control folder.

    Args:
        site: of this machine. Its credentials go into a file that only the caller (and a container's root) can read.
        control: the folder that every host sees at :data:`CONTROL`.

    Returns:
        Nothing where pip needs no telling.
    """
    folder = control / "site"
    wheels, indexes = ([path.resolve() for path in paths] for paths in (site.find_links, site.local_indexes))
    # The pages of an index link to files beside it (../../files/…), so the folder above is mounted.
    folders = [*wheels, *(index.parent for index in indexes)]
    places = [f"{_PLACE}/{number}" for number in range(len(folders))]
    local = [f"file://{place}/{index.name}" for place, index in zip(places[len(wheels) :], indexes, strict=True)]
    urls = [*site.extra_index_urls, *local]
    index = site.index_url or ""
    if site.no_index and indexes:
        # pip would not ask its default index either: the first folder stands for it.
        index = urls.pop(len(site.extra_index_urls))
    rows = {
        "index-url": index,
        "extra-index-url": " ".join(urls),
        "find-links": " ".join([*site.find_links_urls, *places[: len(wheels)]]),
        "no-index": "true" if site.no_index and not indexes else "",
        "proxy": site.proxies.https or site.proxies.http or "",
        "cert": f"{_PLACE}/ca.pem" if site.ca_bundle else "",
    }
    lines = [f"{name} = {value.replace('%', '%%')}" for name, value in rows.items() if value]
    if not lines:
        return HostIndexes()
    folder.mkdir(parents=True)
    for number in range(len(places)):
        (folder / str(number)).mkdir()  # a mount point
    with os.fdopen(os.open(folder / "pip.conf", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write("\n".join(["[global]", *lines]) + "\n")
    if site.ca_bundle:
        shutil.copyfile(site.ca_bundle, folder / "ca.pem")
    return HostIndexes(tuple(zip(folders, places, strict=True)), (("PIP_CONFIG_FILE", f"{_PLACE}/pip.conf"),))
