"""Documents and passages in a database that writes row by row, without transactions.

A write that is cut off, or two writers of the same document, may leave passages of different versions. The stamps of
their rows tell that, so such a document counts as changed, and a check names it. See `vlmsearch.stores.passages`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, Union

from vlmsearch._util.batching import pages
from vlmsearch._util.frozen import FrozenDict
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.documents import DatabaseStore, DocumentRow
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.passages import AnyRow, compare_passages, passage_ids, row_stamp, rows_of
from vlmsearch.stores.readers import check_writable, keep_readers
from vlmsearch.stores.writers import WriteJournal
from vlmsearch.types import PASSAGE, READERS, MetadataValue, Record, Stamp, document_of, possible_ids

StoredReaders: TypeAlias = Mapping[str, Union[MetadataValue, None]]
"""The readers in the metadata of documents by their ids, None for those that have none."""
ANY_READERS: StoredReaders = FrozenDict()


class RowByRowStore(DatabaseStore):
    """A store whose documents and passages have rows of their own, each replaced at one instant."""

    # ---- for the back end

    @abstractmethod
    def write_rows(self, rows: Sequence[Record], readers: StoredReaders = ANY_READERS) -> Collection[str]:
        """Add or replace rows, in their order.

        Args:
            rows: The rows.
            readers: The readers that documents had when they were read, or None. Those that have others now are not
                written.

        Returns:
            The ids of the documents that have to be written again: another writer came between.
        """

    @abstractmethod
    def remove_rows(self, ids: Collection[str], scope: Filter | None = None) -> int:
        """Remove those rows that pass a filter, with their vectors, and return how many there were."""

    @abstractmethod
    def kept_passages(self, ids: Collection[str]) -> Collection[str]:
        """Return the ids of all rows of passages that name these documents."""

    def blank(self, ids: Collection[str]) -> None:
        """Let documents count as changed, where the database changes rows on a condition."""

    # ---- for all of them

    def write(self, records: Sequence[Record], scope: Filter | None = None) -> None:
        """Add or replace documents, and remove what they had more of passages.

        Documents that name no readers keep those of the index. Where these have changed by the time of the write, it is
        repeated. A writer with a scope writes what passes it alone.
        """
        left = list(records)
        while left:
            known = records if scope is not None else [r for r in left if READERS not in r.document.metadata]
            ids = [record.document.id for record in known]
            stored = {id: row.document.metadata for id, row in self.read_rows(ids, "document").items()}
            if scope is not None:
                check_writable(records, stored, scope)
            kept = keep_readers(left, stored)
            if any(new is not old for new, old in zip(kept, left)):
                self.check_all_keepable(kept)
            again = self.write_rows(rows_of(kept), {id: stored.get(id, {}).get(READERS) for id in ids})
            left = [record for record in left if record.document.id in again]
        self.remove_strays([record.document.id for record in records])

    def remove(self, ids: list[str], scope: Filter | None = None) -> int:
        """Remove those of some documents that pass a filter, then their passages."""
        count = self.remove_rows(ids, scope)
        self.remove_strays(ids)
        return count

    def remove_strays(self, ids: Collection[str]) -> None:
        """Remove the passages that documents, as they are now, do not have."""
        for some in pages(ids):
            kept = set(self.kept_passages(some))
            if kept and (strays := kept.difference(passage_ids(self.read_rows(some)))):
                self.remove_rows(strays)

    def lacking(self, rows: Mapping[str, DocumentRow]) -> set[str]:
        """Return the passages that are not there or of another version.

        Args:
            rows: The rows of documents and their passages.
        """
        return compare_passages(rows)[1]

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """Return the stamps of documents, by id. Those that lack a passage have no digest."""
        rows = self.read_whole(possible_ids(ids)) if self.as_opened() else {}
        lacking = set(map(document_of, self.lacking(rows)))
        own = {id: row_stamp(rows[id].stamp).stamp for id in ids if id in rows}
        return {id: replace(stamp, digest="") if id in lacking else stamp for id, stamp in own.items()}

    def with_rows(self, report: CheckReport, rows: Mapping[str, AnyRow], journal: WriteJournal) -> CheckReport:
        """Return the report of a check with its documents, and passages that are not in order.

        Args:
            report: The report on vectors. Where it says that they were repaired, passages that do not belong are
                removed, too, and documents that lack some count as changed.
            rows: All rows.
            journal: The writes. While there are any, nothing is known of passages.
        """
        strays, missing = compare_passages(rows)
        if wrong := strays | missing:  # it is looked at again, for it may have been written meanwhile
            now = self.read_whole({*wrong, *map(document_of, wrong)})
            is_idle = all(entry.is_gone for entry in journal.entries())
            strays, missing = compare_passages(now if is_idle else {})
        if report.repaired and (strays or missing):
            self.remove_rows(strays | missing)
            self.blank(set(map(document_of, missing)))
        orphans, lacking = (*report.orphans, *sorted(strays)), (*report.missing, *sorted(missing))
        documents = sum(PASSAGE not in id for id in rows)
        return replace(report, documents=documents, orphans=orphans, missing=lacking)
