"""Traces, metrics and logs of a process, with secrets kept out.

`tracing.configure` once in a composition root, `logging.configure` beside it; libraries only
call `tracing.span`, `tracing.span_from` and `logging.get_logger`.
"""
