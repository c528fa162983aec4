"""Webhooks: subscriptions that the broker pushes to a sink. `docs/webhooks.md` describes them.

resource.py    the JSON of a webhook
registry.py    all webhooks of a broker: making, changing, deleting, dead letters
webhook.py     one webhook: what it does next
courier.py     one notification: what to do after each attempt
permission.py  the handshake with the sink
pacing.py      the allowed rate, and pauses after failures
answers.py     what a sink's answer means
message.py     a notification as a request
sinks.py       requests to sinks
pages.py       the pages that only webhooks have

Where requests may go, and what the operator says: `broker/targets.py`, `broker/webhook_settings.py`.
"""
