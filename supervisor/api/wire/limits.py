"""What the API bounds, in one place for those who ask: sizes, pages, points, requests and streams."""

from __future__ import annotations

from dataclasses import replace

from supervisor.api.wire.deps import Services
from supervisor.api.wire.door import BODY_MAX_BYTES
from supervisor.contract.bundle import MAX_GZIP_BYTES
from supervisor.services.reading import queries, series
from supervisor.services.reading.health import About
from supervisor.services.runs import many
from supervisor.services.runs.altering import LABELS_MAX


def limits_of(services: Services) -> About:
    """What there is to tell of this server, its bounds included."""
    streams = services.streams
    rates = services.rates if services.rates is not None and services.rates.rate_per_s > 0 else None
    return replace(
        services.about,
        limits={
            "body_bytes": BODY_MAX_BYTES,
            "bundle_bytes": MAX_GZIP_BYTES,
            "page_size": queries.PAGE_SIZE,
            "page_size_max": queries.PAGE_MAX,
            "points_max": series.POINTS_MAX,
            "many_max": many.MOST,
            "labels": LABELS_MAX,
            "requests_per_s": None if rates is None else rates.rate_per_s,
            "requests_at_once": None if rates is None else rates.burst,
            "streams": streams.streams,
            "streams_per_token": streams.each,
        },
    )
