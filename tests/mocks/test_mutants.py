"""Each fault that is planted into an honest back end is named by the first test of its suite that fails."""
# ruff: noqa: E501 - a fault stands in one line

import re
from textwrap import dedent
from typing import NamedTuple

import pytest
from vlmsearch_mocks.contracts import EncoderContract, GeneratorContract, RerankerContract, StoreContract

from tests.support.paths import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading them takes longer than most runs


class Honest(NamedTuple):
    """A back end without a fault: the source of its module, and a class that holds it to its suite."""

    source: str
    suite: str


def block(page: str, title: str) -> str:
    """Return the block of a page that is written to a file."""
    text = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8")
    code = re.search(rf'```python title="{title}"\n(.*?)```', text, re.DOTALL)
    assert code, f"{page} has no block {title}"
    return code[1]


def mock(name: str) -> str:
    return (ROOT / "mocks" / "vlmsearch_mocks" / f"{name}.py").read_text(encoding="utf-8")


SHELF_STORE = '''
SHELF = {}


class ShelfStore(DictStore):
    """A store that outlives the object in a dictionary of the module."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self._manifest, self._records = SHELF.get(path, (None, {}))

    def close(self):
        SHELF[self._path] = self._manifest, self._records
'''
HONEST = {
    "store": Honest(
        block("own-store.md", "dictionary.py"),
        """
        class TestPlanted(StoreContract):
            def make_store(self, tmp_path):
                return planted.DictStore()
        """,
    ),
    "durable": Honest(
        block("own-store.md", "dictionary.py") + SHELF_STORE,
        """
        class TestPlanted(StoreContract):
            durable = True

            def make_store(self, tmp_path):
                return planted.ShelfStore(tmp_path)
        """,
    ),
    "readers": Honest(
        mock("store"),
        """
        from vlmsearch_mocks.contracts.readers import ReadersSuite
        del StoreContract

        class TestPlanted(ReadersSuite):
            def make_store(self, tmp_path):
                return planted.MemoryStore()
        """,
    ),
    "encoder": Honest(
        mock("encoder"),
        """
        class TestPlanted(EncoderContract):
            def make_encoder(self):
                return planted.MockEncoder()
        """,
    ),
    "generator": Honest(
        mock("generator"),
        """
        class TestPlanted(GeneratorContract):
            def make_generator(self):
                return planted.MockGenerator(lambda prompt: f"It was asked this: {prompt}")
        """,
    ),
    "reranker": Honest(
        mock("reranker"),
        """
        class TestPlanted(RerankerContract):
            def make_reranker(self):
                return planted.MockReranker()
        """,
    ),
}
CLIPPED = "np.clip(vectors @ np.array(list(rows.values())).T, -1, 1)"
PASSES = "(where is None or where.matches(record.document.metadata))"
LOCKED = """        with self._lock:
            stored = {id: record.document.metadata for id, record in self._records.items()}
            written = {record.document.id: copied(record) for record in keep_readers(records, stored)}
"""
WRITE = "            self._records = {**self._records, **written}"
ROW_PASSES = "return where is None or where.matches(row.document.metadata)"
CHANGED = "changed_records(self.records([change.document.id for change in changes]), changes)"
THERE = "return [replace(copied(records[id]), fingerprint=made_by) for id in ids if id in records]"
GONE = "gone = {id for id in ids if id in self._records}"
FAULTS: list[tuple[str, str, str, str, str]] = [
    # ---- the eight of the manual's store
    (
        "store",
        "ties by insertion",
        "key=lambda hit: (-hit.score, hit.id)",
        "key=lambda hit: -hit.score",
        "equal_vectors_come_in_the_order_of_their_ids",
    ),
    ("store", "filter ignored", PASSES, "True", "a_filter_leaves_out_what_does_not_pass"),
    (
        "store",
        "no manifest check",
        "        check_manifest(self.name, self._manifest, fingerprint, spaces)\n",
        "",
        "another_encoder_is_refused_before_anything_is_written",
    ),
    (
        "store",
        "no record check",
        "        check_records(records, self._bound().spaces)\n",
        "",
        "a_batch_with_a_record_that_does_not_fit_is_refused_whole",
    ),
    (
        "store",
        "changes without a condition",
        "changed_records(self.records([change.document.id for change in changes]), changes)",
        "[replace(self._records[c.document.id], document=c.document) for c in changes if c.document.id in self._records]",
        "a_change_undoes_nothing_that_was_written_since",
    ),
    (
        "store",
        "metadata shared",
        "metadata=dict(document.metadata)",
        "metadata=document.metadata",
        "a_store_shares_nothing_with_its_callers",
    ),
    ("store", "scores beyond 1", CLIPPED, "vectors @ np.array(list(rows.values())).T * 1.01", "no_score_is_beyond_one"),
    (
        "store",
        "writes without a lock",
        LOCKED + WRITE,
        LOCKED.replace("with self._lock", "if True") + """        import time
        for id, record in written.items():
            self._records = {**self._records, id: record}
            time.sleep(0.003)""",
        "several_writers_lose_nothing",
    ),
    # ---- documents
    (
        "store",
        "vectors shared",
        "{field: vector.copy() for field, vector in vectors.items()}",
        "dict(vectors)",
        "a_store_shares_nothing_with_its_callers",
    ),
    ("store", "written before bind", 'raise ConfigError(f"{self.name} is not', 'str(f"{self.name} is not', "writing_before_bind_is_refused"),
    ("store", "delete ignored", "if id not in gone}", "}", "what_is_deleted_is_gone"),
    ("store", "delete of one", GONE, "gone = {id for id in ids[:1] if id in self._records}", "what_is_deleted_is_gone"),
    ("store", "delete counts what was asked for", "return len(gone)", "return len(ids)", "reading_what_does_not_exist_gives_nothing_and_makes_nothing"),
    ("store", "delete of an unknown id raises", GONE, "gone = {id for id in ids if self._records[id]}", "reading_what_does_not_exist_gives_nothing_and_makes_nothing"),
    ("store", "ids twice", "iter(list(self._records))", "iter([*self._records, *self._records])", "documents_are_counted_and_listed_once"),
    (
        "store",
        "count grows with each write",
        "return len(self._records)",
        "self._n = getattr(self, '_n', 0) + len(self._records)\n        return self._n",
        "documents_are_counted_and_listed_once",
    ),
    ("store", "known ids alone", THERE, THERE.replace(" if id in records", ""), "reading_what_does_not_exist_gives_nothing_and_makes_nothing"),
    ("store", "order of the index", THERE, THERE.replace("for id in ids if id in records", "for id in records if id in ids"), "get_keeps_the_order_and_leaves_out_unknown_ids"),
    ("store", "images lost", "image = document.image if isinstance(document.image, Path) else None", "image = None", "a_document_comes_back_as_it_was"),
    ("store", "bytes of images kept", "image = document.image if isinstance(document.image, Path) else None", "image = document.image", "an_image_that_is_no_path_is_not_kept"),
    (
        "store",
        "old metadata kept",
        WRITE,
        "            for id in written.keys() & self._records.keys():\n"
        "                document = written[id].document\n"
        "                metadata = {**self._records[id].document.metadata, **document.metadata}\n"
        "                written[id] = replace(written[id], document=replace(document, metadata=metadata))\n" + WRITE,
        "a_record_replaces_all_of_the_old_one",
    ),
    (
        "store",
        "old image kept",
        WRITE,
        "            for id in written.keys() & self._records.keys():\n"
        "                image = written[id].document.image or self._records[id].document.image\n"
        "                written[id] = replace(written[id], document=replace(written[id].document, image=image))\n" + WRITE,
        "a_record_replaces_all_of_the_old_one",
    ),
    ("store", "pages deleted with their file", "if id not in gone}", "if id.split('#')[0] not in gone}", "delete_removes_the_given_ids_alone"),
    (
        "store",
        "ids compared without case",
        WRITE,
        ("            lower = {id.lower() for id in written}\n"
        "            self._records = {**{id: r for id, r in self._records.items() if id.lower() not in lower}, **written}"),
        "ids_that_differ_in_case_or_form_are_of_different_documents",
    ),
    ("store", "vectors as float16", "vector.copy() for", "vector.astype('f2').astype('f4') for", "vectors_keep_the_precision_of_float32"),
    ("store", "numbers as text", "metadata=dict(document.metadata)", "metadata={k: str(v) for k, v in document.metadata.items()}", "a_document_comes_back_as_it_was"),
    ("store", "first write wins", "{**self._records, **written}", "{**written, **self._records}", "a_record_replaces_all_of_the_old_one"),
    ("store", "bind forgets", "if self._manifest is None:\n            self._manifest", "if True:\n            self._manifest", "binding_again_keeps_everything"),
    # ---- search
    ("store", "not clipped", CLIPPED, "vectors @ np.array(list(rows.values())).T", "no_score_is_beyond_one"),
    ("store", "limit ignored", "[:limit] for page", " for page", "there_are_as_many_hits_as_asked_for_or_as_match"),
    ("store", "the first 100 query vectors alone", "[:limit] for page in hits]", "[:limit] if i < 100 else [] for i, page in enumerate(hits)]", "each_of_many_query_vectors_has_its_own_hits"),
    ("store", "ties without case", "(-hit.score, hit.id)", "(-hit.score, hit.id.lower())", "equal_vectors_come_in_the_order_of_their_ids"),
    (
        "store",
        "100 hits of a filter in a large index",
        "[:limit] for page",
        "[: limit if where is None or len(self) <= 3000 else min(limit, 100)] for page",
        "five_thousand_records_are_written_at_once_and_found",
    ),
    ("store", "limit off by one", "[:limit] for page", "[:limit - 1] for page", "there_are_as_many_hits_as_asked_for_or_as_match"),
    ("store", "worst first", "(-hit.score, hit.id)", "(hit.score, hit.id)", "scores_are_the_cosines_and_the_order_is_theirs"),
    ("store", "unknown field finds nothing", 'raise ConfigError(f"{self.name} has no field {field}")', "return [[] for _ in vectors]", "an_unknown_field_is_an_error_that_names_it"),
    (
        "store",
        "a missing key is a zero",
        "where.matches(record.document.metadata)",
        'where.matches({"x": 0, **record.document.metadata})',
        "a_document_without_the_key_passes_not_equal_alone",
    ),
    (
        "store",
        "a missing key passes nothing",
        "where.matches(record.document.metadata)",
        "(record.document.metadata and where.matches(record.document.metadata))",
        "a_document_without_the_key_passes_not_equal_alone",
    ),
    (
        "store",
        "the first of a list alone",
        "where.matches(record.document.metadata)",
        "where.matches({k: v[0] if isinstance(v, tuple) else v for k, v in record.document.metadata.items()})",
        "a_list_equals_what_any_of_its_strings_equals",
    ),
    ("store", "true is 1", "where.matches(record.document.metadata)", "where.matches({k: int(v) if v is True else v for k, v in record.document.metadata.items()})", "filters_mean_what_they_say"),
    (
        "store",
        "filter after the limit",
        PASSES + "}  # fmt: skip",
        ("True}\n        nearest = sorted(rows, key=lambda id: -float(rows[id] @ vectors[0]))[: 20 * limit]\n"
        "        there = {row.document.id: row.document.metadata for row in rows_of(self._records.values())}\n"
        "        rows = rows if where is None else {id: rows[id] for id in nearest if where.matches(there[id])}"),
        "a_filter_leaves_the_nearest_of_those_that_pass",
    ),
    (
        "store",
        "reads of two states",
        "records = self._records  # a writer puts another dictionary in its place",
        ("import time\n        ids, seen = [id for id in ids if id in self._records], self._records\n"
        "        end = time.monotonic() + 0.1  # until a writer was here, where there is one\n"
        "        while len(ids) > 30 and self._records is seen and time.monotonic() < end:\n            time.sleep(0.001)\n"
        "        records = self._records\n        [records[id] for id in ids]"),
        "readers_see_whole_documents_while_a_writer_works",
    ),
    # ---- changes
    (
        "store",
        "changes ignored",
        "self._records = {**self._records, **{record.document.id: record for record in changed}}",
        "pass",
        "metadata_are_replaced_and_vectors_stay_bit_for_bit",
    ),
    ("store", "changes unchecked", "        check_changes(changes)\n", "", "nothing_is_changed_where_some_metadata_do_not_fit"),
    ("store", "passages lost", ", passages=passages)", ", passages=())", "a_record_comes_back_with_its_passages"),
    ("store", "passages not searched", "for record in rows_of(self._records.values())", "for record in self._records.values()", "search_finds_passages_that_pass_the_filter_of_their_document"),
    # ---- readers
    ("store", "readers forgotten", "keep_readers(records, stored)", "records", "a_record_without_readers_keeps_those_of_the_index"),
    (
        "store",
        "readers looked up before the write",
        LOCKED + WRITE,
        LOCKED.replace("with self._lock", "if True") + "            import time\n            time.sleep(0.001)\n        with self._lock:\n" + WRITE,
        "readers_are_kept_while_others_write",
    ),
    ("readers", "an absent key is nobody", ROW_PASSES, f"{ROW_PASSES} and (not hasattr(where, 'or_absent') or where.key in row.document.metadata)", "a_document_is_shown_to_its_readers_and_one_without_readers_to_everyone"),
    ("readers", "no names are everyone", ROW_PASSES, f"{ROW_PASSES} or row.document.metadata.get('readers') == ('',)", "no_readers_and_values_that_are_no_names_are_for_nobody"),
    ("readers", "names in small letters", ROW_PASSES, ROW_PASSES.replace("row.document.metadata", "{k: tuple(s.lower() for s in v) if isinstance(v, tuple) else v for k, v in row.document.metadata.items()}"), "names_are_compared_as_they_are"),
    ("readers", "the last filter alone", ROW_PASSES, "where = where.filters[-1] if hasattr(where, 'filters') else where\n    " + ROW_PASSES, "readers_and_another_filter_pass_what_passes_both"),
    ("readers", "readers stay for ever", CHANGED, f"keep_readers({CHANGED}, {{i: r.document.metadata for i, r in self._records.items()}})", "changes_of_metadata_set_readers_and_take_them_off"),
    ("readers", "passages without readers", "rows_of(self._records.values())}", "[r if r.document.id in self._records else replace(r, document=replace(r.document, metadata={})) for r in rows_of(self._records.values())]}", "passages_have_the_readers_of_their_document"),
    ("readers", "any id is deleted", "for record in self.records(ids) if _passes(record, scope)]", "for record in self.records(ids)]", "an_id_that_is_not_readable_is_one_that_is_not_there"),
    ("readers", "any id is written", "            check_writable(records, self._metadata_of(records), scope)\n", "", "a_writer_can_read_what_it_replaces_and_what_it_writes"),
    # ---- closing
    ("durable", "close twice raises", "SHELF[self._path] = self._manifest, self._records", "SHELF[self._path] = self._manifest, self._records\n        del self._path", "a_store_can_be_closed_twice"),
    ("durable", "documents lost", "SHELF[self._path] = self._manifest, self._records", "SHELF[self._path] = self._manifest, {}", "a_durable_store_has_everything_after_it_was_closed"),
    ("durable", "manifest lost", "SHELF[self._path] = self._manifest, self._records", "SHELF[self._path] = None, self._records", "a_durable_store_has_everything_after_it_was_closed"),
    # ---- encoders
    ("encoder", "dtype of texts", '{"clip": rows, "minilm"', '{"clip": rows.astype(float), "minilm"', "arrays_are_float32_with_a_row_for_each_input"),
    ("encoder", "dtype of images", '        return {"clip": rows}\n', '        return {"clip": rows.astype(float)}\n', "arrays_are_float32_with_a_row_for_each_input"),
    ("encoder", "a space missing", ', "minilm": np.ascontiguousarray(rows[:, : minilm.dim])}', "}", "arrays_are_float32_with_a_row_for_each_input"),
    ("encoder", "texts not of length 1", '{"clip": rows, "minilm"', '{"clip": rows * 2, "minilm"', "texts_give_unit_vectors_in_every_space_with_text"),
    ("encoder", "images not of length 1", '        return {"clip": rows}\n', '        return {"clip": rows * 2}\n', "images_give_unit_vectors_in_every_space_with_images"),
    ("encoder", "texts sorted", "zip(rows, texts)", "zip(rows, sorted(texts))", "a_vector_does_not_depend_on_the_batch_it_came_in"),
    ("encoder", "vectors of a batch mixed", '{"clip": rows, "minilm"', '{"clip": rows[::-1], "minilm"', "a_vector_does_not_depend_on_the_batch_it_came_in"),
    ("encoder", "empty batch", "        rows = np.zeros((len(texts)", "        texts[0]\n        rows = np.zeros((len(texts)", "an_empty_batch_gives_no_rows"),
    ("encoder", "list sorted in place", "        clip, minilm = self.spaces\n", "        clip, minilm = self.spaces\n        texts.sort()\n", "what_is_given_is_not_changed"),
    ("encoder", "image changed in place", "apply_to_each(open_image, images)):", "apply_to_each(lambda i: [i.paste(0, (0, 0, 9, 9)) if hasattr(i, 'paste') else None, open_image(i)][1], images)):", "what_is_given_is_not_changed"),
    ("encoder", "the first bad text alone", "        apply_to_each(utf8_bytes, texts)\n        rows", "        [apply_to_each(utf8_bytes, [text]) for text in texts]\n        rows", "all_texts_that_are_not_valid_unicode_are_named_at_once"),
    ("encoder", "bad texts read", "        apply_to_each(utf8_bytes, texts)\n        rows", "        texts = [t.encode(errors='replace').decode() for t in texts]\n        rows", "all_texts_that_are_not_valid_unicode_are_named_at_once"),
    ("encoder", "the first bad image alone", "apply_to_each(open_image, images)):", "[apply_to_each(open_image, [i])[0] for i in images]):", "all_images_that_cannot_be_used_are_named_at_once"),
    ("encoder", "another fingerprint each time", 'f"mock:{', 'f"{id(self)}:{', "the_same_model_has_the_same_fingerprint"),
    ("encoder", "bytes upside down", "apply_to_each(open_image, images)):", "apply_to_each(lambda i: open_image(i).rotate(180 * isinstance(i, bytes)), images)):", "a_path_bytes_and_an_image_are_the_same_input"),
    ("encoder", "one vector for all", "_bag(words[:MAX_WORDS])", '_bag(["a"])', "different_inputs_have_different_vectors"),
    ("encoder", "a cut query in silence", 'role == "query" and len(words) > MAX_WORDS', "False", "a_long_query_is_cut_and_says_so"),
    ("encoder", "a cut document in words", 'role == "query" and len(words) > MAX_WORDS', "len(words) > MAX_WORDS", "a_long_document_is_cut_without_a_word"),
    ("encoder", "a long text refused", "            words = _words(text) or [text]\n", "            words = _words(text) or [text]\n            assert len(text) < 9999\n", "a_long_document_is_cut_without_a_word"),
    ("encoder", "tokens are characters", "[len(_words(text)) for text in texts]", "[len(text) for text in texts]", "it_reads_as_many_tokens_as_it_says"),
    ("encoder", "texts of another thread", "        rows = np.zeros((len(texts)", "        import time\n        self._t = texts\n        time.sleep(0.03)\n        texts = self._t\n        rows = np.zeros((len(texts)", "it_can_be_used_from_several_threads"),
    ("encoder", "close twice raises", "    text_window = MAX_WORDS\n", "    text_window = MAX_WORDS\n\n    def close(self):\n        del self.fingerprint\n", "it_can_be_closed_twice"),
    # ---- generators
    ("generator", "no name", 'self.name = "mock:"', 'self.name = ""', "it_says_what_it_is"),
    ("generator", "another text each time", "        script = self._replies\n", "        script = str(turn)\n", "the_likeliest_text_is_always_the_same"),
    ("generator", "empty pieces", "return until_stop(self._tokens(reply, turn, options), options.stop)", 'return (piece for piece in ("", *until_stop(self._tokens(reply, turn, options), options.stop)))', "the_pieces_are_the_whole_text"),
    ("generator", "no default options", "options = options or GenerationOptions()\n        with", "with", "options_may_be_left_out"),
    ("generator", "length ignored", "fit[: options.max_tokens]", "fit", "there_are_no_more_tokens_than_asked_for"),
    ("generator", "stop words ignored", ", options.stop)", ", ())", "the_text_ends_before_the_first_stop"),
    ("generator", "the last stop word", ", options.stop)", ", options.stop[:1])", "the_text_ends_before_the_first_stop"),
    ("generator", "bad words ignored", "for word in options.bad_words", "for word in ()", "a_bad_word_is_not_in_the_text_or_is_refused"),
    ("generator", "half of a character refused", "        script = self._replies\n", "        prompt.encode()\n        script = self._replies\n", "a_prompt_may_have_half_of_a_character"),
    ("generator", "seed ignored", "        return until_stop(", '        reply += str(turn) if options.seed == 7 else ""\n        return until_stop(', "the_same_seed_samples_the_same_text"),
    ("generator", "beams by chance", "        return until_stop(", "        reply = str(turn) if options.beam_width > 1 else reply\n        return until_stop(", "an_option_is_followed_or_refused"),
    ("generator", "tokens not counted", "return len(_TOKEN.findall(prompt))", "return 1", "one_that_counts_tokens_counts_them"),
    ("generator", "not to be closed", "return until_stop(self._tokens(reply, turn, options), options.stop)", "return iter(list(until_stop(self._tokens(reply, turn, options), options.stop)))", "closing_the_iterator_stops_it_and_the_next_call_is_whole"),
    ("generator", "prompt of another thread", "        script = self._replies\n", "        import time\n        self._p = prompt\n        time.sleep(0.03)\n        prompt = self._p\n        script = self._replies\n", "it_can_be_used_from_several_threads"),
    ("generator", "close twice raises", "    def count_tokens", "    def close(self):\n        del self.name\n\n    def count_tokens", "it_can_be_closed_twice"),
    # ---- re-rankers
    ("reranker", "no name", 'self.name = "mock:"', 'self.name = ""', "it_says_what_it_is"),
    ("reranker", "not a probability", "return 0.02 + 0.96 *", "return 7 *", "there_is_a_probability_for_each_document"),
    ("reranker", "a document left out", "for document in documents]\n", "for document in documents[1:]]\n", "there_is_a_probability_for_each_document"),
    ("reranker", "best first", "return [_share(asked, document.text) for document in documents]", "return sorted((_share(asked, document.text) for document in documents), key=lambda s: -(s or 0))", "scores_are_in_the_order_of_the_documents"),
    ("reranker", "all alike", "return 0.02 + 0.96 *", "return 0.5 + 0 *", "what_is_asked_for_is_likelier_than_what_is_not"),
    ("reranker", "nothing is unlikely", "        return None\n    shared", "        return 0.02\n    shared", "a_document_without_a_text_is_not_judged"),
    ("reranker", "no documents", "        utf8_bytes(query)\n", "        utf8_bytes(query)\n        documents[0]\n", "no_documents_give_no_scores"),
    ("reranker", "half of a character read", "        utf8_bytes(query)\n", "", "a_query_that_is_not_valid_unicode_is_refused"),
    ("reranker", "empty query divides", "max(len(asked), 1)", "len(asked)", "an_empty_query_is_answered"),
    ("reranker", "query of another thread", "        asked = set", "        import time\n        self._q = query\n        time.sleep(0.03)\n        query = self._q\n        asked = set", "it_can_be_used_from_several_threads"),
    ("reranker", "answers after close", "        self._closed = True", "        pass", "it_can_be_closed_twice_and_then_does_nothing"),
]  # fmt: skip


def first_failure(pytester: pytest.Pytester, kind: str, source: str) -> str:
    """Return the name of the first test of the suite that fails, "" for none."""
    (pytester.path / "planted.py").write_text(source, encoding="utf-8")
    suite = "import planted\nfrom vlmsearch_mocks.contracts import *\n" + dedent(HONEST[kind].suite)
    (pytester.path / "test_planted.py").write_text(suite, encoding="utf-8")
    record = pytester.inline_run("-x", "-q", "-p", "no:cacheprovider", "--tb=line")
    passed, _, failed = record.listoutcomes()
    assert passed or failed, "no test ran"
    return re.sub(r".*::test_|\[.*", "", failed[0].nodeid) if failed else ""


@pytest.mark.parametrize("kind", HONEST)
def test_an_honest_back_end_passes(pytester: pytest.Pytester, kind: str) -> None:
    assert first_failure(pytester, kind, HONEST[kind].source) == ""


@pytest.mark.parametrize(
    ("kind", "sound", "fault", "name"),
    [pytest.param(kind, *rest, id=f"{kind}-{title}") for kind, title, *rest in FAULTS],
)
def test_a_fault_is_named_by_the_first_failure(
    pytester: pytest.Pytester, kind: str, sound: str, fault: str, name: str
) -> None:
    source = HONEST[kind].source
    assert source.count(sound) == 1, "the fault cannot be planted: write it anew for the code of today"
    assert first_failure(pytester, kind, source.replace(sound, fault)) == name


@pytest.mark.parametrize("page", ["own-store.md", "own-encoder.md", "own-generator.md", "testing.md"])
def test_the_tables_of_the_manual_name_tests_of_the_suites(page: str) -> None:
    names = re.findall(
        r"^\| `(test_\w+)` \|", (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    suites = (StoreContract, EncoderContract, GeneratorContract, RerankerContract)
    assert names
    assert not [name for name in names if not any(hasattr(suite, name) for suite in suites)]
