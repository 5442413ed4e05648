"""The page's files: all there, all its own, and nothing in them that parses text as markup."""

import re
from importlib import resources
from pathlib import Path

FOLDER = Path(str(resources.files("fastvideo_gateway.http") / "static"))
FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())
DANGEROUS = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")


def test_every_file_that_is_named_is_there() -> None:
    index = (FOLDER / "index.html").read_text()
    named = set(re.findall(r'(?:src|href)="/page/([^"]+)"', index))
    for path in FILES:
        named |= set(re.findall(r'from "\./([^"]+)"', path.read_text()))
    assert named
    assert named | {"index.html"} == {path.name for path in FILES}


def test_nothing_comes_from_elsewhere() -> None:
    for path in FILES:
        text = path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert re.findall(r"https?://|//cdn|@import|url\(", text) == [], path.name


def test_no_text_is_parsed_as_markup_and_no_code_is_inline() -> None:
    index = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=", index) == []
    for path in FILES:
        if path.suffix == ".js":
            text = path.read_text()
            assert [word for word in DANGEROUS if word in text] == [], path.name
