"""The plan of one image line, whatever other lines there are for the same version and CUDA."""

from __future__ import annotations

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import Line
from trainwright.plan.plan import Plan
from trainwright.plan.request import Request, make_request
from trainwright.plan.resolve import resolve


def request_of(entry: Line) -> Request:
    """A request that means the line where there is no other: in :meth:`Catalog.alone`."""
    line = entry.line
    return make_request(framework=line.framework, cuda=line.cuda, version=line.version)


def plan_of(entry: Line, catalog: Catalog, base_image: str | None = None, region: str | None = None) -> Plan:
    """The plan of a line; arguments and errors as of :func:`trainwright.plan.resolve.resolve`."""
    return resolve(request_of(entry), catalog.alone(entry), base_image, None, region)
