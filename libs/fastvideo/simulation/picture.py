"""What a run comes to, as a picture: utilisation and queue over time, latencies by class.

matplotlib comes with the extra `local` and is imported only when something is drawn.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastvideo.errors import FailedPrecondition
from fastvideo.simulation.figures import Figures, RunFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that people with a colour-vision deficiency can tell apart (Okabe and Ito, 2008).
COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
INK: Final = "#1F2933"
PALE_INK: Final = "#7B8794"
GRID: Final = "#E4E7EB"
DPI: Final = 120
WIDTH_IN: Final = 11.0
HEIGHT_IN: Final = 8.4


def save_picture(figures: Figures, run: RunFigures, title: str, path: Path) -> None:
    """Draw a run into a PNG file.

    Raises FailedPrecondition without matplotlib, OSError when the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FailedPrecondition(
            "pictures need matplotlib, which comes with pip install 'fastvideo-v2[local]'",
            reason="NO_MATPLOTLIB",
        ) from error
    # Below the last drawing, a line for each class.
    below_in = 0.75 + 0.22 * len(run.classes)
    height_in = HEIGHT_IN + below_in
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(
        3,
        1,
        height_ratios=(1.0, 1.0, 1.4),
        left=0.08,
        right=0.97,
        top=1 - 1.05 / height_in,
        bottom=below_in / height_in,
        hspace=0.42,
    )
    figure.text(
        0.08, 1 - 0.32 / height_in, title, fontsize=14, fontweight="bold", color=INK, va="center"
    )
    figure.text(
        0.08, 1 - 0.58 / height_in, _subtitle(run), fontsize=9.5, color=PALE_INK, va="center"
    )
    utilisation = figure.add_subplot(grid[0])
    _utilisation(utilisation, figures, run)
    queue = figure.add_subplot(grid[1], sharex=utilisation)
    _queue(queue, figures)
    for axes in (utilisation, queue):
        _last_arrival(axes, figures.samples.duration_s)
    _latencies(figure.add_subplot(grid[2]), figures, run)
    figure.savefig(path, format="png")


def _subtitle(run: RunFigures) -> str:
    workers = sum(pool.workers for pool in run.pools)
    faults = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in run.faults.items())
    words = f"{workers} workers, {run.requests} requests, {run.units} units, seed {run.seed}"
    return f"{words}; faults: {faults}" if faults else words


def _utilisation(axes: "Axes", figures: Figures, run: RunFigures) -> None:
    _frame(axes, "Busy compute slots")
    for index, (name, pool) in enumerate(figures.pools.items()):
        moments, shares = pool.over_time()
        mean = run.pools[index].utilisation
        axes.plot(
            moments,
            [100 * share for share in _smooth(shares)],
            color=_colour(index),
            linewidth=1.6,
            label=f"{name}: {mean:.0%} while requests come",
        )
    axes.set_ylim(0, 103)
    axes.set_ylabel("%", color=PALE_INK)
    _legend(axes)


def _queue(axes: "Axes", figures: Figures) -> None:
    _frame(axes, "Requests")
    samples = figures.samples
    axes.fill_between(
        samples.moments_s, samples.live, color=COLOURS[5], alpha=0.35, linewidth=0, label="live"
    )
    axes.plot(
        samples.moments_s, samples.queued, color=COLOURS[1], linewidth=1.6, label="without a place"
    )
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("virtual seconds", color=PALE_INK)
    _legend(axes)


def _latencies(axes: "Axes", figures: Figures, run: RunFigures) -> None:
    _frame(axes, "Completed requests by the time since their acceptance")
    for index, (name, values) in enumerate(figures.latencies().items()):
        if not values:
            continue
        shares = [100 * (place + 1) / len(values) for place in range(len(values))]
        spread = run.classes[index].completion
        axes.step(
            [values[0], *values],
            [0.0, *shares],
            where="post",
            color=_colour(index),
            linewidth=1.8,
            label=f"{name}: p50 {spread.p50:.2f} s, p95 {spread.p95:.2f} s, p99 {spread.p99:.2f} s",
        )
        axes.plot([spread.p95], [95], marker="o", markersize=5, color=_colour(index))
    axes.axhline(95, color=PALE_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    _seconds_axis(axes, figures)
    axes.set_ylim(0, 101)
    axes.set_xlabel("seconds", color=PALE_INK)
    axes.set_ylabel("%", color=PALE_INK)
    _legend(axes, below=True)


def _seconds_axis(axes: "Axes", figures: Figures) -> None:
    """From where the first percent of a class is done; by powers where classes are far apart."""
    latencies = [values for values in figures.latencies().values() if values]
    least = min((values[len(values) // 100] for values in latencies), default=0.0)
    most = max((values[-1] for values in latencies), default=1.0)
    if least > 0 and most > 20 * least:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlim(0.7 * least, 1.3 * most)
    else:
        axes.set_xlim(0, 1.05 * most)


def _last_arrival(axes: "Axes", duration_s: float) -> None:
    """Where requests stop coming, unless that is the end."""
    last_s = axes.get_xlim()[1]
    if last_s > 1.1 * duration_s:
        left = duration_s > 0.8 * last_s
        axes.axvline(duration_s, color=PALE_INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            "no more requests come",
            (duration_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-5 if left else 5, -2),
            ha="right" if left else "left",
            textcoords="offset points",
            fontsize=8.5,
            color=PALE_INK,
            va="top",
        )


def _frame(axes: "Axes", title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(colors=PALE_INK, labelsize=9)


def _legend(axes: "Axes", *, below: bool = False) -> None:
    """Beside the title, or below the drawing where the words are many."""
    if below:
        corner, columns = (-0.012, -0.14), 1
    else:
        corner, columns = (1.0, 1.0), 4
    axes.legend(
        loc="upper left" if below else "lower right",
        bbox_to_anchor=corner,
        ncols=columns,
        fontsize=9,
        frameon=False,
        borderaxespad=0.3,
    )


def _smooth(values: list[float]) -> list[float]:
    """Each with its neighbours, so that single batches do not flicker."""
    return [
        sum(values[max(0, index - 1) : index + 2]) / len(values[max(0, index - 1) : index + 2])
        for index in range(len(values))
    ]


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
