"""An explanation as a picture: a waterfall of lanes over the request's time.

matplotlib comes with the extra `local` and is imported when something is drawn, and only then: its
first import on a machine looks through all fonts.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from fastvideo.errors import FailedPrecondition
from fastvideo.explain.headline import span
from fastvideo.explain.lanes import Bar, Lane, causes, kinds, lanes, short
from fastvideo.explain.mark_words import mark_words, marked_moments, saved_moments
from fastvideo.explain.types import Explanation, WaitCause
from fastvideo.scheduling.work import UnitKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by people who do not see all colours (Okabe and Ito).
KIND_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        UnitKind.DIFFUSION_STEP: "#0072B2",
        UnitKind.DIFFUSION_WINDOW: "#0072B2",
        UnitKind.CHUNK_STEP: "#0072B2",
        UnitKind.ENCODER_CHUNK: "#E69F00",
        UnitKind.VAE_TILE: "#009E73",
        UnitKind.ARTIFACT_WRITE: "#CC79A7",
        UnitKind.AR_TOKEN: "#56B4E9",
        UnitKind.AR_PREFILL: "#56B4E9",
        UnitKind.AUDIO_CHUNK: "#D55E00",
    }
)
OTHER_KIND: Final = "#777777"
CAUSE_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        WaitCause.PLACE: "#F7D9D3",
        WaitCause.RESOURCE: "#FBE7B8",
        WaitCause.BATCH: "#E4E7EB",
        WaitCause.PREEMPTION: "#E5D8F2",
        WaitCause.LOSS: "#F2B8B5",
        WaitCause.PREPARATION: "#D5EBE4",
        WaitCause.DELIVERY: "#F3F4F6",
    }
)
CAUSE_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        WaitCause.PLACE: "no place",
        WaitCause.RESOURCE: "a resource",
        WaitCause.BATCH: "other batches",
        WaitCause.PREEMPTION: "preempted",
        WaitCause.LOSS: "a loss",
        WaitCause.PREPARATION: "making a loop",
        WaitCause.DELIVERY: "messages",
    }
)
INK: Final = "#1F2933"
ALARM: Final = "#C23B22"
PALE_INK: Final = "#7B8794"
WIDTH_IN: Final = 12.5
LANE_IN: Final = 0.34
LEGEND_COLUMNS: Final = 7
LEFT: Final = 0.02
DPI: Final = 120
HEADLINE_LINES_MAX: Final = 3
# A row of words above the lanes.
WORDS_IN: Final = 0.15


def save_picture(explanation: Explanation, path: Path) -> None:
    """Draw the waterfall into a PNG file.

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
    made = lanes(explanation)
    height = _top_in(explanation) + _lanes_in(made) + _bottom_in(explanation, made)
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _draw(figure, explanation, made, height)
    figure.savefig(path, format="png")


def _top_in(explanation: Explanation) -> float:
    """What stands above the lanes: the title, the sentence and the marks' words."""
    rows = max((words.row for words in mark_words(explanation)), default=0)
    return 0.8 + 0.19 * len(_headline(explanation)) + WORDS_IN * rows


def _bottom_in(explanation: Explanation, made: Sequence[Lane]) -> float:
    """What stands below the lanes: the axis and the legend."""
    return 0.58 + 0.2 * math.ceil(len(_handles(made, explanation)) / LEGEND_COLUMNS)


def _lanes_in(made: Sequence[Lane]) -> float:
    groups = len(dict.fromkeys(lane.group for lane in made))
    return LANE_IN * (len(made) + 0.55 * groups + 0.45)


def _draw(figure: "Figure", explanation: Explanation, made: Sequence[Lane], height: float) -> None:
    _title(figure, explanation, height)
    bottom = _bottom_in(explanation, made) / height
    axes = figure.add_axes((0.145, bottom, 0.52, _lanes_in(made) / height))
    total = max(explanation.totals.total_seconds, 1e-3)
    places = _places(made)
    _grid(axes, total, places)
    for lane, y in zip(made, places, strict=True):
        _lane(axes, lane, y, total)
    _groups(axes, made, places)
    _marks(axes, explanation)
    _legend(figure, _handles(made, explanation), height)


def _title(figure: "Figure", explanation: Explanation, height: float) -> None:
    name = f"{explanation.model_id}  {short(explanation.request_id)}"
    top = 1 - 0.3 / height
    figure.text(LEFT, top, name, fontsize=14, fontweight="bold", color=INK, va="center")
    at = f"{explanation.request_id}   accepted {explanation.accepted_at:%Y-%m-%d %H:%M:%S} UTC"
    figure.text(0.98, top, at, fontsize=8, color=PALE_INK, va="center", ha="right")
    lines = "\n".join(_headline(explanation))
    low = 1 - 0.52 / height
    figure.text(LEFT, low, lines, fontsize=9.5, color=INK, va="top", linespacing=1.4)


def _headline(explanation: Explanation) -> list[str]:
    text = explanation.headline
    return textwrap.wrap(text[:1].upper() + text[1:], 165)[:HEADLINE_LINES_MAX]


def _places(made: Sequence[Lane]) -> list[float]:
    """The height of each lane's middle, downwards, with a gap before each group."""
    places: list[float] = []
    y = 0.0
    group = None
    for lane in made:
        if lane.group != group:
            y += 0.55
            group = lane.group
        places.append(y + 0.5)
        y += 1.0
    return places


def _grid(axes: "Axes", total: float, places: Sequence[float]) -> None:
    axes.set_xlim(0, total)
    axes.set_ylim((places[-1] if places else 0.5) + 0.7, 0.25)
    axes.set_yticks([])
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#CBD2D9")
    axes.tick_params(axis="x", colors=PALE_INK, labelsize=8, length=3)
    axes.grid(axis="x", color="#EEF1F4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("seconds since accepted", fontsize=8.5, color=PALE_INK)


def _lane(axes: "Axes", lane: Lane, y: float, total: float) -> None:
    tall = 0.42 if lane.is_other else 0.72
    by_look: dict[UnitKind | WaitCause, list[Bar]] = {}
    for bar in lane.bars:
        by_look.setdefault(bar.shows, []).append(bar)
    # Waits first, so that what ran lies on them.
    for shows, bars in sorted(by_look.items(), key=lambda item: isinstance(item[0], UnitKind)):
        # What is shorter than a pixel is still seen, and not covered by its own edge.
        least = total / (500 if isinstance(shows, UnitKind) else 1200)
        spans = [(bar.start_s, max(bar.seconds, least)) for bar in bars]
        look = _look(shows, is_other=lane.is_other)
        if all(bar.seconds < 2 * least for bar in bars):
            look["linewidth"] = 0.0
        axes.broken_barh(spans, (y - tall / 2, tall), **look)
    axes.text(
        -0.012 * total,
        y,
        lane.name,
        ha="right",
        va="center",
        fontsize=8 if lane.is_other else 9,
        color=PALE_INK if lane.is_other else INK,
    )
    axes.text(1.015 * total, y, lane.note, va="center", fontsize=7.5, color=PALE_INK)


def _look(shows: UnitKind | WaitCause, *, is_other: bool = False) -> dict[str, Any]:
    """The colours of a bar."""
    if isinstance(shows, WaitCause):
        hatch = None if shows is WaitCause.DELIVERY else "/////"
        return {
            "facecolor": CAUSE_COLOURS[shows],
            "edgecolor": "#B6BEC8",
            "hatch": hatch,
            "linewidth": 0.0,
        }
    return {
        "facecolor": KIND_COLOURS.get(shows, OTHER_KIND),
        "edgecolor": "white",
        "linewidth": 0.4,
        "alpha": 0.45 if is_other else 1.0,
    }


def _groups(axes: "Axes", made: Sequence[Lane], places: Sequence[float]) -> None:
    group = None
    for lane, y in zip(made, places, strict=True):
        if lane.group == group:
            continue
        group = lane.group
        axes.text(
            -0.236,
            y - 0.72,
            group,
            transform=axes.get_yaxis_transform(),
            fontsize=8.5,
            fontweight="bold",
            color=PALE_INK,
            va="center",
        )
        axes.axhline(y - 0.72, color="#E4E7EB", linewidth=0.8, xmin=0.0)


def _marks(axes: "Axes", explanation: Explanation) -> None:
    """Lines for what it met, with their words above the lanes."""
    dashes = (0, (4, 2))
    for x in saved_moments(explanation):
        axes.axvline(x, color=PALE_INK, linewidth=0.7, linestyle=dashes, alpha=0.6, zorder=4)
    for x in marked_moments(explanation):
        axes.axvline(x, color=ALARM, linewidth=1.1, linestyle=dashes, zorder=5)
    for words in mark_words(explanation):
        axes.annotate(
            words.text,
            (words.at_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if words.on_left else 3, 3 + 72 * WORDS_IN * words.row),
            textcoords="offset points",
            fontsize=7.5,
            color=PALE_INK if words.text.startswith("saved") else ALARM,
            ha="right" if words.on_left else "left",
            va="bottom",
            zorder=6,
        )


def _handles(made: Sequence[Lane], explanation: Explanation) -> list[tuple[str, dict[str, Any]]]:
    """The legend: what ran, then why nothing did and for how long, the longest first."""
    sums = explanation.totals.waited_by_cause
    handles = [(kind.replace("_", " "), _look(kind)) for kind in sorted(kinds(made))]
    for cause in sorted(causes(made), key=lambda cause: -sums.get(cause, 0.0)):
        seconds = span(sums.get(cause, 0.0))
        handles.append((f"waits: {CAUSE_WORDS[cause]} {seconds}", _look(cause)))
    return handles


def _legend(figure: "Figure", handles: Sequence[tuple[str, dict[str, Any]]], height: float) -> None:
    from matplotlib.patches import Patch

    figure.legend(
        handles=[Patch(label=label, **look) for label, look in handles],
        loc="lower left",
        bbox_to_anchor=(0.015, 0.05 / height),
        ncols=LEGEND_COLUMNS,
        fontsize=8,
        frameon=False,
        labelcolor=INK,
        handlelength=1.6,
        columnspacing=1.4,
    )
