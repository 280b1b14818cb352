"""Connections to the page: so many at a time, and those that ask nothing make room."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 200


class BoundedConnection(H11Protocol):
    """A connection; where there are too many, a new one closes the oldest that asks nothing."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.began = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            every = (each for each in self.connections if isinstance(each, BoundedConnection))
            idle = (each for each in every if each.is_idle)  # also this one, which is the newest
            min(idle, key=lambda each: each.began).transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no request is worked on; also where one arrives too slowly."""
        is_waiting = self.cycle is None or self.cycle.response_complete
        return is_waiting and not self.transport.is_closing()
