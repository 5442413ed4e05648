"""Whatever of the client can be called says what it does."""

import inspect

import fastvideo.client


def test_everything_public_has_words() -> None:
    silent = []
    for name in fastvideo.client.__all__:
        value = getattr(fastvideo.client, name)
        if not callable(value):
            continue
        if not value.__doc__:
            silent.append(name)
        if not inspect.isclass(value):
            continue
        for member in dir(value):
            found = inspect.getattr_static(value, member)
            public = not member.startswith("_")
            called = inspect.isfunction(found) or isinstance(found, property | classmethod)
            if public and called and not inspect.getdoc(getattr(value, member)):
                silent.append(f"{name}.{member}")
    assert silent == []
