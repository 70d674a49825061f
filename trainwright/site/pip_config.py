"""pip's options for the sources of packages, read as pip itself reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainwright.core.data_files import read_text
from trainwright.core.errors import RequestError
from trainwright.core.paths import setting

# The names of pip and of the site.
PIP_OPTIONS = {
    "index-url": "index_url",
    "extra-index-url": "extra_index_urls",
    "find-links": "find_links",
    "no-index": "no_index",
}


def pip_options(environ: Mapping[str, str], home: Path | None) -> dict[str, tuple[str, str]]:
    """pip's options, each with where it was set, read in pip's own order (pip, ``_internal/configuration.py``).

    Args:
        environ: the environment.
        home: of the user, if there is one.

    Later files win: global, user, the virtual environment's, ``PIP_CONFIG_FILE`` (which replaces the user's; the null
    device disables all files); ``[install]`` wins over ``[global]``, ``PIP_*`` variables over everything.

    Raises:
        RequestError: a file cannot be read.
    """
    named = setting("PIP_CONFIG_FILE", environ)
    folders = (setting("XDG_CONFIG_DIRS", environ) or "/etc/xdg").split(":")
    files = [Path(folder) / "pip/pip.conf" for folder in folders if folder]
    files.append(Path("/etc/pip.conf"))
    if not (named and Path(named).exists()):
        config = setting("XDG_CONFIG_HOME", environ) or (home and home / ".config")
        files += [home / ".pip/pip.conf"] if home else []
        files += [Path(config) / "pip/pip.conf"] if config else []
    if venv := setting("VIRTUAL_ENV", environ):
        files.append(Path(venv) / "pip.conf")
    if named:
        files.append(Path(named))
    sections: dict[str, dict[str, tuple[str, str]]] = {"global": {}, "install": {}}
    for file in files if named != os.devnull else []:
        if not file.exists():
            continue
        import configparser  # most machines have no such file

        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_text(file, remedy="pip cannot read its configuration either."), str(file))
        except configparser.Error as wrong:
            raise RequestError(f"pip cannot read its configuration: {wrong}", remedy=f"Fix {file}.") from wrong
        for section in sections.keys() & set(parser.sections()):
            for key, value in parser.items(section):
                sections[section][key.replace("_", "-").removeprefix("--")] = (value, str(file))
    rows = sections["global"] | sections["install"]
    for key in (*PIP_OPTIONS, "cert"):
        variable = "PIP_" + key.replace("-", "_").upper()
        if override := setting(variable, environ):
            rows[key] = (override, variable)
    return rows
