"""The page from a phone to a wide desk, light and dark: nothing sticks out, and axe-core finds no fault.

axe-core is not part of this repository: ``make test-browser`` fetches it with npm; or GLOCAL_AXE names axe.min.js.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from page import SECTIONS, OpenPage, ask_api, digits, expect, go, needs_browser, teach

pytestmark = needs_browser

WIDTHS = (390, 1000, 1600)
SCHEMES = ("light", "dark")
RULES: dict[str, Any] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}  # in the dark only colours are others
LONG = "a class whose name is long-and-has-no-place-to-break-" + "x" * 60
NEAR = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"


def find_axe() -> Path | None:
    given = os.environ.get("GLOCAL_AXE")
    path = Path(given) if given else NEAR
    return path if path.is_file() else None


@pytest.fixture
def full(open_page: OpenPage, api: Any, tmp_path: Path) -> OpenPage:
    """A page with something in every section, also a name that is too long."""
    teach(api, tmp_path, {"zero": 4, "one": 6, "two": 5})
    api.patch("/classes/zero", json={"name": LONG}).raise_for_status()
    ask_api(api, [*digits(tmp_path, "two", 20, 22), *digits(tmp_path, "five", 30, 34)])

    def show(page: Any, section: str) -> None:
        go(page, section)
        if section == "ask" and not page.locator("#answers > li").count():
            page.locator("#ask-files").set_input_files(
                [*digits(tmp_path, "zero", 20, 21), *digits(tmp_path, "five", 30, 31)]
            )
            expect(page.locator("#answers .verdict")).to_have_count(2)
            page.get_by_role("button", name="Show why").first.click()
            page.get_by_role("button", name="Name it").first.click()
        if section == "decide":
            expect(page.locator(".histogram")).to_be_visible()
            page.locator("#slider").press("End")
            expect(page.locator("#changes-summary")).to_contain_text("would change")
        if section == "review":
            expect(page.locator("#groups > li").first).to_be_visible()

    return show


def test_nothing_sticks_out_and_nothing_complains(full: OpenPage, open_page: OpenPage) -> None:
    page = open_page()
    for section in SECTIONS:
        full(page, section)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
            assert wide[0] <= wide[1], f"{section} scrolls sideways at {width} pixels"
            cut = page.evaluate(
                """() => [...document.querySelectorAll("main :is(button, label, h1, h2, h3, input)")]
                    .filter((it) => it.checkVisibility() && !it.closest(".unseen") && it.type !== "file")
                    .filter((it) => it.getBoundingClientRect().right > innerWidth)
                    .map((it) => it.outerHTML.slice(0, 80))"""
            )
            assert cut == [], f"{section} at {width} pixels"
            burst = page.evaluate(
                """() => [...document.querySelectorAll("main .card")]
                    .filter((it) => it.checkVisibility() && it.scrollWidth > it.clientWidth + 1)
                    .map((it) => it.outerHTML.slice(0, 80))"""
            )
            assert burst == [], f"something is wider than its card in {section} at {width} pixels"


def test_light_and_dark_differ_and_both_can_be_read(full: OpenPage, open_page: OpenPage) -> None:
    """The colours of text against those behind it, by the formula of WCAG 2."""
    page = open_page()
    papers = set()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        colours = page.evaluate(
            """() => {
                const style = getComputedStyle(document.documentElement);
                const names = ["paper", "card", "sunk", "ink", "soft", "accent", "accent-strong", "accent-wash",
                               "on-accent", "unknown", "unknown-wash", "edge"];
                return Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
            }"""
        )
        papers.add(colours["paper"])
        for front, back in [
            *((front, back) for front in ("ink", "soft", "accent", "unknown") for back in ("paper", "card")),
            ("soft", "sunk"), ("soft", "unknown-wash"), ("unknown", "unknown-wash"), ("accent-strong", "accent-wash"),
            ("on-accent", "accent"), ("on-accent", "accent-strong"),
        ]:  # fmt: skip
            assert contrast(colours[front], colours[back]) >= 4.5, f"{front} on {back}, {scheme}"
        assert contrast(colours["edge"], colours["card"]) >= 3, f"the edge of a field, {scheme}"
    assert len(papers) == 2


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.skipif(find_axe() is None, reason="axe-core is not there: make test-browser fetches it with npm")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_serious(full: OpenPage, open_page: OpenPage, scheme: str) -> None:
    axe = find_axe()
    assert axe is not None
    page = open_page(color_scheme=scheme, bypass_csp=True)  # the page itself would not let a foreign script in
    page.evaluate(axe.read_text("utf-8"))
    for section in SECTIONS:
        full(page, section)
        found = page.evaluate("rules => axe.run(rules)", RULES[scheme])
        assert found["passes"]
        bad = [rule for rule in found["violations"] if rule["impact"] in ("serious", "critical")]
        assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in bad] == [], section
