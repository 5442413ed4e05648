"""Messages between services: durable ones with acknowledgement, and hints that may be lost.

**Invariant:** the bus is never the truth. All that it carries is in the event log, and it may be
wiped at any moment.
"""

from fastvideo.bus.port import Bus, BusConsumer, BusMessage, Delivery, OnHint

__all__ = ["Bus", "BusConsumer", "BusMessage", "Delivery", "OnHint"]
