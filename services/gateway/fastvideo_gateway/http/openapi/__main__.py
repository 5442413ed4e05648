"""Prints the document: `python -m fastvideo_gateway.http.openapi > docs/schemas/openapi.json`."""

import json
import sys

from fastvideo_gateway.http.openapi.document import document

sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
