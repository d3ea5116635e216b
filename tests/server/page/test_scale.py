"""100,000 documents scroll as a hundred do."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Route, expect

DOCUMENTS = 100_000
PAGE = 10_000

FRAMES = """async (top) => {
  const times = [];
  let last = performance.now();
  for (let at = 0; at < 60; at += 1) {
    scrollTo(0, top + at * 400);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  return times.sort((a, b) => a - b);
}"""


def test_100_000_documents_do_not_slow_the_page(page: Page) -> None:
    def documents(route: Route) -> None:
        asked = parse_qs(urlsplit(route.request.url).query)
        first = int(asked.get("after", ["-1"])[0]) + 1
        some = [
            {"id": f"{n:06}", "text": f"document {n}", "image": None, "metadata": {"n": n}}
            for n in range(first, min(first + PAGE, DOCUMENTS))
        ]
        last = some[-1]["id"] if first + PAGE < DOCUMENTS else None
        route.fulfill(json={"documents": some, "after": last})

    page.route("**/documents?*", documents)
    page.goto("/")
    expect(page.locator(".card").first).to_be_visible()
    few = page.evaluate(FRAMES, 0)
    for _ in range(1000):
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_timeout(60)
        if page.locator(f"[aria-posinset='{DOCUMENTS}']").count():
            break
    expect(page.locator(f"[aria-posinset='{DOCUMENTS}']")).to_be_attached()
    assert page.locator(".card").count() < 100
    middle = page.evaluate("document.documentElement.scrollHeight / 2")
    many = page.evaluate(FRAMES, middle)
    assert many[len(many) // 2] < max(3 * few[len(few) // 2], 50)  # milliseconds: three frames of a screen of 60 Hz
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator("[aria-posinset='1']")).to_be_visible()
