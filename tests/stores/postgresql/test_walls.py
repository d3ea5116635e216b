"""Other roles of a database: nothing that they make runs as the own one, and no inherited setting changes an answer."""

import ast
import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts.records import SPACES

from tests.support.cli import run
from tests.support.postgres_servers import PostgresServer, execute, postgres_server
from vlmsearch import BackendError, ConfigError, Document, IndexMismatchError, Pipeline, Space
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.registry import open_store
from vlmsearch.stores.postgresql import connection
from vlmsearch.stores.postgresql.connection import all_rows
from vlmsearch.stores.postgresql.store import PostgresStore

TEXTS = [f"a cat {n}" for n in range(5)]
ENCODER = MockEncoder()
OTHER = MockEncoder(neighbours={"a red star": ["a blue moon"]})
PACKAGE = Path(connection.__file__).parent
_names = map("walls{}".format, count())


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as postgres:
        execute(postgres.conninfo("postgres"), *(f"CREATE ROLE {role} LOGIN" for role in ("app", "mallory", "reader")))
        yield postgres


@pytest.fixture
def database(server: PostgresServer) -> str:
    """A database in which everybody may create in ``public``, as they may up to PostgreSQL 14."""
    name = next(_names)
    execute(
        server.make_database(name),
        "CREATE SCHEMA ext; CREATE EXTENSION vector SCHEMA ext; GRANT USAGE ON SCHEMA ext TO PUBLIC",
        "GRANT CREATE ON SCHEMA public TO PUBLIC; CREATE SCHEMA app AUTHORIZATION app",
        "CREATE TABLE public.loot (who text); GRANT ALL ON public.loot TO PUBLIC",
    )
    return name


def _loot(server: PostgresServer, database: str) -> list[tuple[str]]:
    """The rights that what mallory made has run with, beside those of mallory."""
    with psycopg.connect(server.conninfo(database)) as session:
        return session.execute("SELECT who FROM public.loot WHERE who <> 'mallory'").fetchall()


def _fill(url: str) -> None:
    with Pipeline(ENCODER, open_store(url)) as pipeline:
        pipeline.add([Document(f"d{n}", text=text) for n, text in enumerate(TEXTS)])


STEALS = "INSERT INTO public.loot SELECT current_user"
FUNCTIONS = {
    "a function with fitting types": f"CREATE FUNCTION public.pg_relation_size(regclass) RETURNS bigint "
    f"LANGUAGE plpgsql AS $$BEGIN {STEALS}; RETURN 1; END$$",
    "an operator with fitting types": f"CREATE FUNCTION public.same(text, character varying) RETURNS boolean "
    f"LANGUAGE plpgsql AS $$BEGIN {STEALS}; RETURN true; END$$; "
    "CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = character varying, FUNCTION = public.same)",
    "an aggregate of that name": f"CREATE FUNCTION public.step(bigint, bigint) RETURNS bigint "
    f"LANGUAGE plpgsql AS $$BEGIN {STEALS}; RETURN 1; END$$; "
    "CREATE AGGREGATE public.sum(bigint) (SFUNC = public.step, STYPE = bigint, INITCOND = '0')",
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_a_function_of_another_role_is_never_called(what: str, server: PostgresServer, database: str) -> None:
    url = f"{server.url_of('app', database)}?schema=app"
    _fill(url)
    execute(server.url_of("mallory", database), FUNCTIONS[what])
    with Pipeline(ENCODER, open_store(url)) as pipeline:
        assert pipeline.search("cat", min_score=0)
        pipeline.add([Document("more", text="a dog")])
        assert pipeline.check().clean
        pipeline.delete(["more"])
        assert isinstance(pipeline.store, PostgresStore)
        path = pipeline.store._connection.run("look", lambda s: all_rows(s, "SELECT current_schemas(false)::text[]"))
        assert path == [(["pg_catalog"],)]
    assert _loot(server, database) == []


PLANTED = {
    "a trigger": "CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION public.steal()",
    "a rule": "CREATE RULE r AS ON INSERT TO {table} DO ALSO INSERT INTO public.loot SELECT current_user",
    "a column with a default": "ALTER TABLE {table} ADD own text DEFAULT public.stolen()",
    "a computed column": "ALTER TABLE {table} ADD own text GENERATED ALWAYS AS (public.stolen()) STORED",
    "another column": "ALTER TABLE {table} ADD own text",
    "a check": "ALTER TABLE {table} ADD CHECK (public.stolen() = '')",
    "a child": "CREATE TABLE public.child () INHERITS ({table})",
    "a column of a domain": "CREATE DOMAIN d AS text CHECK (public.stolen() = ''); ALTER TABLE {table} ADD own d[]",
    "an index on an expression": "CREATE INDEX ON {table} ((slot || public.stolen()))",
    "an index of some rows": "CREATE INDEX ON {table} (slot) WHERE public.stolen() = ''",
    "a view": "ALTER TABLE {table} RENAME TO renamed; CREATE VIEW {table} AS SELECT *, public.stolen() FROM renamed",
}
FUNCTIONS_OF_MALLORY = (
    f"CREATE FUNCTION public.steal() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {STEALS}; RETURN NEW; END$$",
    f"CREATE FUNCTION public.take() RETURNS text LANGUAGE plpgsql AS $$BEGIN {STEALS}; RETURN ''; END$$",
    "CREATE FUNCTION public.stolen() RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN public.take(); END$$",
)


@pytest.mark.parametrize("role", ["mallory", "app"])
@pytest.mark.parametrize("what", ["the table alone", *PLANTED])
def test_a_table_that_is_not_as_it_is_made_is_refused(
    what: str, role: str, server: PostgresServer, database: str
) -> None:
    """By the role that owns it, and by what is planted into it where the role would do."""
    execute(server.url_of("mallory", database), *FUNCTIONS_OF_MALLORY)
    slots = "CREATE TABLE public.vlmsearch_index (slot text PRIMARY KEY, row json NOT NULL)"
    planted = PLANTED.get(what, "SELECT")
    table = "public.vlmsearch_index"
    grant = "SELECT" if what == "a view" else f"GRANT ALL ON {table} TO PUBLIC"
    execute(server.url_of(role, database), slots, grant, planted.replace("{table}", table))
    execute(server.conninfo(database), "TRUNCATE public.loot")
    with open_store(server.url_of("app", database)) as store:
        if (role, what) == ("app", "the table alone"):
            return store.bind("e", SPACES)
        message = "it belongs to mallory" if role == "mallory" else "it (has|is|inherits)"
        for door in (store.manifest, lambda: store.bind("e", SPACES), lambda: list(store.ids())):
            with pytest.raises(ConfigError, match=rf"has a table public\.vlmsearch_index that is not .*{message}"):
                door()
    assert _loot(server, database) == []
    return None


def test_a_table_of_ones_own_with_other_columns_has_no_other_owner_to_trust(
    server: PostgresServer, database: str
) -> None:
    execute(server.url_of("app", database), "CREATE TABLE app.vlmsearch_index (id text)")
    with open_store(f"{server.url_of('app', database)}?schema=app") as store, pytest.raises(ConfigError) as caught:
        store.manifest()
    assert str(caught.value).endswith("it has the columns id; name another schema or table")


@pytest.mark.parametrize("table", ["vlmsearch$1", "vlmsearch$1$2", "vlmsearch_rejects"])
def test_every_table_of_an_index_is_looked_at(table: str, server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    execute(server.url_of("mallory", database), *FUNCTIONS_OF_MALLORY)
    execute(server.url_of("mallory", database), f'CREATE TABLE public."{table}" (id text)')
    with open_store(url) as store, pytest.raises(ConfigError, match="it belongs to mallory"):
        store.bind("e", SPACES)
    execute(server.url_of("mallory", database), f'DROP TABLE public."{table}"')
    _fill(url)
    execute(url, f'CREATE TRIGGER t BEFORE INSERT ON public."{table}" FOR EACH ROW EXECUTE FUNCTION public.steal()')
    with open_store(url) as store, pytest.raises(ConfigError, match="it has a trigger"):
        store.upsert([])
    done = run("search", "cat", "--encoder", "mock:", "--store", url)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_nothing_is_dropped_without_its_mark(server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    _fill(url)
    with open_store(url) as store:
        assert reindex(store, OTHER).switched
        execute(url, "COMMENT ON TABLE \"vlmsearch$1\" IS 'of somebody else'")
        with pytest.raises(ConfigError, match=r"public\.vlmsearch\$1 has no comment 'vlmsearch: documents'"):
            drop_old(store)
        execute(url, "COMMENT ON TABLE \"vlmsearch$1\" IS 'vlmsearch: documents'")
        assert drop_old(store)


VIEWS = [
    f'CREATE VIEW public."vlmsearch${table}" AS SELECT 1::bigint AS row, public.take() AS id' for table in ("1", "1$2")
]


def test_names_that_an_open_index_no_longer_has_are_not_read(server: PostgresServer, database: str) -> None:
    """Another process removed the generation that this one reads, and mallory took the names."""
    url = server.url_of("app", database)
    _fill(url)
    execute(server.url_of("mallory", database), *FUNCTIONS_OF_MALLORY)
    with Pipeline(ENCODER, open_store(url)) as reading, open_store(url) as store:
        assert len(reading.store) == len(TEXTS)
        assert reindex(store, OTHER).switched
        assert drop_old(store)
        execute(server.url_of("mallory", database), *VIEWS)
        for door in (lambda: len(reading.store), lambda: reading.search("cat"), lambda: list(reading.store.ids())):
            with pytest.raises(IndexMismatchError):
                door()
        assert _loot(server, database) == []


def test_the_next_generation_is_measured_and_made_without_reading_a_view(server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    _fill(url)
    execute(server.url_of("mallory", database), *FUNCTIONS_OF_MALLORY, VIEWS[0].replace("$1", "$2"))
    with open_store(url) as store:
        assert isinstance(store, PostgresStore)
        for door in (lambda: reindex(store, OTHER), store.disk_use, lambda: reindex(store, OTHER)):
            with pytest.raises(ConfigError, match="it belongs to mallory"):
                door()
        assert len(store) == len(TEXTS)
    assert _loot(server, database) == []


def test_every_generation_is_measured_with_all_of_its_fields(server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    _fill(url)
    with open_store(url) as store:
        assert isinstance(store, PostgresStore)
        before = store.disk_use()
        built = store.beside("other", [Space("minilm", 8, frozenset({"text"}))])
        store.freeze(built)
        store.switch(built)
        assert store.disk_use().bytes > before.bytes
        assert store.disk_use().documents == before.documents
        assert drop_old(store)
        assert store.disk_use().bytes < before.bytes / 2


def test_a_table_that_was_restored_is_looked_at_and_used(server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    _fill(url)
    with open_store(url) as store:
        assert len(store) == len(TEXTS)
        execute(
            url,
            'CREATE TABLE public.copied (LIKE "vlmsearch$1" INCLUDING ALL)',
            'INSERT INTO public.copied OVERRIDING SYSTEM VALUE SELECT * FROM "vlmsearch$1"',
            'ALTER TABLE "vlmsearch$1" RENAME TO gone; ALTER TABLE public.copied RENAME TO "vlmsearch$1"',
        )
        assert len(store) == len(TEXTS)


def test_who_made_a_role_is_not_in_it(server: PostgresServer, database: str) -> None:
    """PostgreSQL 16 and later give the maker of a role a membership that administers it, and no more."""
    execute(server.conninfo("postgres"), f"CREATE ROLE maker_{database} LOGIN CREATEROLE")
    execute(server.url_of(f"maker_{database}", "postgres"), f"CREATE ROLE made_{database} LOGIN")
    slots = "CREATE TABLE public.vlmsearch_index (slot text PRIMARY KEY, row json NOT NULL)"
    execute(server.url_of(f"made_{database}", database), slots)
    with (
        open_store(server.url_of(f"maker_{database}", database)) as store,
        pytest.raises(ConfigError, match="it belongs to made_"),
    ):
        store.manifest()


def test_marks_that_a_restored_index_lacks_are_made_anew(server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    _fill(url)
    execute(url, 'COMMENT ON TABLE "vlmsearch$1" IS NULL; COMMENT ON TABLE "vlmsearch$1$1" IS NULL')
    with open_store(url) as store:
        assert reindex(store, OTHER).switched
        assert drop_old(store)


@pytest.mark.parametrize("name", ["vlmsearch$1$draw", "vlmsearch$1$metadata"])
def test_an_index_whose_name_is_taken_is_said(name: str, server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    execute(server.url_of("mallory", database), f'CREATE SEQUENCE public."{name}"')
    with open_store(url) as store, pytest.raises(ConfigError, match=f"cannot have its index {re.escape(name)}"):
        store.bind("e", SPACES)
    execute(server.url_of("mallory", database), f'DROP SEQUENCE public."{name}"')
    _fill(url)
    execute(url, f'DROP INDEX "{name}"')
    with Pipeline(ENCODER, open_store(url)) as pipeline:
        assert len(pipeline.check().unindexed) == 1
        assert len(pipeline.check(repair=True).unindexed) == 1
        assert pipeline.check().clean


# ---- names


def test_no_two_indexes_mean_the_same_table(server: PostgresServer, database: str) -> None:
    url = server.url_of("app", database)
    names = ("n", "n_1", "n_1_1", "n_2", "n_index", "n_rejects")
    for name in names:
        with Pipeline(ENCODER, open_store(f"{url}?table={name}")) as pipeline:
            pipeline.add([Document(name, text=f"the text of {name}")])
    for name in names:
        with open_store(f"{url}?table={name}") as store:
            assert reindex(store, OTHER).switched
            assert drop_old(store)
    for name in names:
        with open_store(f"{url}?table={name}") as store:
            assert [document.text for document in store.get(list(store.ids()))] == [f"the text of {name}"]


@pytest.mark.parametrize("neighbour", ["", "photos_3"])
def test_an_index_of_an_earlier_version_opens_and_is_renewed(
    neighbour: str, server: PostgresServer, database: str
) -> None:
    """`index-0.2.sql` is a dump of an index that vlmsearch 0.2.0 made, and whose model it replaced."""
    statements = (Path(__file__).parent / "index-0.2.sql").read_text()
    execute(server.make_database(f"{database}old"), "ALTER SCHEMA public OWNER TO app", "CREATE EXTENSION vector")
    url = server.url_of("app", f"{database}old")
    execute(url, "\n".join(line for line in statements.splitlines() if "EXTENSION" not in line))
    if neighbour:
        with Pipeline(OTHER, open_store(f"{url}?table={neighbour}")) as pipeline:
            pipeline.add([Document("beside", text="a dog")])
    execute(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    execute(server.conninfo("postgres"), "GRANT app TO reader WITH INHERIT FALSE, SET FALSE")
    with (
        open_store(f"{server.url_of('reader', f'{database}old')}?table=photos") as reading,
        pytest.raises(
            ConfigError, match=r"made by an earlier version .* `vlmsearch reindex --store URL`, as a user who"
        ),
    ):
        reading.manifest()
    assert run("reindex", "--store", f"{url}?table=photos").stdout.startswith("2 documents, 0 encoded")
    with Pipeline(OTHER, open_store(f"{url}?table=photos")) as pipeline:
        matches = pipeline.search("a cat of the colour 1", limit=1, min_score=0)
        assert (matches[0].document.id, matches[0].document.metadata) == ("d1", {"n": 1})
        assert pipeline.check().clean
        assert [reject.id for reject in pipeline.rejects()] == ["x"]
        assert drop_old(pipeline.store)
        assert reindex(pipeline.store, ENCODER).switched
        assert drop_old(pipeline.store)
    with psycopg.connect(url) as session:
        rows = session.execute("SELECT relname FROM pg_class WHERE relname ~ '^photos_[0-9]' AND relkind = 'r'")
        assert not rows.fetchall() or neighbour
    with open_store(f"{url}?table=photos") as store:
        assert sorted(store.ids()) == ["d0", "d1"]


# ---- what a session inherits

REASONS = {
    "pinned": set(connection._PINNED) | {"statement_timeout", "transaction_isolation", "default_transaction_isolation"},
    "the tables have no trigger and no foreign key": {"session_replication_role"},
    "a write fails, and says so": {"default_transaction_read_only", "transaction_read_only"},
    "the session ends, and the call is repeated": {
        "exit_on_error", "idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout",
    },
    "no date, interval, sum of money, XML, bytea or text of a float is read or written": {
        "DateStyle", "IntervalStyle", "bytea_output", "default_text_search_config", "extra_float_digits",
        "icu_validation_level", "lc_monetary", "lc_numeric", "lc_time", "timezone_abbreviations", "xmlbinary",
        "xmloption",
    },
    "where a table lies, and how it is compressed": {
        "default_table_access_method", "default_tablespace", "default_toast_compression", "temp_tablespaces",
    },
    "only a superuser sets it, for every statement of the role": {
        "dynamic_library_path", "event_triggers", "extension_control_path", "lc_messages", "session_preload_libraries",
    },
    "libraries that the administrator put into plugins": {"local_preload_libraries"},
    "of functions and roles that are made, which are none": {"check_function_bodies", "createrole_self_grant"},
    "of serializable transactions, which are none": {"default_transaction_deferrable", "transaction_deferrable"},
    "speed alone": {"gin_pending_list_limit", "synchronize_seqscans"},
    "it forbids views, of which none is read": {"restrict_nonsystem_relation_kind"},
    "of how SQL is written that is not written here": {
        "array_nulls", "backslash_quote", "escape_string_warning", "lo_compat_privileges", "quote_all_identifiers",
        "transform_null_equals",
    },
    "what outlives a crash is the administrator's choice": {
        "commit_delay", "commit_siblings", "synchronous_commit", "wal_compression", "wal_init_zero", "wal_recycle",
        "wal_skip_threshold",
    },
}  # fmt: skip
"""Why each setting of PostgreSQL 18 that a session may inherit can do no harm."""
CATEGORIES = {
    "Connections and Authentication": "of connecting and keepalive",
    "Developer Options": "a superuser's, to rescue a damaged server, or speed",
    "Lock Management": "when a deadlock is looked for",
    "Query Tuning": "speed alone: every order and limit is in the statement",
    "Replication": "of sending servers",
    "Reporting and Logging": "of logs",
    "Resource Usage": "memory and speed: what does not fit fails, and says so",
    "Statistics": "of statistics",
    "Vacuuming": "of vacuum",
}


@pytest.mark.server
def test_every_setting_of_a_session_is_pinned_or_has_a_reason(server: PostgresServer) -> None:
    with psycopg.connect(server.conninfo("postgres")) as session:
        rows = session.execute(
            "SELECT name, category FROM pg_settings WHERE context IN ('user', 'superuser', 'backend', "
            "'superuser-backend')"
        ).fetchall()
    assert len(rows) > 150
    named = [name for names in REASONS.values() for name in names]
    assert len(named) == len(set(named))
    assert [name for name, category in rows if name not in named and category.split(" / ")[0] not in CATEGORIES] == []


HOSTILE = {
    "search_path": "public", "standard_conforming_strings": "off", "row_security": "on", "TimeZone": "'Asia/Kolkata'",
    "statement_timeout": "'1s'", "lock_timeout": "'1s'", "client_min_messages": "error",
    "gin_fuzzy_search_limit": "1", "default_transaction_isolation": "serializable", "client_encoding": "LATIN1",
    "DateStyle": "'SQL, DMY'", "IntervalStyle": "sql_standard", "bytea_output": "escape", "extra_float_digits": "-15",
    "transform_null_equals": "on", "array_nulls": "off", "quote_all_identifiers": "on", "backslash_quote": "off",
    "enable_seqscan": "off", "enable_indexscan": "off", "enable_sort": "off", "work_mem": "'64kB'",
    "join_collapse_limit": "1", "from_collapse_limit": "1", "plan_cache_mode": "force_generic_plan",
    "restrict_nonsystem_relation_kind": "'view, foreign-table'", "default_transaction_deferrable": "on",
}  # fmt: skip


def test_settings_of_a_role_or_a_variable_change_nothing(
    server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [
        Document(f"d{n:02}", text=f"a {kind} in the snow 雪 {n}\\", metadata={"kind": kind, "n": n})
        for n, kind in enumerate(("cat", "dog") * 40)
    ]
    queries: list[tuple[str, dict[str, object] | None]] = [
        ("a dog in the snow", None), ("cat", {"n": {"$gte": 30}}), ("雪", {"kind": "cat"}),
    ]  # fmt: skip
    plain = server.url_of("app", database)
    hostile = server.url_of("app", database)
    results = []
    for url, table in ((plain, "plain"), (hostile, "hostile")):
        if table == "hostile":
            monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
            monkeypatch.setenv("PGOPTIONS", "-c search_path=public -c gin_fuzzy_search_limit=1")
            execute(
                server.conninfo("postgres"),
                *(f"ALTER DATABASE {database} SET {name} = {value}" for name, value in HOSTILE.items()),
            )
        with Pipeline(ENCODER, open_store(f"{url}?table={table}&exact_up_to=10")) as pipeline:
            pipeline.add(documents)
            pages = [pipeline.search(query, limit=80, min_score=0, where=where) for query, where in queries]
            results.append([[(m.document, round(m.score, 4)) for m in matches] for matches in pages])
            assert pipeline.check().clean
    assert len(results[0][0]) == 80
    assert results[0] == results[1]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_database_that_is_not_of_utf8_is_refused_at_opening(encoding: str, server: PostgresServer) -> None:
    name = next(_names)
    execute(
        server.conninfo("postgres"),
        f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
    )
    done = run("index", str(PACKAGE), "--encoder", "mock:", "--store", server.url_of("postgres", name))
    assert done.returncode == 1
    assert f"is encoded in {encoding}, and texts need UTF8" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("setting", ["on", "off"])
def test_a_name_in_a_comment_stays_one(setting: str, server: PostgresServer, database: str) -> None:
    execute(server.conninfo("postgres"), f"ALTER DATABASE {database} SET standard_conforming_strings = {setting}")
    execute(server.url_of("app", database), "CREATE TABLE public.victim (x int)")
    name = "a\\'; DROP TABLE public.victim; --\x00'"
    with open_store(server.url_of("app", database)) as store:
        store.bind("f", [Space(name, 4, frozenset({"text"}))])
    execute(server.url_of("app", database), "SELECT FROM public.victim")


def test_no_value_is_put_between_quotes_by_hand() -> None:
    """Values are bound, or made literals by psycopg; names are quoted by psycopg."""
    by_hand = []
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                quotes = 0
                for value in node.values:
                    if isinstance(value, ast.Constant):
                        quotes += str(value.value).count("'")
                    elif quotes % 2:
                        by_hand.append(f"{path.name}:{value.lineno}")
            if isinstance(node, ast.Constant) and node.value == "''":
                by_hand.append(f"{path.name}:{node.lineno}")
    assert by_hand == []


# ---- who else may create


def test_check_and_doctor_name_who_else_may_create(server: PostgresServer, database: str) -> None:
    open_url, closed_url = server.url_of("app", database), f"{server.url_of('app', database)}?schema=app"
    for url in (open_url, closed_url):
        _fill(url)
    shown = json.loads(run("check", "--json", "--store", open_url).stdout)
    assert (shown["exposed"], shown["clean"]) == (["every role may create in the schema public"], True)
    assert json.loads(run("check", "--json", "--store", closed_url).stdout)["exposed"] == []
    said = run("doctor", "--store", open_url)
    assert "every role may create in the schema public" in said.stdout
    assert "exposed" not in run("doctor", "--store", closed_url).stdout
    execute(
        server.conninfo(database),
        f"GRANT CREATE ON SCHEMA ext TO mallory; CREATE ROLE crew_of_{database}",
        f"GRANT crew_of_{database} TO app, mallory",
        f"GRANT CREATE ON SCHEMA app TO crew_of_{database}",
        'GRANT TRIGGER ON app."vlmsearch$1" TO mallory',
    )
    assert json.loads(run("check", "--json", "--store", closed_url).stdout)["exposed"] == [
        f"crew_of_{database} may create in the schema app",
        "mallory may create in the schema ext",
        "mallory may make triggers on vlmsearch$1",
    ]
    refused = run("doctor", "--store", f"postgresql://nobody@127.0.0.1:{server.port}/{database}?retries=0")
    assert refused.returncode == 1
    assert 'role "nobody" does not exist' in refused.stdout


def test_a_reader_is_in_the_role_of_the_writer(server: PostgresServer, database: str) -> None:
    """`INHERIT FALSE, SET FALSE` trusts a role, and takes none of its rights."""
    _fill(f"{server.url_of('app', database)}?schema=app")
    execute(
        server.conninfo(database),
        "GRANT USAGE ON SCHEMA app TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA app TO reader",
    )
    execute(server.conninfo("postgres"), "REVOKE app FROM reader")
    url = f"{server.url_of('reader', database)}?schema=app"
    with (
        open_store(url) as store,
        pytest.raises(ConfigError, match=r"it belongs to app; .*GRANT that role TO re"),
    ):
        store.manifest()
    execute(server.conninfo("postgres"), "GRANT app TO reader WITH INHERIT FALSE, SET FALSE")
    with Pipeline(ENCODER, open_store(url)) as pipeline:
        assert pipeline.search("cat", min_score=0)
        with pytest.raises(BackendError, match="permission denied"):
            pipeline.add([Document("x", text="x")])
