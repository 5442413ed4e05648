"""Whether this runs in a notebook, and its display; IPython is used where it is, never needed."""

import importlib
import sys
from typing import Any


def in_notebook() -> bool:
    """Whether code runs in an IPython shell that shows HTML, which a terminal does not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "terminal" not in type(shell).__module__


def display_html(html: str, text: str, handle: Any = None) -> Any:
    """Show HTML, or text where HTML is not shown; with a handle, in place of what it shows.

    Gives the handle. Only where `in_notebook`.
    """
    display: Any = importlib.import_module("IPython.display").display
    bundle = {"text/plain": text, "text/html": html}
    if handle is not None:
        handle.update(bundle, raw=True)
        return handle
    return display(bundle, raw=True, display_id=True)
