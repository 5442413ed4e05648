"""Traces, metrics and logs of a process, with secrets kept out.

`providers.configure` once in a composition root, `logging.configure` beside it; libraries only
call `tracing.span`, `tracing.span_from`, `logging.get_logger`, and `metrics` with the names of
`instruments`.
"""
