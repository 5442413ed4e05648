"""The OpenAPI document: what there is under the HTTP address, for programs that read it.

Schemas come from the models that validate what callers give and that answers are made of, rules of
access from `access/rules.py`; `table.py`, with `reads.py`, alone says which of them belong to a
route.

**Invariant:** nothing here is asked when a call is answered.
"""
