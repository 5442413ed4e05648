"""The event log: what happened, in order, for ever.

`records` and `store` are the port, `memory` and `postgres` the stores. Writers go through
`appender`, readers through `subscription`. `relay` brings the log to the bus, `consumer` handles
each event once, `leadership` gives work to one process at a time. `types` and `catalog` say what
the bytes mean, `upcasts` what older programs meant.

`projections` are rows made of the log; `reading` is for people who ask what happened; `archive`
is where old ranges go; `sealing` keeps what tenants write under their keys.

**Invariant:** stores, appender, relay and consumer handle bytes and know no event type. Nothing
here imports torch, a service or a model.
"""
