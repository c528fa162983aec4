"""Catchment: content-based publish/subscribe. The public names; everything else is a module away."""

from catchment.model.filter import Advertisement, Conjunction, Filter, Pattern, Subscription
from catchment.model.notification import Notification

__all__ = ["Advertisement", "Conjunction", "Filter", "Notification", "Pattern", "Subscription"]
__version__ = "0.1.0"
