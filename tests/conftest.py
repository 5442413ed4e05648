"""What all tests share."""

import signal

pytest_plugins = ["tests.plugins.servers", "tests.plugins.redis"]


def pytest_configure() -> None:
    """Let Ctrl-C mean something again, and let a busy machine take its time.

    A shell that runs the suite in the background makes it ignore SIGINT, programs that tests
    start would inherit that, and a test that interrupts one would wait in vain.
    """
    # Here, since Python alone reads this file too.
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "patient",
        parent=settings.default,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("patient")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
