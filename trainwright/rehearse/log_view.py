"""Shows the logs of a rehearsal's hosts on standard error while it runs."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from trainwright.core.text import coloured

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_red")
REDRAWS = 5  # per second
# What a line of a host's log says about what the host is doing; the toolkit's and the drivers' own words.
_DOING = (
    (r"Installing dependencies from|pip install .*-r requirements|Collecting \S+", "installing requirements"),
    (r"Waiting for MPI workers to establish", "waiting for the sshd of the workers"),
    (r"Waiting for MPI Master to create SSH", "waiting for the sshd of the master"),
    (r"Waiting for MPI process to finish", "waiting for mpirun"),
    (r"Orted process exited", "ranks ended; the toolkit sleeps 30 s"),
    (r"Begin looking for status file", "waiting for the status of the master"),
    (r"Imported framework|Invoking user training script|Provided path: ", "preparing"),
    (r"Invoking (user )?script|Invoking TorchDistributed|Executing command: ", "running the script"),
    (r"Reporting training SUCCESS|Training .*[Cc]ompleted", "succeeded"),
    (r"Reporting training FAILURE", "failed"),
)


def doing(line: str) -> str:
    """What a host does, by a line of its log; empty where the line does not tell."""
    return next((said for pattern, said in _DOING if re.search(pattern, line)), "")


class RehearsalView:
    """The logs of all hosts, a colour and a prefix each; on a terminal with a live line of what each is doing.

    Args:
        hosts: their names.
        stream: where to (default: standard error). If it breaks, the view falls silent.
        quiet: show nothing.
    """

    def __init__(self, hosts: tuple[str, ...], stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out = stream if stream is not None else sys.stderr
        self._width = max(map(len, hosts))
        self._colours = {host: COLOURS[n % len(COLOURS)] for n, host in enumerate(hosts)}
        self._doing = dict.fromkeys(hosts, "being made")
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._silent = quiet
        self._live: Live | None = None
        if not quiet and self._out.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._out, highlight=False, soft_wrap=True)
            self._live = Live(console=console, refresh_per_second=REDRAWS, transient=True, get_renderable=self._line)
            self._live.start()

    def line(self, host: str, text: str) -> None:
        """A line of a host's log."""
        if told := doing(text):
            self._doing[host] = told
        self._write(host, text)

    def state(self, host: str, text: str) -> None:
        """What a host is doing now, as the rehearsal knows it."""
        self._doing[host] = text
        if self._live is None:
            self._write(host, f"· {text}")

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _write(self, host: str, text: str) -> None:
        if self._silent:
            return
        try:
            with self._lock:
                if self._live is None:
                    print(f"{host.ljust(self._width)} | {coloured(text)}", file=self._out, flush=True)
                else:
                    from rich.text import Text

                    prefix = Text(f"{host.ljust(self._width)} | ", style=self._colours[host])
                    self._live.console.print(Text.assemble(prefix, Text.from_ansi(text)))
        except OSError:
            self._silent = True

    def _line(self) -> Text:
        from rich.text import Text

        line = Text.assemble((f"{time.monotonic() - self._began:4.0f} s", "bold"))
        for host, told in self._doing.items():
            line.append(f"  {host} ", style=self._colours[host]).append(told)
        line.truncate(max(20, (self._live.console.width if self._live else 80) - 1), overflow="ellipsis")
        return line
