"""The one look of every page: fonts, colours, the probability scale, the style sheet.

Nothing is fetched from outside: the fonts are the system's. The scale is made in OKLCH, a colour space in which equal
steps look equal: lightness falls in even steps and the hue stays, so it reads the same without colour vision.
"""

import math
from pathlib import Path
from typing import Final

import gradio as gr

STATIC: Final = Path(__file__).parent / "static"
NUM_SHADES: Final = 8
# The later win where two say different things: what a narrow window changes is last.
SHEETS: Final = (
    "page.css",
    "strip.css",
    "playground.css",
    "compare.css",
    "history.css",
    "examine.css",
    "score.css",
    "status.css",
    "narrow.css",
)

FONT: Final = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "Liberation Sans", "sans-serif")
FONT_MONO: Final = ("ui-monospace", "SF Mono", "Cascadia Mono", "Noto Sans Mono", "DejaVu Sans Mono", "monospace")

# Colour variables: name -> (light, dark).
COLOURS: Final[dict[str, tuple[str, str]]] = {
    "page": ("#ffffff", "#15171a"),
    "panel": ("#f7f7f5", "#1b1e22"),
    "line": ("#deded9", "#32363c"),
    "line-strong": ("#b9b9b2", "#4b5159"),
    "ink": ("#1c1d1f", "#e6e6e3"),
    "ink-soft": ("#5b5d61", "#a3a6ab"),
    "accent": ("#0b5cad", "#6db3f2"),
    "accent-soft": ("#e3eef9", "#1d3247"),
    "on-accent": ("#ffffff", "#0d1b29"),
    "bad": ("#a3231f", "#ff9d94"),
    "bad-soft": ("#fbeae8", "#3a1f1e"),
    "bar-raw": ("#b4b7bc", "#5a6069"),
    "bar-processed": ("#0b5cad", "#6db3f2"),
}


def theme() -> gr.themes.Base:
    """Gradio's own controls in the colours and sizes of the page."""
    base = gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.stone,
        text_size=gr.themes.sizes.text_sm,
        spacing_size=gr.themes.sizes.spacing_sm,
        radius_size=gr.themes.sizes.radius_none,
        font=FONT,
        font_mono=FONT_MONO,
    )
    light = {
        "body_background_fill": "var(--dl-page)",
        "body_text_color": "var(--dl-ink)",
        "body_text_color_subdued": "var(--dl-ink-soft)",
        "background_fill_primary": "var(--dl-page)",
        "background_fill_secondary": "var(--dl-panel)",
        "block_background_fill": "transparent",
        "block_border_width": "0px",
        "block_label_background_fill": "transparent",
        "block_label_text_color": "var(--dl-ink-soft)",
        "block_shadow": "none",
        "block_padding": "0px",
        "border_color_primary": "var(--dl-line)",
        "border_color_accent": "var(--dl-accent)",
        "color_accent": "var(--dl-accent)",
        "color_accent_soft": "var(--dl-accent-soft)",
        "input_background_fill": "var(--dl-page)",
        "input_border_color": "var(--dl-line-strong)",
        "input_border_color_focus": "var(--dl-accent)",
        "input_shadow": "none",
        "input_shadow_focus": "none",
        "input_placeholder_color": "var(--dl-ink-soft)",
        "button_primary_background_fill": "var(--dl-accent)",
        "button_primary_background_fill_hover": "var(--dl-accent)",
        "button_primary_text_color": "var(--dl-on-accent)",
        "button_primary_border_color": "var(--dl-accent)",
        "button_secondary_background_fill": "var(--dl-page)",
        "button_secondary_background_fill_hover": "var(--dl-panel)",
        "button_secondary_text_color": "var(--dl-ink)",
        "button_secondary_border_color": "var(--dl-line-strong)",
        "shadow_drop": "none",
        "shadow_drop_lg": "none",
    }
    # The variables switch by themselves, so a control has the same setting in both modes.
    both = {**light, **{f"{k}_dark": v for k, v in light.items() if f"{k}_dark" in vars(base)}}
    return base.set(**both)


def css() -> str:
    """The whole style sheet: the variables of both modes, then the sheets of `static`."""
    shades = [f"--dl-shade-{i}" for i in range(NUM_SHADES)]
    light = [*((f"--dl-{k}", v[0]) for k, v in COLOURS.items()), *zip(shades, shades_light(), strict=True)]
    dark = [*((f"--dl-{k}", v[1]) for k, v in COLOURS.items()), *zip(shades, shades_dark(), strict=True)]
    return "\n".join(
        [
            f":root {{ color-scheme: light; {_declarations(light)} }}",
            f".dark, :root.dark {{ color-scheme: dark; {_declarations(dark)} }}",
            script(*SHEETS),
        ]
    )


def shades_light() -> list[str]:
    """Backgrounds for dark ink, from the page's own (certain) to the strongest (surprising)."""
    return [oklch(0.985 - 0.26 * t, 0.004 + 0.125 * t, 68) for t in _steps()]


def shades_dark() -> list[str]:
    """The same for light ink."""
    return [oklch(0.215 + 0.265 * t, 0.004 + 0.1 * t, 62) for t in _steps()]


def oklch(lightness: float, chroma: float, hue_degrees: float) -> str:
    """`#rrggbb` of an OKLCH colour, clipped to sRGB. Source: B. Ottosson, "A perceptual color space", 2020."""
    a = chroma * math.cos(math.radians(hue_degrees))
    b = chroma * math.sin(math.radians(hue_degrees))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(c)):02x}" for c in linear)


def script(*names: str) -> str:
    """The text of files of `static/`, one after the other."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names)


def _steps() -> list[float]:
    return [i / (NUM_SHADES - 1) for i in range(NUM_SHADES)]


def _gamma(value: float) -> float:
    value = min(max(value, 0.0), 1.0)
    return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055


def _declarations(pairs: list[tuple[str, str]]) -> str:
    return " ".join(f"{name}: {value};" for name, value in pairs)
