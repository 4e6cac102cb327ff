"""The scale: even steps, and text that can be read on every one of them."""

import itertools

import pytest

from app.theme import COLOURS, css, oklch, shades_dark, shades_light, theme


def luminance(colour: str) -> float:
    """Relative luminance of sRGB, WCAG 2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def lightness(colour: str) -> float:
    """CIE L*, by another formula than the one that made the colour."""
    y = luminance(colour)
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_oklch_of_known_colours() -> None:
    assert oklch(1, 0, 0) == "#ffffff"
    assert oklch(0, 0, 0) == "#000000"
    assert oklch(0.6279554, 0.2576833, 29.2338837) == "#ff0000"


@pytest.mark.parametrize(("shades", "mode"), [(shades_light(), 0), (shades_dark(), 1)])
def test_ink_is_readable_on_every_shade(shades: list[str], mode: int) -> None:
    for shade in shades:
        assert contrast(COLOURS["ink"][mode], shade) >= 4.5


@pytest.mark.parametrize("shades", [shades_light(), shades_dark()])
def test_steps_look_even(shades: list[str]) -> None:
    steps = [abs(lightness(b) - lightness(a)) for a, b in itertools.pairwise(shades)]
    assert min(steps) > 2
    assert max(steps) < 1.6 * min(steps)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("ink", ["ink", "ink-soft", "accent", "bad"])
def test_every_ink_is_readable_on_the_page(ink: str, mode: int) -> None:
    assert contrast(COLOURS[ink][mode], COLOURS["page"][mode]) >= 4.5


def test_nothing_is_fetched_from_outside() -> None:
    made = theme()
    assert made._stylesheets == []
    for text in (css(), made._get_theme_css()):
        assert "http" not in text.replace("http://www.w3.org", "")
        assert "@import" not in text
