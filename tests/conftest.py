"""What all tests share."""

import signal

pytest_plugins = ["tests.plugins.servers", "tests.plugins.redis"]


def pytest_configure() -> None:
    """Let Ctrl-C mean something again.

    A shell that runs the suite in the background makes it ignore SIGINT, programs that tests
    start would inherit that, and a test that interrupts one would wait in vain.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
