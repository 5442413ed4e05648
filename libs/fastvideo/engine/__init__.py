"""Execution: resident models, the unit executor, artifact writing, the in-process Engine.

Invariant: nothing here decides what runs next; the scheduling core does.
"""
