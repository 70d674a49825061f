"""Turns faults of templates into errors with the file and line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import jinja2

from trainwright.core.errors import Failure, RequestError

REMEDY = "Correct the template; CONTRIBUTING.md describes a component's Dockerfile.j2."


@contextmanager
def template_faults(name: str) -> Iterator[None]:
    """Turn a fault of a template into a :class:`RequestError`; a template is a program, so it can fail in any way.

    Args:
        name: of the template, for an error that has no line.
    """
    try:
        yield
    except Failure:
        raise
    except jinja2.TemplateSyntaxError as wrong:
        where = f"{wrong.filename or wrong.name}:{wrong.lineno}"
        raise RequestError(f"{where}: {wrong.message}", remedy=REMEDY) from None
    except jinja2.TemplateNotFound as wrong:
        what = f"no template {', '.join(map(str, wrong.templates))}"
        raise RequestError(f"{_place(wrong.__traceback__) or name}: {what}", remedy=REMEDY) from None
    except Exception as wrong:
        what = str(wrong) if isinstance(wrong, jinja2.TemplateError) else f"{type(wrong).__name__}: {wrong}"
        raise RequestError(f"{_place(wrong.__traceback__) or name}: {what}", remedy=REMEDY) from None


def _place(trace: TracebackType | None) -> str | None:
    """The innermost file and line of a template, if the error came from one."""
    place = None
    while trace is not None:
        file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        compiled = trace.tb_frame.f_globals.get("__jinja_template__")
        if isinstance(compiled, jinja2.Template):
            place = f"{file}:{compiled.get_corresponding_lineno(line)}"
        elif file.endswith(".j2"):  # jinja2 adds a frame with the template's own line
            place = f"{file}:{line}"
        trace = trace.tb_next
    return place
