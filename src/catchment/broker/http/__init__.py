"""The HTTP side of a broker: CloudEvents in, Server-Sent Events and WebSockets out. `docs/http.md` describes it.

server.py         uvicorn on the broker's loop
pages.py          the routes, and what each answers
openapi.py        the description of the routes, as `GET /openapi.json` returns it
binding.py        CloudEvents in a request -> notifications
filters.py        filter expressions in a request -> what to subscribe to
subscriptions.py  the subscriptions made over HTTP
delivery_log.py   the deliveries of a subscription that wait for readers
streams.py        a delivery log as Server-Sent Events or as WebSocket messages
metrics.py        the broker's counters, for Prometheus
"""

from catchment.broker.http.server import HttpSide

__all__ = ["HttpSide"]
