"""Charts as SVG inside a page, without scripts or downloads.

Each is 360 units wide, the width of a small phone, and scales with its column.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 360
HEIGHT: Final = 170
LEFT: Final = 44
BOTTOM: Final = 24
TOP: Final = 10
_ROOM: Final = WIDTH - LEFT - 6
_TICKS: Final = 3
_TEXT_HEIGHT: Final = 9
COLOURS: Final = ("#2f6fb3", "#d9822b", "#c23b3b", "#6b7a8c")
LABEL_CHARACTERS_MAX: Final = 60

Series = Mapping[str, Sequence[float | None]]


def bars(labels: Sequence[str], series: Series, *, unit: str) -> str:
    """Draw stacked bars, one for each label."""
    totals = [sum(values[place] or 0 for values in series.values()) for place in range(len(labels))]
    top = max(totals, default=0) or 1
    step = _ROOM / max(len(labels), 1)
    shapes = []
    below = [0.0] * len(labels)
    for colour, (name, values) in zip(COLOURS, series.items(), strict=False):
        for place, value in enumerate(values):
            if not value:
                continue
            height = value / top * (HEIGHT - TOP - BOTTOM)
            y = HEIGHT - BOTTOM - below[place] - height
            below[place] += height
            title = escape(f"{labels[place]}, {name}: {value:,.0f} {unit}")
            shapes.append(
                f'<rect x="{LEFT + place * step:.1f}" y="{y:.1f}" width="{max(step - 1, 0.5):.1f}"'
                f' height="{height:.1f}" fill="{colour}"><title>{title}</title></rect>'
            )
    return _framed([*_grid(top), *_feet(labels, step), *shapes]) + _legend(list(series))


def lines(labels: Sequence[str], series: Series, *, marks: Mapping[float, str]) -> str:
    """Draw a line for each series; None is a gap, and a single point a dot.

    Args:
        marks: Labels of the y axis, by value; the first and last value are its ends.
    """
    low, high = min(marks), max(marks)
    step = _ROOM / max(len(labels), 1)
    shapes = []
    for value, name in marks.items():
        y = _height(value, low, high)
        shapes.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 6}" class="grid"/>')
        shapes.append(f'<text x="{LEFT - 4}" y="{y + 3:.1f}" class="y">{escape(name)}</text>')
    for colour, values in zip(COLOURS, series.values(), strict=False):
        points = [
            (LEFT + (place + 0.5) * step, _height(value, low, high))
            for place, value in enumerate(values)
            if value is not None
        ]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        shapes.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        shapes += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in points]
    return _framed([*_feet(labels, step), *shapes]) + _legend(list(series))


def heat(labels: Sequence[str], rows: Mapping[str, Sequence[float]], *, unit: str) -> str:
    """Draw a cell for each row and label; darker means more."""
    top = max((max(values, default=0) for values in rows.values()), default=0) or 1
    height = min(18.0, 240 / max(len(rows), 1))
    step = _ROOM / max(len(labels), 1)
    shapes = []
    for line, (name, values) in enumerate(rows.items()):
        y = TOP + line * height
        if height >= _TEXT_HEIGHT or line % 3 == 0:
            text = escape(name[-9:])
            shapes.append(
                f'<text x="{LEFT - 4}" y="{y + height / 2 + 3:.1f}" class="y">{text}</text>'
            )
        for place, value in enumerate(values):
            title = escape(f"{name}, {labels[place]}: {value:,.0f} {unit}")
            x, wide, shade = LEFT + place * step, max(step - 0.5, 0.5), 0.06 + 0.94 * value / top
            shapes.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{height - 1:.1f}"'
                f' fill="{COLOURS[0]}" fill-opacity="{shade:.2f}">'
                f"<title>{title}</title></rect>"
            )
    tall = TOP + height * len(rows) + BOTTOM
    note = f'<p class="note">darkest: {top:,.0f} {escape(unit)}</p>'
    return _framed([*_feet(labels, step, tall), *shapes], tall) + note


def ranks(values: Mapping[str, float], *, unit: str) -> str:
    """Draw a horizontal bar for each name, with its text above."""
    top = max(values.values(), default=0) or 1
    shapes = []
    for line, (name, value) in enumerate(values.items()):
        y = 14 + line * 28
        text = name if len(name) <= LABEL_CHARACTERS_MAX else f"{name[:LABEL_CHARACTERS_MAX]}..."
        shapes.append(f'<text x="2" y="{y}">{escape(text)}</text>')
        shapes.append(
            f'<rect x="2" y="{y + 3}" width="{max(value / top * 280, 1):.1f}" height="8"'
            f' fill="{COLOURS[2]}"><title>{escape(name)}</title></rect>'
        )
        shapes.append(f'<text x="{value / top * 280 + 8:.1f}" y="{y + 11}">{value:,.0f}</text>')
    return _framed(shapes, 28 * len(values) + 8) + f'<p class="note">{escape(unit)}</p>'


def _framed(shapes: Sequence[str], height: float = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(shapes)}</svg>'


def _height(value: float, low: float, high: float) -> float:
    share = (value - low) / ((high - low) or 1)
    return HEIGHT - BOTTOM - min(max(share, 0), 1) * (HEIGHT - TOP - BOTTOM)


def _grid(top: float) -> list[str]:
    shapes = []
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        y = _height(value, 0, top)
        shapes.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 6}" class="grid"/>')
        text = f"{value:,.0f}" if top >= _TICKS else f"{value:.1f}"
        shapes.append(f'<text x="{LEFT - 4}" y="{y + 3:.1f}" class="y">{text}</text>')
    return shapes


def _feet(labels: Sequence[str], step: float, height: float = HEIGHT) -> list[str]:
    """Draw labels of the x axis, as many as fit without overlap."""
    if not labels:
        return []
    wide = max(len(label) for label in labels) * 6 + 8
    every = max(1, -int(-wide // step))
    return [
        f'<text x="{LEFT + (place + 0.5) * step:.1f}" y="{height - 8:.1f}" class="x">'
        f"{escape(labels[place])}</text>"
        for place in range(0, len(labels), every)
        if LEFT + (place + 0.5) * step + wide / 2 <= WIDTH + 6
    ]


def _legend(names: Sequence[str]) -> str:
    marks = (
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for colour, name in zip(COLOURS, names, strict=False)
    )
    return f'<p class="note">{"".join(marks)}</p>'
