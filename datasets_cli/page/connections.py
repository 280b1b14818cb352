"""Connections to the page: so many at a time, and those that ask nothing make room."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 200


class BoundedConnection(H11Protocol):
    """A connection; where there are too many, a new one closes one that waits for a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            others = (each for each in self.connections if each is not self)
            idle = (each for each in others if isinstance(each, BoundedConnection) and each.is_idle)
            next(idle, self).transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no request is worked on; also where one arrives too slowly."""
        is_waiting = self.cycle is None or self.cycle.response_complete
        return is_waiting and not self.transport.is_closing()
