"""Mails as programs write them, in the raw bytes of their forms, and as Python's email writes them."""

import mailbox
import random
import re
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import datetime, timezone
from email.encoders import encode_base64
from email.message import EmailMessage
from email.mime.base import MIMEBase
from email.mime.multipart import MIMEMultipart
from io import BytesIO
from pathlib import Path

import docx
import oxmsg
import pytest
from odf.opendocument import OpenDocumentText
from odf.text import P
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from tests.support.outlook import Properties, mail_tree, outlook_mail
from vlmsearch import InvalidInputError
from vlmsearch._util.extras import install_command
from vlmsearch.media.attachments import read_attachment
from vlmsearch.media.limits import DEFAULT_LIMITS
from vlmsearch.media.mail import MAX_MESSAGE_BYTES, Mail, attachment_bytes, read_mails
from vlmsearch.media.office.content import Content


def mail_in(tmp_path: Path, data: bytes | str, name: str = "mail.eml") -> Mail:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    [(number, mail)] = read_mails(path)
    assert number is None
    assert isinstance(mail, Mail)
    return mail


def body_of(tmp_path: Path, data: bytes | str) -> str:
    """Return the text of a mail without a header field that is text."""
    return mail_in(tmp_path, data).text


def contents(mail: Mail) -> dict[str, Content | bytes | None]:
    return {attachment.name: read_attachment(attachment, DEFAULT_LIMITS) for attachment in mail.attachments}


def text_of(content: Content | bytes | None) -> str:
    assert isinstance(content, Content)
    return content.text


def png(side: int = 64) -> bytes:
    written = BytesIO()
    Image.new("RGB", (side, side), "red").save(written, "PNG")
    return written.getvalue()


def written(subject: str = "The lighthouse", text: str = "The keeper feeds two gulls.\n") -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = subject, '"Lee, Ann" <ann@example.org>', "Bob <bob@example.org>"
    mail["Date"] = "Thu, 02 May 2024 00:30:00 +0900"
    mail.set_content(text)
    return mail


# ---------------------------------------------------------------------------------------------------------- headers


def test_subject_sender_receivers_and_time_are_metadata_and_the_first_paragraphs(tmp_path: Path) -> None:
    given = written("Grüße aus dem Hafen: die neue Mole, die Öffnungszeiten und die Überfahrten im Frühjahr")
    given["Cc"] = "Jürgen Müller <jm@example.org>, carl@example.org"
    mail = mail_in(tmp_path, bytes(given))
    assert mail.metadata == {
        "title": "Grüße aus dem Hafen: die neue Mole, die Öffnungszeiten und die Überfahrten im Frühjahr",
        "author": "Lee, Ann <ann@example.org>",
        "to": "Bob <bob@example.org>",
        "cc": "Jürgen Müller <jm@example.org>, carl@example.org",
        "date": 20240502,
        "sent": "2024-05-01T15:30:00+00:00",
    }
    assert mail.text == f"{mail.metadata['title']}\n\nLee, Ann <ann@example.org>\n\nThe keeper feeds two gulls."


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b"=?utf-8?Q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        (b"=?UTF-8?B?R3I=?=\r\n =?UTF-8?B?w7w=?= =?UTF-8?B?w59l?= x", "Grüße x"),
        (b"=?utf-8?B?R3LD?= =?utf-8?B?vMOfZQ==?=", "Grüße"),  # cut inside of a character
        (b"=?utf-8?b?R3LDvMOfZQ?=", "Grüße"),  # without its padding
        (b"pre=?iso-8859-1?q?=FC?=post", "preüpost"),
        (b'"=?utf-8?q?M=C3=BCller,_J?=" <j@example.org>', "Müller, J <j@example.org>"),
        (b"=?utf-8*de?Q?gr=C3=BCn?=", "grün"),  # with a language, of RFC 2231
        (b"=?utf-8?Q?two words?=", "two words"),  # with a space that should be _
        (b"=?iso-2022-jp?B?GyRCRnxLXBsoQg==?=", "日本"),
        (b"=?gb2312?B?1tC5+g==?= 3", "中国 3"),
        ("Grüße".encode(), "Grüße"),
        (b"=?utf-8?B?x?= =?no", "=?utf-8?B?x?= =?no"),
        (b"=?x-unknown?Q?abc?=", "abc"),
        (b"a\r\n\tfolded  line", "a folded line"),
    ],
)
def test_encoded_words_are_read_wherever_and_however_they_stand(tmp_path: Path, raw: bytes, read: str) -> None:
    assert mail_in(tmp_path, b"Subject: " + raw + b"\r\n\r\ntext\r\n").metadata["title"] == read


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b'filename="=?utf-8?Q?=C3=BCber.txt?="', "über.txt"),  # Gmail, Outlook
        (b"filename*=utf-8''%C3%BCber%20uns.txt", "über uns.txt"),
        (b"filename*0*=utf-8''%C3%BCber;\r\n filename*1*=%20uns;\r\n filename*2=.txt", "über uns.txt"),
        (b"filename*=gb2312''%D6%D0%B9%FA.txt", "中国.txt"),
        (b'filename="\xc3\xbcber.txt"', "über.txt"),
        (b'filename="C:\\\\notes\\\\a.txt"', "a.txt"),
        (b"filename=../../a.txt", "a.txt"),
    ],
)
def test_names_of_files_are_read(tmp_path: Path, raw: bytes, read: str) -> None:
    head = b"Subject: a\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; "
    [attachment] = mail_in(tmp_path, head + raw + b"\r\n\r\ntext").attachments
    assert attachment.name == read


@pytest.mark.parametrize(
    ("given", "day", "sent"),
    [
        ("Date: Wed, 1 May 2024 10:00:00 -0000", 20240501, "2024-05-01T10:00:00+00:00"),
        ("Date: 1 May 24 10:00 +0200", 20240501, "2024-05-01T08:00:00+00:00"),
        ("Date: Wed, 1 May 2024 10:00:00 +0200 (CEST)", 20240501, "2024-05-01T08:00:00+00:00"),
        ("Date: soon\r\nReceived: by x; Wed, 1 May 2024 10:00:00 +0000", 20240501, "2024-05-01T10:00:00+00:00"),
        ("Date: Wed, 41 May 2024 10:00:00 +0000", None, None),
    ],
)
def test_times_are_read(tmp_path: Path, given: str, day: int | None, sent: str | None) -> None:
    metadata = mail_in(tmp_path, f"{given}\r\nSubject: a\r\n\r\ntext").metadata
    assert (metadata.get("date"), metadata.get("sent")) == (day, sent)


# ------------------------------------------------------------------------------------------------------------- text

SIGNED = (
    b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nsigned\n"
    b"-----BEGIN PGP SIGNATURE-----\n\niQ==\n-----END PGP SIGNATURE-----\n"
)


def test_a_text_in_two_forms_is_read_once(tmp_path: Path) -> None:
    given = written()
    given.add_alternative("<p>The keeper feeds <b>two</b> gulls.</p><img src=cid:a>", subtype="html")
    assert mail_in(tmp_path, bytes(given)).text.count("keeper") == 1


@pytest.mark.parametrize("stub", ["", " \n", "Your program does not show HTML. Use one that does, please.\n"])
def test_a_plain_form_that_is_empty_or_a_stub_gives_way(tmp_path: Path, stub: str) -> None:
    given = written(text=stub)
    given.add_alternative("<p>The keeper feeds <b>two</b> gulls.</p>", subtype="html")
    text = mail_in(tmp_path, bytes(given)).text
    assert text.endswith("The keeper feeds two gulls.")
    assert "HTML" not in text


def test_the_form_that_leaves_out_fewer_words_is_read(tmp_path: Path) -> None:
    both = " ".join(f"word{number}" for number in range(40))
    given = written(text=f"{both}\nhttps://example.org/a/long/link\n")
    given.add_alternative(f"<p>{both}</p><table><tr><td>Number<td>4711</table>", subtype="html")
    assert mail_in(tmp_path, bytes(given)).text.endswith(f"{both}\n\nNumber\t4711")
    given = written(text=f"{both}\nNumber 4711\n")
    given.add_alternative(f"<p>{both}</p>", subtype="html")
    assert "4711" in mail_in(tmp_path, bytes(given)).text


def test_lines_that_end_as_on_old_macintoshes_are_lines(tmp_path: Path) -> None:
    assert body_of(tmp_path, b"Subject: a\n\none\rtwo") == "a\n\none\ntwo"


def test_an_empty_form_in_html_does_not_take_the_place_of_a_text(tmp_path: Path) -> None:
    given = written(text="The keeper feeds two gulls and a cat, every day at nine, with bread.\n")
    given.add_alternative("<p>gone</p>", subtype="html")
    assert "bread" in mail_in(tmp_path, bytes(given)).text


def test_apple_mail_puts_attachments_between_pieces_of_one_form(tmp_path: Path) -> None:
    text = body_of(
        tmp_path,
        "Subject: a\r\nContent-Type: multipart/alternative;\r\n\tboundary=Apple-Mail-1\r\n\r\n"
        "--Apple-Mail-1\r\nContent-Type: text/plain;\r\n\tcharset=us-ascii\r\n\r\nbefore after\r\n"
        "--Apple-Mail-1\r\nContent-Type: multipart/mixed; boundary=Apple-Mail-2\r\n\r\n"
        "--Apple-Mail-2\r\nContent-Type: text/html\r\n\r\n<html><body>before</body></html>\r\n"
        "--Apple-Mail-2\r\nContent-Disposition: inline; filename=n.txt\r\nContent-Type: text/plain; name=n.txt\r\n\r\n"
        "notes\r\n--Apple-Mail-2\r\nContent-Type: text/html\r\n\r\n<html><body>after</body></html>\r\n"
        "--Apple-Mail-2--\r\n\r\n--Apple-Mail-1--\r\n",
    )
    assert text == "a\n\nbefore after\n\nn.txt"


@pytest.mark.parametrize(
    ("head", "data", "read"),
    [
        ("Content-Type: text/plain\r\nContent-Transfer-Encoding: Quoted-Printable", b"caf=C3=A9=\r\ns", "cafés"),
        ("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64 ; x", b"Y2Fmw6k=", "café"),
        ("Content-Type: text/plain; charset=iso-8859-15\r\nContent-Transfer-Encoding: 8bit", b"5 \xa4", "5 €"),
        ("Content-Type: text/plain; charset=gb2312", "中国".encode("gbk"), "中国"),
        ("Content-Type: text/plain; charset=x-no", "naïve".encode(), "naïve"),
        ("Content-Type: text/plain; charset=\xff", "naïve".encode(), "naïve"),
        ("Content-Type: text/plain", "naïve".encode(), "naïve"),
        ("Content-Type: text", b"plain", "plain"),
        ("Content-Type: text/html; charset=iso-8859-1", b"<meta charset=utf-8>na\xefve", "naïve"),
        ("Content-Type: text/html", "<meta charset=utf-8>naïve".encode(), "naïve"),
        ("Content-Type: text/plain; format=flowed", b"> a \r\n> b\r\nc \r\nd\r\n-- \r\nAnn", "> a b\nc d\n-- \nAnn"),
        ("Content-Type: text/plain; format=flowed; delsp=yes", "日 \r\n本\r\n From".encode(), "日本\nFrom"),
        ("Content-Type: multipart/mixed", b"--x1\r\nContent-Type: text/plain\r\n\r\none\r\n--x1--", "one"),
        ("Content-Type: multipart/mixed; boundary=y", b"--x\r\ncontent-type: text/html\r\n\r\n<p>one\r\n--x--", "one"),
        ("Content-Type: multipart/mixed", b"no parts", "no parts"),
        ("MIME-Version: 1.0", SIGNED, "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nsigned"),
    ],
)  # fmt: skip
def test_encodings_and_forms_of_texts_are_undone(tmp_path: Path, head: str, data: bytes, read: str) -> None:
    assert body_of(tmp_path, head.encode("latin-1") + b"\r\n\r\n" + data) == read


def test_an_invitation_and_a_business_card_are_read_once(tmp_path: Path) -> None:
    given = written(text="You are invited.\n")
    event = (
        "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VTIMEZONE\r\nTZID:Paris\r\nBEGIN:STANDARD\r\n"
        "DTSTART:16010101T030000\r\nEND:STANDARD\r\nEND:VTIMEZONE\r\nBEGIN:VEVENT\r\n"
        "DTSTART;TZID=Paris:20240501T100000\r\nSUMMARY:Harbour\\, tour\r\n"
        "DESCRIPTION;LANGUAGE=en:Meet at the\r\n  mole\\nBring a coat\r\nUID:abc\r\n"
        'ATTENDEE;CN="Ann Lee";RSVP=TRUE:mailto:ann@example.org\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n'
    )
    given.add_alternative(event, subtype="calendar")
    given.add_attachment(event.encode(), maintype="application", subtype="ics", filename="invite.ics")
    card = b"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Bob Ray\r\nADR;TYPE=WORK:;;1 Quay;Brest\r\nPHOTO:abc\r\nEND:VCARD\r\n"
    given.add_attachment(card, maintype="text", subtype="x-vcard", filename="bob.vcf")
    lines = mail_in(tmp_path, bytes(given)).text.splitlines()
    assert lines[4:] == [
        "You are invited.", "",
        "2024-05-01 10:00", "Harbour, tour", "Meet at the mole", "Bring a coat", "Ann Lee, mailto:ann@example.org", "",
        "Bob Ray", "1 Quay, Brest",
    ]  # fmt: skip


def test_a_delivery_report_says_what_failed_and_for_what(tmp_path: Path) -> None:
    mail = mail_in(
        tmp_path,
        "Subject: failed\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n"
        "--b\r\nContent-Type: text/plain\r\n\r\nIt was not delivered.\r\n"
        "--b\r\nContent-Type: message/delivery-status\r\n\r\n"
        "Reporting-MTA: dns; mx.example.org\r\n\r\nFinal-Recipient: rfc822; bob@example.org\r\nStatus: 5.1.1\r\n\r\n"
        "--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: the tide\r\n\r\nHigh water at six.\r\n--b--\r\n",
    )
    assert "It was not delivered.\n\nReporting-MTA: dns; mx.example.org\n\nFinal-Recipient: rfc822; bob" in mail.text
    assert text_of(contents(mail)["the tide"]) == "the tide\n\nHigh water at six."


# ------------------------------------------------------------------------------------------------------ attachments


def test_attachments_are_read_by_their_own_readers(tmp_path: Path) -> None:
    given = written()
    lease, report, archive = BytesIO(), BytesIO(), BytesIO()
    document = docx.Document()
    document.add_paragraph("The rent is due.")
    document.save(lease)
    canvas = Canvas(report)
    canvas.drawString(50, 500, "Rain in March")
    canvas.showPage()
    canvas.rect(50, 50, 100, 100)
    canvas.showPage()
    canvas.drawString(50, 500, "Sun in May")
    canvas.save()
    with zipfile.ZipFile(archive, "w") as pack:
        pack.writestr("a", "b")
    files: Mapping[str, tuple[str, bytes]] = {
        "lease.docx": ("application/octet-stream", lease.getvalue()),
        "report.pdf": ("application/pdf", report.getvalue()),
        "scene.jpg": ("application/octet-stream", png()),
        "icon.png": ("image/png", png(16)),
        "table.csv": ("application/octet-stream", "Öre,5".encode()),
        "old.zip": ("application/zip", archive.getvalue()),
        "bad.docx": ("application/octet-stream", b"no"),
        "bad.pdf": ("application/pdf", b"no"),
        "none.txt": ("text/plain", b""),
    }
    for name, (kind, data) in files.items():
        given.add_attachment(data, maintype=kind.split("/")[0], subtype=kind.split("/")[1], filename=name)
    read = contents(mail_in(tmp_path, bytes(given)))
    assert text_of(read["lease.docx"]) == "The rent is due."
    assert read["report.pdf"] == Content("Rain in March\n\nSun in May", unread={"page": 1})
    assert read["scene.jpg"] == png()
    assert read["icon.png"] == Content("")
    assert text_of(read["table.csv"]) == "Öre,5"
    assert [name for name, content in read.items() if content is None] == ["old.zip", "bad.docx", "bad.pdf", "none.txt"]
    assert attachment_bytes(tmp_path / "mail.eml", None, 3) == png()
    with pytest.raises(InvalidInputError, match="no attachment 10"):
        attachment_bytes(tmp_path / "mail.eml", None, 10)


@pytest.mark.parametrize(
    ("name", "kind", "data", "read"),
    [
        ("liste.csv", "application/vnd.ms-excel", b"name;sum", "name;sum"),
        ("Invoice No. 4711", "application/vnd.oasis.opendocument.text", None, "The rent is due."),
        ("Invoice No. 4711", "application/x-pdf", None, "Rain in March"),
        ("a.txt", "text/plain; charset=iso-8859-2", "żółw gęś".encode("iso-8859-2"), "żółw gęś"),
        ("a.html", "text/html; charset=iso-8859-2", "<p>żółw gęś".encode("iso-8859-2"), "żółw gęś"),
    ],
)
def test_names_types_and_labels_of_attachments_may_each_tell_what_they_are(
    tmp_path: Path, name: str, kind: str, data: bytes | None, read: str
) -> None:
    file = BytesIO()
    if "opendocument" in kind:
        (document := OpenDocumentText()).text.addElement(P(text=read))
        document.write(file)
    else:
        (canvas := Canvas(file)).drawString(50, 500, read)
        canvas.save()
    outer = MIMEMultipart()
    part = MIMEBase("application", "octet-stream")
    part.set_payload(data or file.getvalue())
    encode_base64(part)
    part.replace_header("Content-Type", kind)
    part.add_header("Content-Disposition", "attachment", filename=name)
    outer.attach(part)
    assert contents(mail_in(tmp_path, bytes(outer)))[name] == Content(read)


@pytest.mark.parametrize("way", ["attached", "base64", "file", "outlook"])
def test_a_mail_in_a_mail_is_read_with_its_attachments(tmp_path: Path, way: str) -> None:
    inner = written("The tide", "High water at six.\n")
    inner.add_attachment("Low water at noon.\n", filename="low.txt")
    outer = written("Fwd: The tide", "See below.\n")
    if way == "attached":
        outer.add_attachment(inner)
    elif way == "file":
        outer.add_attachment(bytes(inner), maintype="application", subtype="octet-stream", filename="tide.eml")
    elif way == "outlook":
        data = outlook_mail(
            {0x37: "The tide", 0x1000: "High water at six."}, [{0x3707: "low.txt", 0x3701: b"Low water at noon."}]
        )
        outer.add_attachment(data, maintype="application", subtype="vnd.ms-outlook", filename="tide.msg")
    else:  # against RFC 2046, as Exchange and others write it
        outer.add_attachment(bytes(inner), maintype="application", subtype="x", filename="tide.eml")
    data = bytes(outer).replace(b"application/x\n", b"message/rfc822\n")
    read = contents(mail_in(tmp_path, data))
    tide, low = read.values()
    assert "High water at six." in text_of(tide)
    assert text_of(tide).startswith("The tide\n\n")
    assert text_of(low).strip() == "Low water at noon."


def test_what_is_not_read_is_said_and_signatures_are_not_missed(tmp_path: Path) -> None:
    parts = {
        "application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m": {"encrypted part": 1},
        "application/x-pkcs7-mime; smime-type=signed-data": {"signed part": 1},
        "application/ms-tnef; name=winmail.dat": {"winmail.dat": 1},
        "application/octet-stream; name=WINMAIL.DAT": {"winmail.dat": 1},
        "application/pkcs7-signature; name=smime.p7s": {},
        "application/octet-stream; name=smime.p7s": {},
        "application/pgp-signature": {},
        "text/x-moz-deleted": {},
    }
    for kind, unread in parts.items():
        mail = mail_in(tmp_path, f"Content-Type: {kind}\r\n\r\nabc=\r\n")
        assert (dict(mail.unread), mail.attachments) == (unread, []), kind
    pgp = "Content-Type: multipart/encrypted; boundary=b\r\n\r\n--b\r\n\r\nVersion: 1\r\n--b\r\n\r\nabc\r\n--b--\r\n"
    assert mail_in(tmp_path, pgp).unread == {"encrypted part": 1}
    inline = mail_in(
        tmp_path, "Subject: a\r\n\r\nhello\r\n-----BEGIN PGP MESSAGE-----\r\n\r\nabc\r\n-----END PGP MESSAGE-----\r\n"
    )
    assert (inline.text, inline.unread) == ("a\n\nhello", {"encrypted part": 1})


# ---------------------------------------------------------------------------------------------------------- damage


def test_a_mail_that_is_cut_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    given = written()
    given.add_attachment(b"abc" * 1000, maintype="text", subtype="csv", filename="a.csv")
    mail = mail_in(tmp_path, bytes(given)[:-1501])
    assert "two gulls" in mail.text
    assert text_of(contents(mail)["a.csv"]).startswith("abcabc")
    assert mail.unread["damaged part"] >= 1


def test_damaged_mails_are_read_or_refused_in_words(tmp_path: Path) -> None:
    given = written("Grüße")
    given.add_alternative("<p>ä</p>", subtype="html")
    given.add_attachment(png(), maintype="image", subtype="png", filename="über.png")
    given.add_attachment(written())
    whole, chance = bytes(given), random.Random(7)
    signs = [
        b"\r\n",
        b"\n\n",
        b'"',
        b"=?utf-8?B?",
        b"?=",
        b";",
        b"\0",
        b"\xff",
        b"--",
        b"Content-Type: message/rfc822\n\n",
    ]
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 5, 30])):
            place = chance.randrange(len(data))
            data[place : place + chance.choice([0, 1, 1, 40])] = chance.choice([*signs, bytes([chance.randrange(256)])])
        with suppress(InvalidInputError):  # and nothing else
            contents(mail_in(tmp_path, bytes(data)))


@pytest.mark.parametrize(("data", "code"), [(b"", "empty"), (b"PK\x03\x04\0\0", "corrupt"), (b"\0" * 600, "corrupt")])
def test_what_is_no_mail_is_refused(tmp_path: Path, data: bytes, code: str) -> None:
    for name in ("a.eml", "a.msg", "a.mbox"):
        with pytest.raises(InvalidInputError) as caught:
            mail_in(tmp_path, data, name)
        assert caught.value.code == code


def test_mails_in_mails_are_read_to_a_depth(tmp_path: Path) -> None:
    data = b"Subject: the last\r\n\r\ntext\r\n"
    for _ in range(60):
        data = b"Subject: a\r\nContent-Type: message/rfc822\r\n\r\n" + data
    mail = mail_in(tmp_path, data)
    assert [len(mail.attachments), mail.attachments[-1].mail and mail.attachments[-1].mail.unread] == [
        20,
        {"attachment": 1},
    ]


# --------------------------------------------------------------------------------------------------------- mailboxes


def box(tmp_path: Path, data: bytes) -> list[tuple[int | None, str]]:
    path = tmp_path / "box.mbox"
    path.write_bytes(data)
    return [(number, mail.text if isinstance(mail, Mail) else mail.code) for number, mail in read_mails(path)]


def test_a_mailbox_of_python_gives_its_messages(tmp_path: Path) -> None:
    lines = "From the mole\n\nFrom here: on\n>From old\n"
    with closing(mailbox.mbox(tmp_path / "box.mbox")) as opened:
        for number in range(3):
            opened.add(written(f"Tide {number}", lines))
    read = box(tmp_path, (tmp_path / "box.mbox").read_bytes())
    assert [number for number, _ in read] == [1, 2, 3]
    for number, text in enumerate(text for _, text in read):
        assert text.startswith(f"Tide {number}\n\nLee, Ann")
        assert text.endswith("From the mole\n\nFrom here: on\nFrom old")  # Python does not quote a quoted one anew


@pytest.mark.parametrize("line", [
    "From ann@example.org Wed May  1 10:00:00 2024", "From - Wed May 01 10:00:00 2024",
    "From ann at example.org  Wed May  1 10:00:00 2024",
    "From 1798@xxx Wed May 01 10:00:00 +0000 2024", "From ann@example.org", "From ",
])  # fmt: skip
def test_lines_between_messages_are_known_in_their_forms(tmp_path: Path, line: str) -> None:
    message = f"{line}\nSubject: a\n\nFrom Monday on\n\nFrom there\nwe go.\n\nFrom 10:00 on 1 May 2024\nwe sail.\n\n"
    text = "a\n\nFrom Monday on\n\nFrom there\nwe go.\n\nFrom 10:00 on 1 May 2024\nwe sail."
    assert box(tmp_path, 2 * message.encode()) == [(1, text), (2, text)]
    assert box(tmp_path, 2 * message.replace("\n", "\r\n").encode()) == [(1, text), (2, text)]


def test_thunderbird_keeps_deleted_messages_and_may_leave_out_empty_lines(tmp_path: Path) -> None:
    line = "From - Wed May 01 10:00:00 2024\nX-Mozilla-Status: {}\nX-Mozilla-Status2: 00000000\nSubject: {}\n\ntext\n"
    data = line.format("0001", "one") + line.format("0009", "two") + line.format("0011", "three")
    assert box(tmp_path, data.encode()) == [(1, "one\n\ntext"), (3, "three\n\ntext")]
    doubled = data.replace("X-Mozilla-Status:", ">From - Wed May 01 2024 10:00:00\nX-Mozilla-Status:")
    assert [number for number, _ in box(tmp_path, doubled.encode())] == [1, 3]


def test_messages_that_are_too_large_do_not_stop_a_mailbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.media.mail.MAX_MESSAGE_BYTES", 2**20)
    small = b"From a@b Wed May  1 10:00:00 2024\nSubject: a\n\ntext\n\n"
    assert box(tmp_path, small + small + 2**16 * (b"x" * 63 + b"\n") + b"\n" + small) == [
        (1, "a\n\ntext"),
        (2, "too_large"),
        (3, "a\n\ntext"),
    ]


def test_a_mailbox_is_read_message_by_message(tmp_path: Path) -> None:
    message = b"From a@b Wed May  1 10:00:00 2024\nSubject: a\n\n" + 2**14 * (b"x" * 63 + b"\n") + b"\n"
    (tmp_path / "box.mbox").write_bytes(20 * message)
    tracemalloc.start()
    try:
        assert sum(isinstance(mail, Mail) for _, mail in read_mails(tmp_path / "box.mbox")) == 20
        assert tracemalloc.get_traced_memory()[1] < 15 * len(message) < MAX_MESSAGE_BYTES
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------------ Outlook


def test_a_mail_of_outlook_is_read_as_another_reader_does(tmp_path: Path) -> None:
    inner = mail_tree({0x37: "The tide", 0x1000: "High water at six."}, [{0x3707: "low.txt", 0x3701: b"Low"}], head=24)
    data = outlook_mail(
        {
            0x37: "Grüße", 0x0C1A: "Ann Lee", 0x5D01: "ann@example.org", 0x0E04: "Bob; Carl", 0x0E03: "Dan",
            0x39: datetime(2024, 5, 1, 15, 30, tzinfo=timezone.utc), 0x1000: "The keeper feeds\r\ntwo gulls.",
            0x1013: b"<p>The keeper feeds two gulls.</p>", 0x3FDE: 65001,
        },
        [
            {0x3705: 1, 0x3707: "notes.txt", 0x370E: "text/plain", 0x3701: b"notes " * 2000},
            {0x3705: 5, 0x3001: "The tide"},
            {0x3705: 1, 0x3704: "SCENE~1.PNG", 0x3701: png()},
            {0x3705: 2, 0x3707: "elsewhere.txt"},
            {0x3705: 1, 0x3707: "über uns.txt", 0x3701: "Öre".encode()},
        ],
        inner={1: inner},
    )  # fmt: skip
    mail = mail_in(tmp_path, data, "mail.msg")
    assert mail.metadata == {
        "title": "Grüße", "author": "Ann Lee <ann@example.org>", "to": "Bob, Carl", "cc": "Dan", "date": 20240501,
        "sent": "2024-05-01T15:30:00+00:00",
    }  # fmt: skip
    assert mail.text.count("two gulls") == 1
    read = contents(mail)
    assert text_of(read["The tide"]).startswith("The tide\n\nHigh water at six.")
    assert (text_of(read["low.txt"]), read["SCENE~1.PNG"], read["elsewhere.txt"]) == ("Low", png(), None)
    assert text_of(read["über uns.txt"]) == "Öre"
    other = oxmsg.Message.load(data)
    assert (other.subject, other.body) == ("Grüße", "The keeper feeds\r\ntwo gulls.")
    assert other.attachments[0].file_bytes == b"notes " * 2000


def test_headers_and_code_pages_of_outlook_are_read(tmp_path: Path) -> None:
    headers = (
        "From: =?utf-8?q?J=C3=BCrgen?= <j@example.org>\r\nDate: Wed, 1 May 2024 10:00:00 +0200\r\n"
        "Content-Type: text/html\r\n\r\n"
    )
    old: Properties = {
        (0x37, "001E"): "Привет".encode("cp1251"),
        (0x1000, "001E"): "Жизнь".encode("cp1251"),
        0x3FFD: 1251,
        0x7D: headers,
    }
    mail = mail_in(tmp_path, outlook_mail(old), "mail.msg")
    assert mail.text == "Привет\n\nJürgen <j@example.org>\n\nЖизнь"
    assert mail.metadata["sent"] == "2024-05-01T08:00:00+00:00"
    never = outlook_mail({0x37: "a", 0x39: datetime(9999, 1, 1, tzinfo=timezone.utc)})
    assert "sent" not in mail_in(tmp_path, never, "mail.msg").metadata
    page: Properties = {0x37: "a", 0x1013: "<p>Жизнь</p>".encode("cp1251"), 0x3FDE: 1251}
    assert mail_in(tmp_path, outlook_mail(page), "mail.msg").text == "a\n\nЖизнь"


def test_a_mail_of_outlook_in_compressed_rtf_alone_is_read(tmp_path: Path) -> None:
    rtf = rb"{\rtf1\ansi The keeper feeds two gulls.\par}"
    plain = struct.pack("<II4s4x", len(rtf) + 12, len(rtf), b"MELA") + rtf
    tokens = [(9).to_bytes(2, "big"), *(bytes([letter]) for letter in rtf[11:])]  # 11 letters from what all begin with
    tokens.append(((207 + len(rtf)) << 4).to_bytes(2, "big"))  # the end: where the next letter would be
    groups = [tokens[place : place + 8] for place in range(0, len(tokens), 8)]
    packed = b"".join(
        bytes([sum((len(token) == 2) << bit for bit, token in enumerate(group))]) + b"".join(group) for group in groups
    )
    packed = struct.pack("<II4s4x", len(packed) + 12, len(rtf), b"LZFu") + packed
    for body in (plain, packed):
        mail = mail_in(tmp_path, outlook_mail({0x37: "a", 0x1009: body}), "mail.msg")
        assert mail.text == "a\n\nThe keeper feeds two gulls."


def test_meetings_and_contacts_of_outlook_have_their_fields(tmp_path: Path) -> None:
    begin, end = (datetime(2024, 5, 1, hour, tzinfo=timezone.utc) for hour in (8, 9))
    meeting: Properties = {
        0x1A: "IPM.Schedule.Meeting.Request",
        0x37: "Kickoff",
        0x8208: "Room 5",
        0x60: begin,
        0x61: end,
    }
    read = mail_in(tmp_path, outlook_mail(meeting), "a.msg")
    assert read.text == "Kickoff\n\n2024-05-01 08:00 UTC\n2024-05-01 09:00 UTC\nRoom 5"
    contact = outlook_mail({0x1A: "IPM.Contact", 0x37: "Jane Roe", 0x3A08: "+49 30 4711", 0x3A16: "Roe & Sons"})
    assert mail_in(tmp_path, contact, "a.msg").text == "Jane Roe\n\n+49 30 4711\nRoe & Sons"
    plain = outlook_mail({0x1A: "IPM.Note", 0x37: "a", 0x8083: "EX", 0x1000: "text"})
    assert mail_in(tmp_path, plain, "a.msg").text == "a\n\ntext"


def test_without_olefile_a_mail_of_outlook_is_tried_again_and_an_attached_one_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = outlook_mail({0x37: "a"})
    outer = written()
    outer.add_attachment(data, maintype="application", subtype="vnd.ms-outlook", filename="a.msg")
    monkeypatch.setitem(sys.modules, "olefile", None)
    with pytest.raises(InvalidInputError, match=re.escape(install_command("msg"))) as caught:
        mail_in(tmp_path, data, "a.msg")
    assert caught.value.code == "unreadable"
    assert contents(mail_in(tmp_path, bytes(outer))) == {"a.msg": None}


def test_a_signed_mail_of_outlook_is_read_through_its_signature(tmp_path: Path) -> None:
    signed = (
        b"Content-Type: multipart/signed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nSigned words.\r\n"
        b"--b\r\nContent-Type: application/pkcs7-signature\r\n\r\nabc\r\n--b--\r\n"
    )
    data = outlook_mail({0x37: "a"}, [{0x3705: 1, 0x3707: "smime.p7m", 0x370E: "multipart/signed", 0x3701: signed}])
    assert mail_in(tmp_path, data, "mail.msg").text == "a\n\nSigned words."
