# SPDX-License-Identifier: Apache-2.0
"""Draws small bar charts side by side as one SVG, with nothing but the standard library."""
import math
from collections import namedtuple
from xml.sax.saxutils import escape

# values[series][group]; None where there is none.
Panel = namedtuple('Panel', 'title unit values')

COLOURS = ('#0b6e4f', '#d1700e', '#6c7a89', '#3b3f8f', '#c9b458')  # told apart without colour vision too, by lightness
INK, SOFT, FAINT = '#1d2329', '#5a636b', '#d5d9dd'
COLUMNS, WIDTH, HEIGHT = 2, 460, 250  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 40, 44  # its margins
HEAD = 96


def nice_ceiling(value):
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `value`."""
    if value <= 0:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.9999)


def number(value):
    """Three digits are enough, and as many as fit above a bar."""
    return f'{value:.0f}' if value >= 10 else f'{value:.2f}'.rstrip('0').rstrip('.')


def text(x, y, words, size=12, anchor='start', weight='normal', fill=INK):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{fill}">{escape(words)}</text>')


def axis(panel, top, x, y, height):
    """Grid lines with their values."""
    out = [text(x, y + 16, panel.title, 13, weight='bold')]
    for i in range(5):
        line = y + TOP + height * (1 - i / 4)
        out.append(f'<line x1="{x + LEFT}" x2="{x + WIDTH - RIGHT}" y1="{line:.1f}" y2="{line:.1f}" '
                   f'stroke="{INK if i == 0 else FAINT}"/>')
        out.append(text(x + LEFT - 6, line + 4, number(top * i / 4), 11, 'end'))
    return out + [text(x + LEFT, y + TOP - 6, panel.unit, 11, fill=SOFT)]


def bars(panel, top, x, y, height, groups, group_name):
    out = []
    group_width = (WIDTH - LEFT - RIGHT) / len(groups)
    bar = group_width * 0.8 / len(panel.values)
    for g, name in enumerate(groups):
        left = x + LEFT + group_width * (g + 0.1)
        for s, series in enumerate(panel.values):
            if series[g] is None:
                continue
            tall = height * series[g] / top
            out.append(f'<rect x="{left + s * bar + 1:.1f}" y="{y + TOP + height - tall:.1f}" width="{bar - 2:.1f}" '
                       f'height="{tall:.1f}" fill="{COLOURS[s]}"/>')
            out.append(text(left + (s + 0.5) * bar, y + TOP + height - tall - 4, number(series[g]), 9, 'middle'))
        out.append(text(left + 0.4 * group_width, y + TOP + height + 16, name, 12, 'middle'))
    middle = x + LEFT + (WIDTH - LEFT - RIGHT) / 2
    return out + [text(middle, y + TOP + height + 33, group_name, 11, 'middle', fill=SOFT)]


def draw_panel(panel, x, y, groups, group_name):
    highest = max(value for series in panel.values for value in series if value is not None)
    top = nice_ceiling(highest * 1.05)
    height = HEIGHT - TOP - BOTTOM
    return axis(panel, top, x, y, height) + bars(panel, top, x, y, height, groups, group_name)


def legend(names, x, y):
    out = []
    each = (COLUMNS * (WIDTH + 20) - 20) / len(names)
    size = min(12, each / (0.55 * max(map(len, names)) + 2))
    for i, name in enumerate(names):
        out.append(f'<rect x="{x + i * each:.1f}" y="{y - 10}" width="12" height="12" fill="{COLOURS[i]}"/>')
        out.append(text(x + i * each + 17, y, name, size))
    return out


def svg(title, subtitle, group_name, groups, series_names, panels):
    """The picture: one panel per quantity, in each a group of bars per entry of `groups`, a bar per series."""
    width = COLUMNS * (WIDTH + 20) + 20
    height = HEAD + math.ceil(len(panels) / COLUMNS) * (HEIGHT + 14) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
           f'height="{height}" font-family="Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           text(20, 32, title, 19, weight='bold'), text(20, 53, subtitle, 12, fill=SOFT)]
    out += legend(series_names, 20, 78)
    for i, panel in enumerate(panels):
        out += draw_panel(panel, 20 + i % COLUMNS * (WIDTH + 20), HEAD + i // COLUMNS * (HEIGHT + 14), groups,
                          group_name)
    return '\n'.join(out + ['</svg>', ''])
