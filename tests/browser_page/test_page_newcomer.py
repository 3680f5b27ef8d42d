"""What a newcomer meets: a tour, an empty page, an example; and what many photos make of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page import OpenPage, ask_api, digits, expect, go, needs_browser, teach
from PIL import Image

from glocal.recognizer import Recognizer
from photos import some

pytestmark = needs_browser


def test_the_tour_shows_every_section_once_and_can_be_skipped(open_page: OpenPage) -> None:
    page = open_page(first=True)
    tour = page.locator("#tour")
    expect(tour).to_contain_text("1 of 6")
    for section in ("ask", "review", "decide", "check", "export"):
        tour.get_by_role("button", name="Next").click()
        expect(page.locator(f"#{section}")).to_be_visible()
    tour.get_by_role("button", name="Done").click()
    expect(tour).to_be_hidden()
    expect(page.locator("#teach")).to_be_visible()
    page.reload()
    page.locator("#start").wait_for()
    expect(tour).to_be_hidden()
    page.get_by_role("button", name="Show the tour").click()
    tour.get_by_role("button", name="Next").click()
    tour.get_by_role("button", name="Back").click()
    expect(tour).to_contain_text("1 of 6")
    tour.get_by_role("button", name="Skip the tour").click()
    expect(tour).to_be_hidden()


def test_an_empty_page_says_what_to_do_and_has_an_example(open_page: OpenPage, api: Any) -> None:
    page = open_page()
    expect(page.locator("#start")).to_contain_text("Nothing is taught yet")
    page.get_by_role("button", name="Try it with an example").click()
    expect(page.locator("#answers .verdict")).to_have_count(6)
    expect(page.locator("#answers .verdict h3").first).to_have_text("zero")
    expect(page.locator("#example-note")).to_be_visible()
    go(page, "teach")
    expect(page.locator("#classes h3")).to_have_text(["zero", "one", "two", "three"])
    expect(page.locator("#start")).to_be_hidden()
    for query in api.get("/review").json()["recent"]:
        api.delete(f"/review/queries/{query['id']}").raise_for_status()
    page.get_by_role("button", name="Start with my own photos").click()
    expect(page.locator("#start")).to_be_visible()
    expect(page.locator("#example-note")).to_be_hidden()
    assert api.get("/classes").json() == []


def test_many_answers_are_rows_in_pages(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3, "one": 3})
    page = open_page("ask")
    page.locator("#ask-files").set_input_files(digits(tmp_path, "one", 20, 23))
    expect(page.locator("#answers .verdict")).to_have_count(3)
    expect(page.locator("#answers .bars:visible")).to_have_count(3)  # a few are shown whole
    page.locator("#ask-files").set_input_files(digits(tmp_path, "zero", 20, 32))
    expect(page.locator("#answers .verdict")).to_have_count(15)
    expect(page.locator("#answers > li:visible")).to_have_count(12)
    expect(page.locator("#answers .bars:visible")).to_have_count(1)
    expect(page.locator("#answers .file").first).to_have_text("zero-020.png")  # what was asked last is first
    second = page.locator("#answers > li").nth(1)
    second.get_by_role("button", name="Details").click()
    expect(second.locator(".bars")).to_be_visible()
    page.get_by_role("navigation", name="Pages of answers").get_by_role("button", name="Older").click()
    expect(page.locator("#answers > li:visible .file")).to_have_text([f"one-0{i}.png" for i in (20, 21, 22)])
    expect(page.locator(".pages:visible")).to_contain_text("13 to 15 of 15 answers")
    page.locator("#ask-files").set_input_files(digits(tmp_path, "one", 23, 24))
    expect(page.locator("#answers > li:visible .file").first).to_have_text("one-023.png")

    ask_api(api, digits(tmp_path, "one", 24, 36))
    go(page, "review")
    page.reload()
    expect(page.locator("#recent > li")).to_have_count(28)
    expect(page.locator("#recent > li:visible")).to_have_count(20)
    page.get_by_role("navigation", name="Pages of answers").get_by_role("button", name="Older").click()
    expect(page.locator("#recent > li:visible")).to_have_count(8)


def test_what_the_model_saw_is_framed_on_the_photo(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3, "one": 3})
    wide = tmp_path / "wide.png"
    square = digits(tmp_path, "one", 20, 21)[0]
    with Image.open(square) as picture:
        canvas = Image.new("RGB", (64, 32))
        canvas.paste(picture, (16, 0))
    canvas.save(wide)
    page = open_page("ask")
    page.locator("#ask-files").set_input_files([wide, square])
    answers = page.locator("#answers > li")
    expect(answers.nth(0).locator(".seen")).to_have_count(1)
    expect(answers.nth(1).locator(".verdict")).to_have_count(1)
    expect(answers.nth(1).locator(".seen")).to_have_count(0)  # all of it was seen
    box, seen = (answers.nth(0).locator(part).bounding_box() for part in (".answer-picture", ".seen"))
    assert abs(seen["width"] / box["width"] - 0.5) < 0.02, "the middle half of the width"
    assert abs(seen["width"] - seen["height"]) < 2
    assert abs((seen["x"] - box["x"]) - (box["x"] + box["width"] - seen["x"] - seen["width"])) < 2


def test_check_up_says_the_same_on_teach_and_decide(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 1, "one": 3})
    state = api.get("/state").json()
    expected = len(state["findings"]) + len(state["threshold"]["warnings"])
    assert expected > 1
    page = open_page()
    expect(page.locator("#checkup li")).to_have_count(expected)
    on_teach = page.locator("#checkup li").all_text_contents()
    go(page, "decide")
    expect(page.locator("#decide .checkup li")).to_have_count(expected)
    assert page.locator("#decide .checkup li").all_text_contents() == on_teach
    for warning in state["threshold"]["warnings"]:
        assert any(warning[1:] in text for text in on_teach)


def test_a_file_that_another_program_changed_is_read_again(
    open_page: OpenPage, api: Any, tmp_path: Path, served: Path
) -> None:
    teach(api, tmp_path, {"zero": 3, "one": 3})
    page = open_page()
    expect(page.locator("#classes h3")).to_have_text(["zero", "one"])
    other = Recognizer.load(served, device="cpu")
    other.add_class("two", some("two", 0, 3))
    other.save(served)
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("#classes h3")).to_have_text(["zero", "one", "two"])
    expect(page.locator(".notice.info")).to_contain_text("Another program changed digits.glocal")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#classes h3")).to_have_text(["zero", "one"])
