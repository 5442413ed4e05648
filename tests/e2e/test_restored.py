"""A stack whose database is put back to a backup."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, running_stack

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(240)]

OPTIONS = ("--steps", "3", "--seed", "1")


@pytest.fixture
def own_stack() -> Iterator[Stack]:
    with running_stack() as running:
        yield running


def test_a_stack_goes_on_from_a_backup_of_its_database(own_stack: Stack, tmp_path: Path) -> None:
    kept = own_stack.generate("a red three", *OPTIONS)
    own_stack.down()
    database = own_stack.data / "postgres"
    shutil.copytree(database, tmp_path / "backup", symlinks=True)
    own_stack.up()
    undone = own_stack.generate("a blue seven", *OPTIONS)
    own_stack.down()

    # Put the backup in place, with the owner that the server needs.
    owner = database.stat()
    shutil.rmtree(database)
    shutil.copytree(tmp_path / "backup", database, symlinks=True)
    for path in (database, *database.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    own_stack.up()
    assert own_stack.run("log", "restored", "--json").json == {"log_epoch": 2}
    own_stack.down()
    own_stack.up()

    again = own_stack.run("request", "get", kept["id"], "--json").json
    assert (again["status"], again["latents_digest"]) == ("completed", kept["latents_digest"])
    assert own_stack.run("request", "get", undone["id"], "--json").code != 0
    listed = [one["id"] for one in own_stack.run("request", "list", "--json").json]
    assert listed == [kept["id"]]
    after = own_stack.generate("a red three", *OPTIONS)
    assert after["latents_digest"] == kept["latents_digest"]
