from html.parser import HTMLParser

from infoflow.report import html, style

HOSTILE = "<script>alert('x')</script> & \"quoted\""


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in {"href", "src", "xlink:href"}:
                self.links.append(value)
            if name == "id":
                self.ids.append(value)


def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


def drawn():
    made, axes = style.figure(3, 2)
    axes.plot([1, 2], [1, 2])
    return made


def test_everything_written_is_escaped():
    section = html.Section(HOSTILE).text(HOSTILE).code(HOSTILE).table([HOSTILE], [[HOSTILE, 3]])
    section.figure("a", drawn(), HOSTILE)
    page = html.page(HOSTILE, HOSTILE, [section])
    assert "script" not in read(page).tags
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 6


def test_the_page_is_self_contained():
    parts = [html.Section("one").figure("a b", drawn(), "first"), html.Section("two").figure("c", drawn(), "second")]
    reader = read(html.page("title", "lead", parts))
    assert all(link.startswith("#") for link in reader.links)
    assert not {"link", "img", "iframe", "script"} & set(reader.tags)


def test_two_drawings_share_no_id():
    parts = [html.Section("one").figure("a", drawn(), "first").figure("b", drawn(), "second")]
    ids = read(html.page("title", "lead", parts)).ids
    assert ids
    assert len(ids) == len(set(ids))


def test_writes_a_file(tmp_path):
    path = html.write(tmp_path / "out" / "report.html", "title", "lead", [html.Section("s").text("words")])
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
