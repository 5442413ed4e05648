"""What `fastvideo explain` does once it knows its gateway."""

import shutil
from pathlib import Path

from fastvideo.cli.connection import Target
from fastvideo.cli.explanation_view import explanation_lines
from fastvideo.cli.failures import tell
from fastvideo.cli.report import plain_record, print_json, print_lines
from fastvideo.cli.running import run
from fastvideo.errors import InvalidField
from fastvideo.explain.types import Explanation


def explain_request(
    target: Target, request_id: str, *, png: Path | None, units: bool, as_json: bool
) -> None:
    """Explain a request on standard output, and draw it when a file is named."""
    if png is not None and not png.absolute().parent.is_dir():
        raise InvalidField("--png", str(png), "a file in a folder that exists")

    async def get() -> Explanation:
        async with target.client() as client:
            return await client.explain(request_id)

    explanation = run(get())
    if png is not None:
        from fastvideo.explain.picture import save_picture

        save_picture(explanation, png)
        tell(f"drawn: {png}")
    if as_json:
        print_json(plain_record(explanation))
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        print_lines(explanation_lines(explanation, width, with_units=units))
