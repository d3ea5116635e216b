"""Titles and authors of files: what producers fill in by themselves, and how the rest becomes text.

Readers of all formats give an `About`. It is the one place where a title or an author becomes text or metadata.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from vlmsearch._util.text import well_formed

_HEAD = 300
"""Characters at the beginning of a text in which an author may be named already."""
_NOT_TEXT = re.compile("[\x00-\x1f\x7f\ufffe\uffff]+")
_DEFAULTS = re.compile(
    r"""(?xi)
      \(?(anonymous|unspecified)\)?                                               # reportlab
    | (untitled|unbenannt|ohne\ titel|sans\ nom|sans\ titre|sin\ título|sem\ título|senza\ nome|senza\ titolo|naamloos)
      ([ _-]?(document|presentation|spreadsheet|form))? [ _-]?\d*                 # reportlab, Google Docs, LibreOffice
    | (document|dokument|documento|presentation|präsentation|présentation|book|mappe|classeur|libro|workbook)[ ]?\d+
    | microsoft\ (word|powerpoint|excel|office\ word)(\ document|\ -\ .*)?        # printers, old Word
    | .+\.(docx?|rtf|odt|xlsx?|ods|pptx?|odp|indd|qxd|pmd|dvi|tmp)                # names of the files before
    | powerpoint[ -](presentation|präsentation|presentatie|演示文稿|プレゼンテーション)
    | (présentation|presentación|apresentação|презентация|prezentacja|presentazione)\ (standard\ )?
      (de\ |do\ |di\ |programu\ )?powerpoint
    | (slide|folie|diapositive|diapositiva|dia)\ 1 | no\ slide\ title             # older PowerPoint
    | about:blank | (html|new|word)\ document | print(\ preview)? | no\ title
    | unknown([ ](author|creator))? | \[unknown\] | unbekannt | inconnu           # Calibre, PhpSpreadsheet
    | python-docx | python-pptx | openpyxl | xlsxwriter | apache\ poi | pptxgenjs(\ presentation)? | un-named | sheetjs
    | microsoft\ office(\ user|-benutzer|-anwender)? | utilisateur\ (de\ )?(microsoft\ office|windows)
    | (windows|default)[ -](user|benutzer) | (user|admin|administrator|owner|author|root|pc|benutzer|utilisateur)
    """
)
"""Titles and authors that programs write where nobody gave any."""


@dataclass(frozen=True)
class About:
    """A description of a file by itself, without what its producer fills in by default.

    Attributes:
        title: Title; "" for none.
        author: Author or authors; "" for none.
        subject: Subject of a PDF; "" for none.
        keywords: Keywords of a PDF; "" for none.

    Example:
        >>> About(title=" Winter ", author="python-docx")
        About(title='Winter', author='', subject='', keywords='')
    """

    title: str = ""
    author: str = ""
    subject: str = ""
    keywords: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = " ".join(well_formed(_NOT_TEXT.sub(" ", getattr(self, field.name))).split())
            object.__setattr__(self, field.name, "" if _DEFAULTS.fullmatch(value) else value)

    @property
    def metadata(self) -> dict[str, str]:
        """Title and author, where there are any."""
        return {key: value for key, value in (("title", self.title), ("author", self.author)) if value}

    def over(self, text: str) -> str:
        r"""Return a text below title, author, subject and keywords, a paragraph each.

        A title with which the text begins is not said again, nor an author who is named at its beginning.

        Example:
            >>> About("Winter", "Ann Lee").over("A dog in the snow").split("\n\n")
            ['Winter', 'Ann Lee', 'A dog in the snow']
        """
        head = " ".join(text[: _HEAD + 2 * len(self.title)].split()).casefold()
        said = {self.title} if _words(self.title).match(head) else set()
        said |= {self.author} if _words(self.author).search(head) else set()
        above = dict.fromkeys((self.title, self.author, self.subject, self.keywords))
        return "\n\n".join(filter(None, [*(line for line in above if line not in said), text]))


def _words(line: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(line.casefold())}(?!\w)")
