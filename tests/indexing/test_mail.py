"""Mails and mailboxes: into an index and out of it, with a real store."""

import mailbox
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from reportlab.pdfgen.canvas import Canvas
from vlmsearch_mocks import MockEncoder

from vlmsearch import Document, InvalidInputError, Pipeline, SourceOptions
from vlmsearch._util.extras import install_command
from vlmsearch._util.unread import HAS_UNREAD
from vlmsearch.indexing.sources import Paths
from vlmsearch.media.images import image_size, open_image, read_image
from vlmsearch.media.limits import DEFAULT_LIMITS
from vlmsearch.server.images import original
from vlmsearch.stores.sqlite.store import SqliteStore

OFFICE = SourceOptions(office=True)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as opened:
        yield opened


def picture() -> bytes:
    image, written = Image.new("RGB", (200, 100), "navy"), BytesIO()
    ImageDraw.Draw(image).ellipse((60, 20, 120, 80), fill="gold")
    image.save(written, "PNG")
    return written.getvalue()


def mail(subject: str, text: str, **files: bytes) -> EmailMessage:
    written = EmailMessage()
    written["Subject"], written["From"], written["To"] = subject, "Ann Lee <ann@example.org>", "bob@example.org"
    written["Date"] = "Wed, 01 May 2024 10:00:00 +0000"
    written.set_content(text)
    for name, data in files.items():
        written.add_attachment(data, maintype="application", subtype="octet-stream", filename=name.replace("_", "."))
    return written


def documents(pipeline: Pipeline) -> dict[str, Document]:
    return {Path(document.id).name: document for document in pipeline.store.get(sorted(pipeline.store.ids()))}


def test_a_mail_is_a_document_and_each_attachment_is_one(pipeline: Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "mail.eml"
    path.write_bytes(
        bytes(mail("The tide", "High water at six.", scene_png=picture(), low_txt=b"Low water", old_zip=b"PK"))
    )
    report = pipeline.index(Paths([path], options=OFFICE))
    assert (report.added, report.rejects) == (3, ())
    found = documents(pipeline)
    assert list(found) == ["mail.eml", "mail.eml#attachment=1", "mail.eml#attachment=2"]
    whole = found["mail.eml"]
    assert whole.text == "The tide\n\nAnn Lee <ann@example.org>\n\nHigh water at six.\n\nscene.png\nlow.txt\nold.zip"
    assert {**whole.metadata, "folder": ""} == {
        "title": "The tide", "author": "Ann Lee <ann@example.org>", "to": "bob@example.org", "date": 20240501,
        "sent": "2024-05-01T10:00:00+00:00", "parts": 2, "type": "eml", "folder": "",
        "unread": "1 attachment", "unread_count": 1,
    }  # fmt: skip
    scene, low = found["mail.eml#attachment=1"], found["mail.eml#attachment=2"]
    assert (scene.image, scene.text, scene.metadata["filename"]) == (Path(f"{path}#attachment=1"), None, "scene.png")
    assert (low.image, low.text, low.metadata["title"], low.metadata["date"]) == (
        None,
        "Low water",
        "low.txt",
        20240501,
    )
    assert low.part is not None
    assert (low.part.name, low.part.of) == ("attachment 2", str(path))
    [match] = pipeline.search("low water")
    assert match.document.id in (str(path), low.id)
    [match] = pipeline.search(image=picture(), limit=1)
    assert match.document.id == scene.id
    assert [match.document.id for match in pipeline.search("tide", where=HAS_UNREAD)] == [str(path)]
    assert pipeline.index(Paths([path], options=OFFICE)).unchanged == 1


def test_the_picture_of_an_attachment_is_read_again_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mail.eml"
    path.write_bytes(bytes(mail("a", "b", scene_png=picture(), low_txt=b"Low")))
    of_mail = Path(f"{path}#attachment=1")
    assert read_image(of_mail) == picture()
    assert image_size(of_mail) == (200, 100)
    assert open_image(Path(f"{of_mail}#xywh=60,20,60,60")).size == (60, 60)
    shown = original(of_mail, DEFAULT_LIMITS)
    assert (shown.data, shown.type) == (picture(), "image/png")
    for fragment, code in (("#attachment=2", "unsupported"), ("#attachment=3", "invalid"), ("#message=1", "invalid")):
        with pytest.raises(InvalidInputError) as caught:
            open_image(Path(f"{path}{fragment}"))
        assert caught.value.code == code


def test_a_mailbox_is_a_document_and_each_message_is_one(pipeline: Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "box.mbox"
    with closing(mailbox.mbox(path)) as box:
        box.add(mail("The tide", "High water at six."))
        box.add(mail("The harbour", "The mole is closed.", scene_png=picture(), map_txt=b"The mole is in the north."))
    assert pipeline.index(Paths([path], options=OFFICE)).added == 5
    found = documents(pipeline)
    second = "box.mbox#message=2"
    assert list(found) == ["box.mbox", "box.mbox#message=1", second, f"{second}&attachment=1", f"{second}&attachment=2"]
    assert (found["box.mbox"].metadata["messages"], found["box.mbox"].metadata["parts"]) == (2, 4)
    assert found[second].metadata["title"] == "The harbour"
    part = found[f"{second}&attachment=1"].part
    assert part is not None
    assert (part.name, part.of, part.message) == ("message 2, attachment 1", str(path), 2)
    assert read_image(Path(f"{path}#message=2&attachment=1")) == picture()
    assert pipeline.delete([str(path)]) == 5


def test_a_search_shows_messages_of_a_mailbox_one_by_one_with_their_attachments(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = tmp_path / "box.mbox"
    with closing(mailbox.mbox(path)) as box:
        box.add(mail("Harbour", "The harbour is open."))
        box.add(mail("Harbour again", "The harbour is closed.", map_txt=b"Map of the harbour"))
    pipeline.index(Paths([path], options=OFFICE))
    matches = pipeline.search("harbour", min_score=0)
    shown = {Path(match.document.id).name.partition("&")[0] for match in matches}
    assert {"box.mbox#message=1", "box.mbox#message=2"} <= shown
    assert len(matches) == len(shown)
    [second] = [match for match in matches if "message=2" in match.document.id]
    assert {Path(id).name for id in [second.document.id, *second.parts]} == {
        "box.mbox#message=2",
        "box.mbox#message=2&attachment=1",
    }


def test_a_mailbox_that_grows_keeps_what_it_had_and_a_bad_mail_is_one_reject(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = tmp_path / "box.mbox"
    with closing(mailbox.mbox(path)) as box:
        box.add(mail("One", "first"))
    pipeline.index(Paths([path], options=OFFICE))
    with closing(mailbox.mbox(path)) as box:
        box.add(mail("Two", "second"))
    (tmp_path / "bad.msg").write_bytes(b"no")
    report = pipeline.index(Paths([tmp_path], options=OFFICE))
    assert (report.added, report.updated, report.unchanged) == (1, 1, 1)
    assert [(Path(reject.id).name, reject.code) for reject in report.rejects] == [("bad.msg", "corrupt")]


WITHOUT = """
import sys
from vlmsearch import Paths, Pipeline, SourceOptions
with Pipeline.open(encoder="mock:", store=f"sqlite:{sys.argv[1]}/index") as pipe:
    paths = [f"{sys.argv[1]}/{name}" for name in ("note.txt", "mail.eml", "page.html", "report.pdf")]
    for options in (SourceOptions(), SourceOptions(office=True)):
        report = pipe.index(Paths(paths, options=options))
        print(report.added, report.partly_read, *(reject.id.rpartition("/")[2] for reject in report.rejects))
        print(*sorted(reject.message.rpartition("pip install ")[2] for reject in report.rejects), sep="\\n")
"""


def test_files_and_attachments_that_need_an_extra_are_rejects_until_it_is_installed(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    report = BytesIO()
    canvas = Canvas(report)
    canvas.drawString(50, 500, "Rain in March")
    canvas.save()
    (tmp_path / "note.txt").write_text("a note")
    (tmp_path / "page.html").write_text("<p>a page</p>")
    (tmp_path / "report.pdf").write_bytes(report.getvalue())
    (tmp_path / "mail.eml").write_bytes(bytes(mail("The tide", "High water.", report_pdf=report.getvalue())))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules |= dict.fromkeys(['pypdfium2', 'lxml'])\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    command = [sys.executable, "-c", WITHOUT, str(tmp_path)]
    first = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rejected = "mail.eml#attachment=1 page.html report.pdf"
    assert first.stdout.splitlines() == [
        f"2 0 {rejected}",
        *(install_command(extra).removeprefix("pip install ") for extra in ("office", "pdf", "pdf")),
    ]
    assert f"MissingDependencyError: web pages need lxml: {install_command('office')}" in first.stderr  # asked for

    names = ["note.txt", "mail.eml", "page.html", "report.pdf"]
    again = pipeline.index(Paths([tmp_path / name for name in names]))
    assert (again.added, again.unchanged, again.rejects) == (4, 2, ())
    assert documents(pipeline)["mail.eml#attachment=1"].text == "Rain in March"


def test_a_folder_whose_files_are_left_out_is_not_lost(pipeline: Pipeline, tmp_path: Path) -> None:
    for name in ("a.eml", "b.eml"):
        (tmp_path / "mails" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "mails" / name).write_bytes(bytes(mail(name, "text")))
    pipeline.index(Paths([tmp_path / "mails"], options=OFFICE))
    (tmp_path / "mails" / "a.eml").unlink()
    report = pipeline.index(Paths([tmp_path / "mails"]), prune=True)
    assert (report.rejects, report.pruned, report.left_out) == ((), 1, {"office": 1})
    assert list(documents(pipeline)) == ["b.eml"]
