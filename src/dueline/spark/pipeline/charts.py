"""Charts as static SVG: Vega-Lite specifications, drawn by vl-convert in this process.

Colors are variables of the page, so that one picture is right on a light and on a dark page. Marks
with a description get a title, which a browser shows when the pointer is over it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import vl_convert

Spec = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]

VEGA_LITE: Final = "5.20"
NARROW: Final = 400
"""Width of a chart in a column, and on a telephone."""

WIDE: Final = 1200
"""Width of a chart that fills a page."""

INK, GRID = "#0000f1", "#0000f2"
SERIES: Final = ("#0000a0", "#0000a1", "#0000a2", "#0000a3", "#0000a4")
_VARIABLES: Final = {INK: "ink", GRID: "grid"} | {
    colour: f"s{place}" for place, colour in enumerate(SERIES)
}
_LABEL: Final = "labelFontSize"
_SECONDS: Final = (
    "datum.value >= 86400 ? format(datum.value / 86400, '~r') + ' d' :"
    " datum.value >= 3600 ? format(datum.value / 3600, '~r') + ' h' :"
    " datum.value >= 60 ? format(datum.value / 60, '~r') + ' min' :"
    " datum.value >= 1 ? format(datum.value, '~r') + ' s' :"
    " format(datum.value * 1000, '.2~r') + ' ms'"
)
_SECOND_MARKS: Final = (
    1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86_400, 864_000,
)  # fmt: skip
_BETWEEN: Final = (
    3e-4, 3e-3, 3e-2, 0.3, 3, 30, 180, 1800, 3 * 3600, 12 * 3600, 259_200,
)  # fmt: skip
"""Further labels, where the others are too few."""

_CONFIG: Final = {
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "domainColor": GRID, "tickColor": GRID,
        "gridColor": GRID, _LABEL: 11, "titleFontSize": 11, "titleFontWeight": "normal",
        "labelOverlap": True,
    },
    "legend": {
        "labelColor": INK, "titleColor": INK, _LABEL: 11, "titleFontSize": 11,
        "titleFontWeight": "normal", "orient": "top",
    },
}  # fmt: skip


class Axis(NamedTuple):
    """An axis of time: the format of its labels, its start and its end (milliseconds)."""

    clock: str
    start: int
    end: int


def stacked(rows: Rows, kinds: Sequence[str], axis: Axis, *, width: int) -> str:
    """Draw numbers over time as stacked bars.

    Args:
        rows: start, end (milliseconds), kind, n, words.
        kinds: The kinds, from the bottom up.
        axis: The axis of time.
        width: Width of the picture.
    """
    below: dict[int, float] = {}
    shown = []
    for row in sorted(rows, key=lambda row: kinds.index(row["kind"])):
        low = below.get(row["start"], 0)
        below[row["start"]] = low + row["n"]
        shown.append({**row, "low": low, "high": low + row["n"]})
    numbers = {"tickCount": 4, "format": "~s", "domain": False, "ticks": False}
    return _svg(
        shown,
        {
            "mark": {"type": "rect", "stroke": None},
            "encoding": {
                **_time(axis),
                "y": {"field": "low", "type": "quantitative", "title": None, "axis": numbers},
                "y2": {"field": "high"},
                "color": _kinds(kinds),
                "description": {"field": "words"},
            },
        },
        width=width,
        height=150,
    )


def second_marks(low: float, high: float) -> list[float]:
    """Return the labels of an axis of seconds: at least two, since one alone tells no scale."""
    marks = [second for second in _SECOND_MARKS if low <= second <= high]
    if len(marks) > 1:
        return marks
    return [second for second in (*_SECOND_MARKS, *_BETWEEN) if low <= second <= high]


def lines(rows: Rows, kinds: Sequence[str], axis: Axis, *, width: int) -> str:
    """Draw a step line for each kind; numbers are seconds on a logarithmic axis.

    Args:
        rows: start, end (milliseconds), kind, n, words; n is null where nothing is known.
        kinds: The kinds.
        axis: The axis of time.
        width: Width of the picture.
    """
    known = [row["n"] for row in rows if row["n"] is not None]
    low, high = (min(known), max(known)) if known else (1, 1)
    low, high = low / 1.3, max(high * 1.3, low * 20)
    scale: Spec = {"type": "log", "domain": [low, high], "nice": False}
    marks: Spec = {
        "values": second_marks(low, high), "labelExpr": _SECONDS, "domain": False, "ticks": False,
    }  # fmt: skip
    encoding: Spec = {
        "y": {"field": "n", "type": "quantitative", "title": None, "scale": scale, "axis": marks},
        "color": _kinds(kinds, "stroke"),
    }
    layers: list[Spec] = [
        {"mark": {"type": "rule", "strokeWidth": 2.5},
         "encoding": {**_time(axis), "description": {"field": "words"}}},
        {"mark": {"type": "line", "strokeWidth": 1, "interpolate": "monotone", "opacity": 0.6,
                  "aria": False},
         "encoding": {"x": {"field": "middle", "type": "temporal", "scale": _period(axis)},
                      "detail": {"field": "kind"}}},
    ]  # fmt: skip
    shown = [{**row, "middle": (row["start"] + row["end"]) / 2} for row in rows]
    return _svg(shown, {"encoding": encoding, "layer": layers}, width=width, height=150)


def heat(rows: Rows, names: Sequence[str], axis: Axis, *, width: int) -> str:
    """Draw a row of cells for each name over time.

    Args:
        rows: start, end (milliseconds), name, n, words.
        names: The names, from the top down.
        axis: The axis of time.
        width: Width of the picture.
    """
    most = max((row["n"] for row in rows), default=1)
    return _svg(
        rows,
        {
            "mark": {"type": "rect", "stroke": None},
            "encoding": {
                **_time(axis),
                "y": {"field": "name", "type": "nominal", "sort": list(names), "title": None,
                      "axis": {"domain": False, "ticks": False, "grid": False,
                               "labelLimit": width // 4}},
                "fill": {"value": SERIES[0]},
                "fillOpacity": {
                    "field": "n", "type": "quantitative",
                    "scale": {"domain": [0, most], "range": [0.04, 1]}, "legend": None,
                },
                "description": {"field": "words"},
            },
        },
        width=width,
        height={"step": 18},
    )  # fmt: skip


def histogram(rows: Rows, labels: Sequence[str], *, width: int) -> str:
    """Draw a bar for each label.

    Args:
        rows: label, n, words.
        labels: The labels in order.
        width: Width of the picture.
    """
    return _svg(
        rows,
        {
            "mark": "bar",
            "encoding": {
                "x": {"field": "label", "type": "ordinal", "sort": list(labels), "title": None,
                      "axis": {"labelAngle": -45, "domain": True, "ticks": False}},
                "y": {"field": "n", "type": "quantitative", "title": None,
                      "axis": {"tickCount": 4, "format": "~s", "domain": False, "ticks": False}},
                "color": {"value": SERIES[0]},
                "description": {"field": "words"},
            },
        },
        width=width,
        height=130,
    )  # fmt: skip


def _time(axis: Axis) -> Spec:
    shown = {"format": axis.clock, "title": None, "grid": False, "tickCount": 6,
             "labelFlush": False}  # fmt: skip
    return {
        "x": {"field": "start", "type": "temporal", "scale": _period(axis), "axis": shown},
        "x2": {"field": "end"},
    }


def _period(axis: Axis) -> Spec:
    """Return a scale over the whole period, so that charts below each other have one."""
    return {"type": "utc", "domain": [axis.start, axis.end]}


def _kinds(kinds: Sequence[str], symbol: str = "square") -> Spec:
    scale = {"domain": list(kinds), "range": list(SERIES[: len(kinds)])}
    legend = {"symbolType": symbol, "symbolStrokeWidth": 3 if symbol == "stroke" else 0}
    return {"field": "kind", "type": "nominal", "title": None, "scale": scale, "legend": legend}


def _svg(rows: Rows, spec: Spec, *, width: int, height: object) -> str:
    whole: Spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width, "height": height, "config": _CONFIG,
        "autosize": {"type": "fit-x", "contains": "padding"} if height else None,
        "padding": 2, "data": {"values": list(rows)}, **spec,
    }  # fmt: skip
    drawn = str(vl_convert.vegalite_to_svg(whole, vl_version=VEGA_LITE))
    return _in_page(drawn)


def _in_page(drawn: str) -> str:
    """Return a picture as a part of a page: with its colors, and titles for its marks."""
    drawn = re.sub(r' (xmlns(:\w+)?|version|class|style|aria-roledescription)="[^"]*"', "", drawn)
    drawn = re.sub(
        r'<(path|line) aria-label="([^"]*)"([^>]*?)/>', r"<\1\3><title>\2</title></\1>", drawn
    )
    for colour, name in _VARIABLES.items():
        drawn = drawn.replace(colour, f"var(--{name})")
    return re.sub(r' width="[^"]*" height="[^"]*"', "", drawn, count=1)
