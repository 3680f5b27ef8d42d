"""The page from an empty file to a taught recognizer, as people use it: by hand, by keyboard, in two tabs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from page import SECTIONS, OpenPage, ask_api, digits, expect, go, needs_browser, teach

pytestmark = needs_browser

WORDS = ("zero", "one", "two")


def card(page: Any, name: str) -> Any:
    return page.locator("#classes > li").filter(has=page.get_by_role("heading", name=name, exact=True))


def names(page: Any) -> list[str]:
    return page.locator("#classes h3").all_text_contents()


def test_teach_ask_decide_review_reload_undo(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    page = open_page()
    expect(page.locator("#checkup")).to_contain_text("What a careful colleague")

    for word in WORDS:
        page.locator("#new-files").set_input_files(digits(tmp_path, word, 0, 4))
        expect(page.locator("#new-photos li")).to_have_count(4)
        page.get_by_label("Name", exact=True).fill(word)
        page.get_by_role("button", name="Add class").click()
        expect(card(page, word).locator("img")).to_have_count(4)
        expect(page.get_by_label("Name", exact=True)).to_have_value("")
    expect(page.locator("#findings")).to_contain_text("Fewer than 5 photos of 'zero', 'one', 'two'")
    for word in WORDS:
        page.get_by_label(f"Add photos to {word}").set_input_files(digits(tmp_path, word, 4, 6))
        expect(card(page, word)).to_contain_text("6 photos")
    expect(page.locator("#findings")).not_to_contain_text("Fewer than 5 photos")

    known = digits(tmp_path, "two", 30, 31)[0]
    strange = digits(tmp_path, "five", 30, 50)
    unknown = [
        path
        for path, answer in zip(strange, ask_api(api, strange, remember=False), strict=True)
        if answer["is_unknown"]
    ]
    go(page, "ask")
    page.locator("#ask-files").set_input_files([known, *unknown[:3]])
    answers = page.locator("#answers > li")
    expect(page.locator("#answers .verdict h3")).to_have_text(["two", "unknown", "unknown", "unknown"])
    expect(page.locator("#ask-live")).to_have_text("4 answers: two, unknown, unknown, unknown")
    expect(answers.nth(1)).to_contain_text("nearest class")
    expect(answers.nth(1).locator(".reason")).to_have_text(re.compile(r"^[A-Z].*(weak|not like it enough).*\.$"))
    expect(answers.nth(0).locator(".bars li")).to_have_count(4)
    answers.nth(0).get_by_role("button", name="Show why").click()
    overlay = answers.nth(0).locator(".overlay img")
    page.wait_for_function("image => image.complete && image.naturalWidth > 300", arg=overlay.element_handle())

    go(page, "decide")
    expect(page.locator("#decide-summary")).to_contain_text("Target: 5 %")
    before = api.get("/threshold").json()["value"]
    slider = page.locator("#slider")
    slider.focus()
    slider.press("End")
    expect(page.locator("#changes-summary")).to_have_text("3 of 4 recent answers would change:")
    expect(page.locator("#would-change b.unknown")).to_have_count(3)
    assert api.get("/threshold").json()["value"] == before, "nothing is saved yet"
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#would-change li")).to_have_count(0)
    page.get_by_label("Max. false unknowns").press("Control+a")
    page.get_by_label("Max. false unknowns").press_sequentially("20")  # and the field is not left
    expect(page.locator("#decide-summary")).to_contain_text("Target: 20 %")
    page.get_by_label("Max. false unknowns").fill("")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    page.get_by_label("Max. false unknowns").fill("20")
    expect(page.get_by_role("button", name="Save")).to_be_enabled()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    assert api.get("/threshold").json()["target_rate"] == 0.2
    assert api.get("/threshold").json()["value"] < before

    go(page, "review")
    groups = page.locator("#groups > li")
    waiting = groups.locator(".pick").count()
    assert waiting == len([item for item in api.get("/review").json()["recent"] if item["is_unknown"]]) >= 3
    largest = groups.first.locator(".pick").count()
    groups.first.get_by_role("combobox").fill("five")
    groups.first.get_by_role("button", name="Teach").click()
    expect(page.locator(".notice.info").last).to_contain_text("five")
    expect(page.locator("#recent li").filter(has_text="taught")).to_have_count(largest)

    page.reload()
    expect(page.locator("#recent li").filter(has_text="taught")).to_have_count(largest)
    go(page, "teach")
    expect(card(page, "five").locator("img")).to_have_count(largest)
    page.get_by_role("button", name="Undo").click()
    expect(card(page, "five")).to_have_count(0)
    assert names(page) == list(WORDS)
    page.get_by_role("button", name="Redo").click()
    expect(card(page, "five")).to_have_count(1)

    go(page, "export")
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download .glocal").click()
    assert taken.value.path().read_bytes()[:2] == b"PK"
    assert taken.value.suggested_filename == "digits.glocal"
    with page.expect_download() as table:
        page.get_by_role("link", name="Download CSV").click()
    assert table.value.path().read_text().count("two-030.png") == 1
    assert table.value.suggested_filename == "digits-answers.csv"


def test_correct_rename_remove_and_photos_dropped_or_pasted(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3, "one": 3})
    page = open_page(allowed=(422,))
    hand_over(page, card(page, "one"), "drop", digits(tmp_path, "one", 5, 6))
    expect(card(page, "one")).to_contain_text("4 photos")
    hand_over(page, page.locator("body"), "paste", digits(tmp_path, "two", 0, 2))
    expect(page.locator("#new-photos li")).to_have_count(2)
    page.get_by_label("Leave out two-000.png").click()
    expect(page.locator("#new-photos li")).to_have_count(1)

    page.get_by_label("Rename one").click()
    page.get_by_label("New name").fill("zero")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.locator("#rename-problem")).to_contain_text("zero")
    expect(page.get_by_label("New name")).to_have_value("zero")  # what was typed is still there
    page.get_by_label("New name").fill("uno")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.locator("#classes h3")).to_have_text(["zero", "uno"])
    page.get_by_label("Remove zero-000.png from zero").click()
    expect(card(page, "zero")).to_contain_text("2 photos")
    page.locator(".notice.info").get_by_role("button", name="Undo").last.click()
    expect(card(page, "zero")).to_contain_text("3 photos")
    page.get_by_label("Remove class uno").click()
    expect(page.locator("#classes h3")).to_have_text(["zero"])

    go(page, "ask")
    hand_over(page, page.locator("#ask-drop"), "drop", digits(tmp_path, "two", 5, 6))
    answer = page.locator("#answers > li").first
    answer.get_by_role("button", name=re.compile("Name it|Correct it")).click()
    answer.get_by_role("combobox").fill("two")
    answer.get_by_role("button", name="Teach it").click()
    expect(answer).to_contain_text("There is no class two yet. Make it from this photo?")
    assert [each["name"] for each in api.get("/classes").json()] == ["zero"], "nothing is made unasked"
    answer.get_by_role("button", name="Back").click()
    expect(answer.get_by_role("combobox")).to_have_value("two")
    answer.get_by_role("button", name="Teach it").click()
    answer.get_by_role("button", name="Make the class").click()
    expect(answer).to_contain_text("now a photo of two")
    assert [each["name"] for each in api.get("/classes").json()] == ["zero", "two"]
    hand_over(page, page.locator("#ask-drop"), "drop", digits(tmp_path, "zero", 7, 8))
    answer = page.locator("#answers > li").first
    expect(answer.locator("h3")).to_have_text("zero")
    answer.get_by_role("button", name="Correct it").click()
    answer.get_by_role("button", name="None of the classes").click()
    expect(answer).to_contain_text("kept as unknown")
    assert len(api.get("/state").json()["known_unknowns"]) == 1
    page.get_by_role("button", name="Camera").click()
    page.wait_for_function("() => document.querySelector('video').videoWidth > 0")
    page.get_by_role("button", name="Take photo").click()
    expect(page.locator("#answers .file").first).to_have_text("camera-1.jpg")
    expect(page.locator("#answers .verdict")).to_have_count(3)
    page.get_by_role("button", name="Close camera").click()
    expect(page.locator("video")).to_be_hidden()


def hand_over(page: Any, target: Any, kind: str, paths: list[Path]) -> None:
    """Photos as a mouse or the clipboard brings them."""
    page.evaluate(
        """async ([target, kind, files]) => {
            const data = new DataTransfer();
            for (const {name, bytes} of files)
                data.items.add(new File([new Uint8Array(bytes)], name, {type: "image/png"}));
            const event = kind === "drop"
                ? new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true})
                : new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
            target.dispatchEvent(event);
        }""",
        [target.element_handle(), kind, [{"name": path.name, "bytes": list(path.read_bytes())} for path in paths]],
    )


def test_two_tabs_do_not_lose_each_others_changes(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, {"zero": 3})
    one, other = open_page(allowed=(409,)), open_page(allowed=(409,))
    expect(card(other, "zero")).to_be_visible()
    overlook_changes(other, api)
    add(one, tmp_path, "one")
    expect(card(one, "one")).to_be_visible()

    add(other, tmp_path, "two")
    expect(other.locator(".notice.error")).to_contain_text("Somebody else changed the classes")
    assert names(other) == ["zero", "one"], "the new state is shown, nothing is lost and nothing was added"
    expect(other.get_by_label("Name", exact=True)).to_have_value("two")
    expect(other.locator("#new-photos li")).to_have_count(3)
    other.get_by_role("button", name="Add class").click()
    expect(card(other, "two")).to_be_visible()
    assert [each["name"] for each in api.get("/classes").json()] == ["zero", "one", "two"]

    one.evaluate("dispatchEvent(new Event('focus'))")  # whoever comes back to a tab sees what happened meanwhile
    expect(card(one, "two")).to_be_visible()

    overlook_changes(one, api)
    api.patch("/classes/one", json={"name": "uno"}).raise_for_status()
    hand_over(one, card(one, "zero"), "drop", digits(tmp_path, "zero", 5, 6))
    expect(card(one, "uno")).to_be_visible()
    expect(card(one, "zero")).to_contain_text("3 photos")
    one.get_by_role("button", name="Make it anyway").click()
    expect(card(one, "zero")).to_contain_text("4 photos")


def overlook_changes(page: Any, api: Any) -> None:
    """From now on it is told that nothing happened."""
    health = api.get("/health").json()
    page.route("**/health", lambda route: route.fulfill(json=health))


def add(page: Any, home: Path, word: str) -> None:
    page.locator("#new-files").set_input_files(digits(home, word, 0, 3))
    page.get_by_label("Name", exact=True).fill(word)
    page.get_by_role("button", name="Add class").click()


def test_everything_by_keyboard(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    """Only the system's own file dialog, which no page controls, is answered for the person."""
    teach(api, tmp_path, {"zero": 3, "one": 3})
    ask_api(api, digits(tmp_path, "five", 30, 34))
    page = open_page()
    page.on("filechooser", lambda chooser: chooser.set_files(digits(tmp_path, "two", 0, 3)))
    expect(card(page, "one")).to_be_visible()
    press = page.keyboard.press

    def tab_to(label: str, most: int = 40) -> None:
        for _ in range(most):
            press("Tab")
            if focused(page).startswith(label):
                return
        raise AssertionError(f"Tab does not reach {label!r}, the last was {focused(page)!r}")

    press("Tab")
    assert focused(page) == "Skip to the content"
    for section in SECTIONS:
        tab_to(section.capitalize())
    press("Tab")
    assert focused(page) == "Name"
    page.keyboard.type("two")
    tab_to("Choose photos")
    press("Enter")
    expect(page.locator("#new-photos li")).to_have_count(3)
    tab_to("Add class")
    press("Enter")
    expect(card(page, "two")).to_be_visible()
    assert focused(page) == "Name", "ready for the next class"
    tab_to("Remove zero-000.png from zero")
    press("Enter")
    expect(card(page, "zero")).to_contain_text("2 photos")
    press("Control+z")
    expect(card(page, "zero")).to_contain_text("3 photos")

    page.goto(page.url.split("#")[0] + "#decide")
    expect(page.locator(".histogram")).to_be_visible()
    tab_to("Threshold: above this score a photo is unknown")
    for _ in range(30):
        press("ArrowLeft")
    expect(page.get_by_role("button", name="Save")).to_be_enabled()
    tab_to("Save")
    press("Enter")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    expect(page.locator("#decide-summary")).to_contain_text("Set by hand: it has no target rate")
    page.goto(page.url.split("#")[0] + "#review")
    expect(page.locator("#groups li").first).to_be_visible()
    largest = page.locator("#groups > li").first.locator(".pick").count()
    tab_to(page.locator("#groups input[type=text]").first.get_attribute("aria-label"))
    page.keyboard.type("five")
    press("Enter")
    expect(page.locator("#recent li").filter(has_text="taught")).to_have_count(largest)


def focused(page: Any) -> str:
    """What a screen reader would call the focused element, roughly; and it must show that it has the focus."""
    name, seen = page.evaluate(
        """() => {
            const it = document.activeElement;
            const label = it.getAttribute("aria-label") ?? it.labels?.[0]?.textContent ?? it.textContent;
            const holder = it.type === "file" ? it.closest("label") : it;
            const style = getComputedStyle(holder);
            const exempt = it.type === "range" || it.tagName === "H1" || it === document.body;
            return [label.trim(), exempt || parseFloat(style.outlineWidth) >= 2];
        }"""
    )
    assert seen, f"{name!r} does not show that it has the focus"
    return str(name)


def test_check_shows_what_other_target_rates_do_and_sets_one(open_page: OpenPage, api: Any, tmp_path: Path) -> None:
    teach(api, tmp_path, dict.fromkeys(WORDS, 6))
    page = open_page("check")
    for label, word in (("one", "one"), ("unknown", "five")):
        page.get_by_label("Or photos that show").fill(label)
        page.locator("#check-files").set_input_files(digits(tmp_path, word, 30, 36))
    page.locator("#check-run").click()
    rows = page.locator("#check-trade-off tr")
    expect(rows).to_have_count(6)
    expect(rows.last).to_contain_text("of 6; 95")
    page.get_by_role("button", name="Set the threshold for a target rate of 30").click()
    expect(page.locator("#check-note")).to_contain_text("check again")
    assert api.get("/threshold").json()["target_rate"] == 0.3
