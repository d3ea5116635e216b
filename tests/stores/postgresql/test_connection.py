"""Connections to PostgreSQL: passwords, TLS, roles, time limits, and servers that go and come back."""

import json
import socket
import ssl
import threading
import time
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
import trustme
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records, unit_vectors

from tests.support.cli import assert_one_line, run
from tests.support.forks import forked, in_a_child
from tests.support.postgres_servers import ADMIN, PostgresServer, execute, postgres_folder, postgres_server
from tests.support.servers import free_port
from tests.support.service import serving
from tests.support.tls_front import tls_front
from vlmsearch import BackendError, BackendUnavailableError, ConfigError, Document, Pipeline, Store
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.errors import OperationCancelledError
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.integrations.framework_index import FrameworkIndex
from vlmsearch.registry import open_store
from vlmsearch.search.info import index_info
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.stores.postgresql.connection import READING, PostgresAddress, PostgresOptions, Session, connect
from vlmsearch.stores.postgresql.store import PostgresStore

SECRET = "hunter2-of-the-tests"
RECORDS = make_records(20, (IMAGE, TEXT))
_names = map("database{}".format, count())


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL that asks all but its administrator for a password."""
    with postgres_folder() as folder:
        found = PostgresServer(folder, {"unix_socket_directories": str(folder)})
        found.prepare()
        hosts = f"local all {ADMIN} trust\nlocal all all scram-sha-256\n"
        hosts += f"host all {ADMIN} 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (found.data / "pg_hba.conf").write_text(hosts)
        try:
            found.start()
            execute(found.conninfo("postgres"), f"CREATE ROLE writer LOGIN PASSWORD '{SECRET}'")
            execute(found.conninfo("postgres"), f"CREATE ROLE reader LOGIN PASSWORD '{SECRET}'")
            execute(found.conninfo("postgres"), "GRANT writer TO reader WITH INHERIT FALSE, SET FALSE")
            yield found
        finally:
            found.kill()


@pytest.fixture
def database(server: PostgresServer) -> str:
    """The name of an empty database of that server with pgvector, in which ``writer`` may make tables."""
    name = next(_names)
    url = server.make_database(name)
    execute(url, "CREATE SCHEMA extensions; CREATE EXTENSION vector SCHEMA extensions")
    execute(url, "GRANT USAGE ON SCHEMA extensions TO writer, reader; GRANT CREATE ON SCHEMA public TO writer")
    return name


@pytest.fixture(scope="module")
def tls_port(server: PostgresServer, authority: trustme.CA) -> Iterator[int]:
    """A port at which that server is reached by TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with tls_front(server.port, context) as port:
        yield port


@pytest.fixture
def authority_file(authority: trustme.CA, tmp_path: Path) -> Path:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


def _log(server: PostgresServer, text: str) -> int:
    """How often the server has logged something."""
    return (server.folder / "log").read_text().count(text)


# ---- addresses


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql:db", "address of a database is postgresql://user@host:5432/database, not postgresql:db"),
        ("postgresql://host", "'' is not a name for a database"),
        ("postgresql://host/a/b", "'a/b' is not a name for a database"),
        ("postgresql://ho st/db", "the address of a database is"),
        ("postgresql://host/db?table=a-b", "table has up to 40 small letters"),
        ("postgresql://host/db?schema=pg_own", "schema has up to 40 small letters"),
        ("postgresql://host/db?timeout=0", "`timeout` is from 0.001 to 1,000,000"),
        ("postgresql://host/db?retries=99", "`retries` is from 0 to 20"),
        ("postgresql://host/db?connections=0", "`connections` is from 1 to 100"),
        ("postgresql://host/db?tls=false&tls_ca_file=x", "are for connections with TLS"),
        ("postgresql://host/db?tls_ca_file=/no/such", "there is no file '/no/such'"),
        ("postgresql://host/db?target_session_attrs=best", "target_session_attrs"),
        ("postgresql://host/db?ef_search=0", "`ef_search` is from 1 to 1,000"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_store(url)


@pytest.mark.parametrize("before", [f"user:{SECRET}", f"user%3A{SECRET}", f":{SECRET}", f"a b {SECRET}"])
def test_a_password_in_a_url_is_refused_and_not_repeated(before: str) -> None:
    for url in (f"postgresql://{before}@host/db", f"postgresql:{before}@host/db", f"postgresql://{before}@h st/db"):
        with pytest.raises(ConfigError) as caught:
            open_store(url)
        assert SECRET not in str(caught.value)


def _settings(location: str, **options: Any) -> dict[str, Any]:
    return conninfo_to_dict(connect(PostgresAddress.parse(location), PostgresOptions(**options)).conninfo)


def test_connections_to_other_machines_are_encrypted_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGSSLMODE"):
        monkeypatch.delenv(variable, raising=False)
    for location in ("//localhost/db", "//u@127.0.0.1:5432,[::1]/db", "///db"):
        assert _settings(location)["sslmode"] == "prefer"
        assert _settings(location, tls=True)["sslmode"] == "verify-full"
    for location in ("//db.example.org/db", "//localhost,db.example.org:5433/db", "//10.0.0.1/db"):
        assert _settings(location)["sslmode"] == "verify-full"
        assert _settings(location)["sslrootcert"]
        assert _settings(location, tls=False)["sslmode"] == "disable"
    monkeypatch.setenv("PGHOST", "/run/postgresql")
    assert _settings("///db")["sslmode"] == "prefer"
    for variable, value in (("PGHOST", "db.example.org"), ("PGHOSTADDR", "10.0.0.1"), ("PGSERVICE", "far")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert _settings("///db")["sslmode"] == "verify-full"


def test_hosts_and_ports_go_together() -> None:
    found = _settings("//u@a:5433,[::1],c/db", target_session_attrs="read-write")
    assert (found["host"], found["port"], found["user"]) == ("a,::1,c", "5433,,", "u")
    assert found["target_session_attrs"] == "read-write"


def test_constructing_connects_to_nothing() -> None:
    with open_store("postgresql://no.such.host.invalid/db") as store:
        assert store.name == "postgresql://no.such.host.invalid/db"


def test_a_server_that_is_not_there_is_named_with_the_operation() -> None:
    address = f"127.0.0.1:{free_port()}"
    with open_store(f"postgresql://{address}/db?retries=1") as store:
        message = rf"^postgresql://{address}/db could not be reached to look for the index: .*refused"
        with pytest.raises(BackendUnavailableError, match=message):
            store.manifest()


# ---- the URL in a variable, and sockets


def _store_of_variable(value: str, monkeypatch: pytest.MonkeyPatch, options: str = "") -> Store:
    monkeypatch.setenv("APP_DATABASE_URL", value)
    return open_store(f"postgresql:env:APP_DATABASE_URL{options}")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_the_url_in_a_variable_has_the_password_and_nothing_shows_it(
    scheme: str, server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{scheme}://writer:{SECRET}@127.0.0.1:{server.port}/{database}?sslmode=prefer&connect_timeout=9"
    with _store_of_variable(f"{url}&application_name=photos-app", monkeypatch, "?table=photos") as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        assert len(store) == 20
        assert store.name == f"postgresql://writer@127.0.0.1:{server.port}/{database}?table=photos"
        assert "photos-app" in str(all_sessions(server))
        manifest = store.manifest()
        assert manifest is not None
        shown = f"{vars(store)!r}{PostgresAddress.parse('env:APP_DATABASE_URL')!r}{index_info(store, manifest)}"
        assert SECRET not in shown


def all_sessions(server: PostgresServer) -> list[Any]:
    """The names of the applications that are connected."""
    with psycopg.connect(server.conninfo("postgres")) as session:
        return session.execute("SELECT application_name FROM pg_stat_activity").fetchall()


def test_a_password_in_a_variable_may_have_any_character(
    server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "a/b@c?d#e%f g'h\\"
    execute(server.conninfo(database), "CREATE ROLE odd LOGIN", "GRANT USAGE ON SCHEMA extensions TO odd")
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as session:
        session.execute(sql.SQL("ALTER ROLE odd PASSWORD {}").format(password))
    try:
        with _store_of_variable(
            f"postgres://odd:{quote(password, safe='')}@127.0.0.1:{server.port}/{database}", monkeypatch
        ) as store:
            assert store.manifest() is None
        wrong = f"postgres://odd:{quote(password + 'x', safe='')}@127.0.0.1:{server.port}/{database}"
        with _store_of_variable(wrong, monkeypatch) as store, pytest.raises(BackendError) as caught:
            store.manifest()
        assert "password authentication failed for user" in str(caught.value)
        assert "the password into PGPASSWORD or ~/.pgpass, or both into a variable" in str(caught.value)
    finally:
        execute(server.conninfo(database), "DROP OWNED BY odd", "DROP ROLE odd")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "^the environment variable 'APP_DATABASE_URL' is not set: it holds a URL such as postgresql://user:"),
        ("", "^the environment variable 'APP_DATABASE_URL' is not set"),
        (f"mysql://u:{SECRET}@h/db", "^the environment variable 'APP_DATABASE_URL' has another value: it holds"),
        (f"host=h password={SECRET}", "^the environment variable 'APP_DATABASE_URL' has another value"),
        (f"postgres://u:{SECRET}/@h/db", "^APP_DATABASE_URL is not like .*: [?] # @ / in a password are %3F"),
        (f"postgres://u:{SECRET}@@h/db", "^APP_DATABASE_URL is not like .*: [?] # @ / in a password are %3F"),
        (f"postgres://u:a@{SECRET}@h/db", "[?] # @ / in a password are %3F"),
        (f"postgres://u:12/{SECRET}?{SECRET}=1@h/db", "[?] # @ / in a password are %3F"),
        (f"postgres://u:{SECRET}@h", "^APP_DATABASE_URL is not like .*: it names no database: write one behind"),
        (f"postgres://u:{SECRET}@h?sslmode=require", "it names no database"),
        (f"postgres://u:{SECRET}@h/db/", "a name of a database has up to 63 letters, .* and no /$"),
        (f"postgres://u:{SECRET}@h/d%20b", "a name of a database has up to 63 letters"),
        (f"postgres://u:{SECRET}@h:54x/db", "a port is a number from 1 to 65535"),
        (f"postgres://u:{SECRET}@h:99999/db", "a port is a number from 1 to 65535"),
        (f"postgres://u:{SECRET}@h/db?port=0", "a port is a number from 1 to 65535"),
        (
            f"postgres://u:{SECRET}@h:1,i:2/db?host=j",
            "2 ports do not go with 1 hosts: give one for all",
        ),
        (f"postgres://u:{SECRET}@h%20h/db", "a host is a name, an address, or a folder with %2F for /"),
        (f"postgres://u:{SECRET}@[::1/db", "^APP_DATABASE_URL is not like"),
        (f"postgres://u:{SECRET}%00@h/db", "%00 and a % without two hexadecimal digits are no text: % is %25"),
        (f"postgres://u%00:{SECRET}@h/db", "%00 and a %"),
        (f"postgres://u@h/db?password={SECRET}%00", "%00 and a %"),
        (f"postgres://u:{SECRET}%zz@h/db", "%00 and a %"),
        (f"postgres://u:{SECRET}%FF@h/db", "^APP_DATABASE_URL is not like"),
        (f"postgres://u:{SECRET}@h/db?sslmode", "behind the [?] it has name=value&name=value"),
        (f"postgres://u@h/db?password={SECRET}==", "with %3D for an = in a value"),
        (f"postgres://u:{SECRET} @h/db", "a space in it is %20"),
        (f"postgres://u:{SECRET}@h/db?table=x&sslmode=require", "has table, and may have application_name, .*sslmode"),
    ],
)
def test_a_variable_without_such_a_url_is_named_and_its_value_is_not(
    value: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("APP_DATABASE_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("APP_DATABASE_URL", value)
    with pytest.raises(ConfigError, match=message) as caught:
        open_store("postgresql:env:APP_DATABASE_URL")
    assert "\n" not in str(caught.value)
    assert not [text for text in _chain(caught.value) if SECRET in text]


def _chain(exc: BaseException | None) -> Iterator[str]:
    """What the exceptions hold that one leads to."""
    while exc is not None:
        yield f"{exc!r} {vars(exc)!r}"
        exc = exc.__cause__ or exc.__context__


@pytest.mark.parametrize(
    "url",
    [
        "postgres://postgres:x@localhost:5533/shop?host=127.0.0.1",
        "postgresql://u:p@localhost:5433/db?host=/tmp",
        "postgresql://u@:5433/db?host=/tmp",
        "postgresql://u@:5433/db",
        "postgresql://u@a:1,b:2/db?host=c,d",
        "postgresql://u@a:1,b/db?host=c,/d",
        "postgresql://u@a:1/db?host=c,d",
        "postgresql://u@[::1]:1,b:2/db",
        "postgresql://u@a:1/db?host=::1",
        "postgresql:///my%2Ddb?host=/tmp&user=u%40x&port=6&password=A+B%2B",
        "postgresql://u@h/?dbname=db",
        "postgresql://u:A+B@h/my%2Ddb?application_name=a+b",
        "postgresql://u:[x]@h/db",
        "postgresql://u:a?b#c[d;\u2100@h/db",
        "postgresql://u@h/db?password=a#b;c",
        "postgresql://u@h/db?sslmode=disable&sslmode=require&",
        "postgresql://u@h/db?ssl=true",
        "postgresql://u:a%20b%3A%C3%A4@h:/db",
    ],
)
def test_the_url_of_a_variable_is_read_as_libpq_reads_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("APP_DATABASE_URL", url)
    found, meant = _settings("env:APP_DATABASE_URL"), conninfo_to_dict(url)
    count = found.get("host", "").count(",") + 1
    if "port" in meant and "," not in str(meant["port"]):
        meant["port"] = ",".join([str(meant["port"])] * count)  # libpq has one port for all hosts
    assert {name: found.get(name) for name in meant} == meant


def test_a_parameter_without_a_value_is_as_if_it_were_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_DATABASE_URL", f"postgres://u:{SECRET}@h/db?require_auth=&sslmode=")
    found = _settings("env:APP_DATABASE_URL", tls=False)
    assert (found["require_auth"], found["sslmode"]) == ("scram-sha-256,none", "disable")


def test_other_hosts_have_the_ports_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_DATABASE_URL", f"postgres://u:{SECRET}@h:5533/db")
    for location in ("env:APP_DATABASE_URL", "//u@h:5533/db", "//u@:5533/db"):
        for host, hosts, ports in (
            ("/tmp", "/tmp", "5533"),
            ("a,b", "a,b", "5533,5533"),
            ("a:1,b", "a,b", "1,"),
            ("::1", "::1", "5533"),
        ):
            found = _settings(location, host=host)
            assert (found["host"], found["port"]) == (hosts, ports)
    assert str(PostgresAddress.parse("//u@:5533/db")) == "postgresql://u@:5533/db"
    monkeypatch.setenv("PGHOST", "db.example.org")
    assert _settings("//u@:5533/db")["sslmode"] == "verify-full", "the host is that of PGHOST"
    with pytest.raises(ConfigError, match="2 ports do not go with 3 hosts"):
        _settings("//u@h:1,i:2/db", host="a,b,c")


def test_a_nul_is_refused_wherever_it_is() -> None:
    with pytest.raises(ConfigError, match=r"^a NUL character, which is %00 in a URL, cannot be in host$"):
        open_store("postgresql://u@%2Ftmp%00/db")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sslmode=bad", 'invalid sslmode value: "bad"'),
        ("connect_timeout=abc", "bad value for connect_timeout: 'abc'"),
        ("require_auth=abc", 'invalid require_auth value: "abc"'),
        ("require_auth=md5,!md5", 'negative require_auth method "!md5" cannot be mixed'),
        ("channel_binding=bad", 'invalid channel_binding value: "bad"'),
        ("target_session_attrs=bad", 'invalid target_session_attrs value: "bad"'),
        ("sslmode=prefer&sslrootcert=system", 'weak sslmode "prefer" may not be used with sslrootcert=system'),
    ],
)
def test_a_parameter_that_libpq_does_not_take_is_named(query: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgres://u:{SECRET}@127.0.0.1:1,127.0.0.1:2/db?{query}"
    with _store_of_variable(url, monkeypatch) as store, pytest.raises(ConfigError) as caught:
        store.manifest()
    assert str(caught.value).count(said) == 1
    assert SECRET not in str(caught.value)


def test_options_that_are_not_of_their_form_are_in_no_exception() -> None:
    with pytest.raises(ConfigError, match="not of the form name=value&name=value") as caught:
        open_store(f"postgresql://u@h/db?{SECRET}")
    assert not [text for text in _chain(caught.value) if SECRET in text]


@pytest.mark.parametrize("before", ["postgresql://", "postgresql:env:postgres://", "postgresql:postgres://"])
@pytest.mark.parametrize("options", ["", "?sslmode=require", "?sslmode=require&table=x"])
def test_a_password_in_an_argument_is_refused_before_its_options(before: str, options: str) -> None:
    with pytest.raises(ConfigError, match=r"takes no password here: .* write postgresql:env:") as caught:
        open_store(f"{before}user:{SECRET}@db.example.com/photos{options}")
    assert not [text for text in _chain(caught.value) if SECRET in text]


@pytest.mark.parametrize("before", ["postgresql://", "postgresql:env:postgres://"])
def test_a_password_in_an_argument_is_refused_with_the_name_of_the_variable(before: str) -> None:
    for command in (["index", __file__], ["search", "x"], ["serve", "--port", "1"], ["info"]):
        refused = run(*command, "--store", f"{before}user:{SECRET}@db.example.com/photos")
        assert_one_line(
            refused, "takes no password here: put the URL into an environment variable and write postgresql:env:"
        )
        assert SECRET not in refused.stderr + refused.stdout


def test_the_url_of_a_variable_says_how_connections_are_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(query: str, **options: Any) -> dict[str, Any]:
        monkeypatch.setenv("APP_DATABASE_URL", f"postgres://u:{SECRET}@db.example.org:5433/db{query}")
        return _settings("env:APP_DATABASE_URL", **options)

    usual = settings("")
    assert (usual["sslmode"], usual["port"], usual["password"]) == ("verify-full", "5433", SECRET)
    required = settings("?sslmode=require")
    assert (required["sslmode"], required["require_auth"]) == ("require", "scram-sha-256,none")
    assert settings("?sslmode=require&require_auth=md5")["require_auth"] == "md5"
    assert settings("?sslmode=require", tls=True)["sslmode"] == "verify-full"
    assert settings("?sslmode=verify-full")["sslrootcert"]
    assert settings("?sslrootcert=/ca.pem")["sslrootcert"] == "/ca.pem"
    assert (
        settings("?target_session_attrs=primary", target_session_attrs="standby")["target_session_attrs"] == "standby"
    )
    assert settings("?target_session_attrs=primary")["target_session_attrs"] == "primary"
    assert settings("?options=-c%20statement_timeout%3D0")["options"] == "-c statement_timeout=0"


def test_a_variable_may_require_tls_without_a_check_of_the_certificate(
    tls_port: int, database: str, authority_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgres://writer:{SECRET}@127.0.0.1:{tls_port}/{database}?sslmode="
    with _store_of_variable(f"{url}require", monkeypatch) as store:
        assert store.manifest() is None
    with _store_of_variable(f"{url}verify-full&sslrootcert={authority_file}", monkeypatch) as store:
        assert store.manifest() is None
    message = "certificate verify failed; name a file of certificates with tls_ca_file"
    with _store_of_variable(f"{url}verify-full", monkeypatch) as store, pytest.raises(BackendError, match=message):
        store.manifest()
    with (
        _store_of_variable(f"{url}best&", monkeypatch) as store,
        pytest.raises(ConfigError, match='invalid sslmode value: "best"') as caught,
    ):
        store.manifest()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_a_unix_socket_is_reached_by_each_form_of_its_url(
    scheme: str, server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = server.folder
    at = f"{quote(str(folder), safe='')}:{server.port}"
    monkeypatch.setenv("PGPORT", str(server.port))
    forms = [f"{ADMIN}@/{database}?host={folder}", f"{ADMIN}:@/{database}?host={folder}", f"{ADMIN}@{at}/{database}"]
    for form in forms:
        with open_store(f"postgresql://{form}") as store:
            assert store.manifest() is None
            assert store.name.startswith(f"postgresql://{ADMIN}@%2F")
        with _store_of_variable(f"{scheme}://{form}", monkeypatch) as store:
            assert store.manifest() is None
    with _store_of_variable(f"{scheme}://writer:{SECRET}@{at}/{database}", monkeypatch) as store:
        store.bind("e", SPACES)
        assert store.manifest() is not None
    message = r"could not be reached to look for the index: .*No such file"
    nowhere = f"postgresql://{ADMIN}@/{database}?host={folder}/none&retries=0"
    with open_store(nowhere) as store, pytest.raises(BackendUnavailableError, match=message):
        store.manifest()


def test_what_a_server_lacks_is_named_with_what_to_do(
    server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = {
        f"{ADMIN}@127.0.0.1:{server.port}/none": '"none" does not exist; make it with CREATE DATABASE, or name another',
        f"writer@127.0.0.1:{server.port}/{database}?tls=true": "; write tls=false, or sslmode=disable in the URL of",
    }
    for place, message in lacks.items():
        with open_store(f"postgresql://{place}") as store, pytest.raises(BackendError, match=message) as caught:
            store.manifest()
        assert "refused the connection" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert _said_of_a_role_that_is_not_there(server, database).startswith("make it with CREATE ROLE, or name another")


def _said_of_a_role_that_is_not_there(server: PostgresServer, database: str) -> str:
    """The advice of a server that asks for no password."""
    rules = server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local {database} all trust\n{before}")
    execute(server.conninfo("postgres"), "SELECT pg_reload_conf()")
    try:
        for _ in range(300):  # the server reads its rules a moment later
            with (
                open_store(
                    f"postgresql://nobody@{quote(str(server.folder), safe='')}:{server.port}/{database}"
                ) as store,
                pytest.raises(BackendError) as caught,
            ):
                store.manifest()
            _, is_missing, advice = str(caught.value).partition('role "nobody" does not exist; ')
            if is_missing:
                return advice
            time.sleep(0.1)
    finally:
        rules.write_text(before)
        execute(server.conninfo("postgres"), "SELECT pg_reload_conf()")
    pytest.fail(str(caught.value))


def test_each_door_takes_the_variable(server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"postgres://writer:{SECRET}@127.0.0.1:{server.port}/{database}"
    where = {"VLMSEARCH_STORE": "postgresql:env:APP_DATABASE_URL", "APP_DATABASE_URL": url}
    done = run("index", __file__, "--encoder", "onnx:demo", cwd=None, **where)
    assert done.returncode == 1, "no image and no text"
    monkeypatch.setenv("APP_DATABASE_URL", url)
    with Pipeline.open(encoder="onnx:demo", store="postgresql:env:APP_DATABASE_URL") as pipeline:
        pipeline.add(Document("a", text="a red star"))
    shown = run("search", "red star", cwd=None, **where)
    assert shown.returncode == 0
    facts = run("info", "--json", cwd=None, **where)
    assert json.loads(facts.stdout)["documents"] == 1
    assert SECRET not in shown.stdout + shown.stderr + facts.stdout + facts.stderr
    settings = ServerSettings(indexes={"default": IndexSettings("postgresql:env:APP_DATABASE_URL")})
    with serving(settings) as running:
        answer = running.http.post("/api/v1/indexes/default/search", json={"text": "red star"})
        assert answer.json()["matches"][0]["id"] == "a"
        assert SECRET not in answer.text + running.http.get("/api/v1/indexes/default").text
    with FrameworkIndex("postgresql:env:APP_DATABASE_URL") as index:
        assert [document.id for document, _ in index.search("red star", limit=1)] == ["a"]


# ---- passwords and TLS


@pytest.mark.parametrize("where", ["PGPASSWORD", "PGPASSFILE"])
def test_a_password_comes_from_the_environment(
    where: str, server: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    url = server.url_of("writer", database)
    with open_store(url) as store, pytest.raises(BackendError, match="no password supplied; the user goes into"):
        store.manifest()
    (tmp_path / "pgpass").write_text(f"127.0.0.1:*:*:writer:{SECRET}\n")
    (tmp_path / "pgpass").chmod(0o600)
    if where == "PGPASSWORD":
        monkeypatch.delenv("PGPASSFILE")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PGPASSWORD", SECRET)
    with open_store(url) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        assert len(store) == 20
        assert SECRET not in store.name


def test_a_wrong_password_is_said_at_once(
    server: PostgresServer, tls_port: int, database: str, authority_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", f"{SECRET}-wrong")
    url = f"postgresql://writer@127.0.0.1:{tls_port}/{database}?tls=true&tls_ca_file={authority_file}"
    before = _log(server, "password authentication failed")
    refused = run("search", "x", "--encoder", "mock:", "--store", url)
    assert_one_line(refused, "refused the connection")
    assert SECRET not in refused.stderr
    assert _log(server, "password authentication failed") == before + 1, "no attempt but the first can help"


def test_the_certificate_of_a_server_is_checked(
    tls_port: int, database: str, authority_file: Path, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    url = f"postgresql://{ADMIN}@127.0.0.1:{tls_port}/{database}?tls=true"
    for wrong in (url, f"{url}&tls_ca_file={tmp_path / 'other.pem'}"):
        with open_store(wrong) as store, pytest.raises(BackendError, match="certificate verify failed"):
            store.manifest()
    with open_store(f"{url}&tls_ca_file={authority_file}") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        assert len(store) == 20
        assert store._connection.run("look", lambda session: session.pgconn.ssl_in_use)
    elsewhere = url.replace("127.0.0.1", "localhost")
    with (
        open_store(f"{elsewhere}&tls_ca_file={authority_file}") as store,
        pytest.raises(BackendError, match="does not match host name"),
    ):
        store.manifest()


# ---- roles


def test_a_reader_finds_everything_and_writes_nothing(
    server: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    as_writer, as_reader = server.url_of("writer", database), server.url_of("reader", database)
    execute(server.conninfo(database), "ALTER DEFAULT PRIVILEGES FOR ROLE writer GRANT SELECT ON TABLES TO reader")
    encoders = MockEncoder(), MockEncoder(neighbours={"a red star": ["a blue moon"]})
    with open_store(as_writer) as store:
        pipeline = Pipeline(encoders[0], store)
        assert pipeline.add([Document(f"{n}", text=f"text {n}") for n in range(20)]).added == 20
        assert reindex(store, encoders[1]).switched
        assert drop_old(store)
        assert Pipeline(encoders[1], store).delete(["3"]) == 1
    with Pipeline(encoders[1], open_store(as_reader)) as reading:
        assert reading.search("text 7", limit=1, min_score=0)[0].document.id == "7"
        for write in (lambda: reading.add(Document("x", text="x")), lambda: reading.delete(["7"])):
            with pytest.raises(BackendError, match=r"refused to .*permission denied for table"):
                write()
        assert len(reading.store) == 19
    for command in (("info",), ("check",), ("export", str(tmp_path / "out.parquet"))):
        done = run(*command, "--store", as_reader)
        assert done.returncode == 0, done.stderr


def test_who_may_not_install_pgvector_is_told_who_may(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    name = next(_names)
    execute(server.make_database(name), "GRANT CREATE ON SCHEMA public TO writer")
    with open_store(server.url_of("writer", name)) as store:
        with pytest.raises(ConfigError, match=r"has no pgvector: have an administrator .* run CREATE EXTENSION vector"):
            store.bind("e", SPACES)
        execute(server.conninfo(name), "CREATE EXTENSION vector")
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        assert len(store) == 20


def test_an_old_pgvector_is_named(server: PostgresServer, database: str) -> None:
    execute(server.conninfo(database), "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    with (
        open_store(server.url_of(ADMIN, database)) as store,
        pytest.raises(ConfigError, match=r"has pgvector 0\.7\.4, and 0\.8 or later is needed: run ALTER EXTENSION"),
    ):
        store.bind("e", SPACES)


def test_an_index_that_is_made_while_another_process_looks_for_it_is_searched_there(server: PostgresServer) -> None:
    name = next(_names)
    server.make_database(name)
    with open_store(server.url_of(ADMIN, name)) as early, open_store(server.url_of(ADMIN, name)) as store:
        assert early.search(IMAGE, unit_vectors(1), limit=3) == [[]]
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        assert [hit.id for hit in early.search(IMAGE, RECORDS[7].vectors[IMAGE][None], limit=1)[0]] == ["id-7"]


# ---- time, threads and processes


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    with postgres_server(fsync="on") as found:
        found.make_database("index")
        yield found


def test_a_statement_that_takes_too_long_is_ended_and_not_repeated(server: PostgresServer, database: str) -> None:
    url = server.url_of(ADMIN, database)
    with open_store(f"{url}?timeout=0.5&retries=3") as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        before = _log(server, "canceling statement due to statement timeout")
        with psycopg.connect(server.conninfo(database)) as other:
            other.execute("LOCK TABLE vlmsearch$1 IN SHARE MODE")
            with pytest.raises(BackendUnavailableError, match=r"took longer to write documents than timeout=0\.5 sec"):
                store.upsert(RECORDS)
        assert _log(server, "canceling statement due to statement timeout") == before + 1
        store.upsert(RECORDS)


def test_writes_of_vectors_have_time_for_each_field(server: PostgresServer, database: str) -> None:
    with open_store(f"{server.url_of(ADMIN, database)}?timeout=5&retries=0") as store:
        store.bind("e", SPACES)
        with psycopg.connect(server.conninfo(database), autocommit=True) as other:
            other.execute(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                "$$BEGIN PERFORM pg_sleep(3); RETURN NULL; END$$;"
                "CREATE TRIGGER slow AFTER INSERT ON vlmsearch$1$1 EXECUTE FUNCTION slow();"
                "CREATE TRIGGER slow AFTER INSERT ON vlmsearch$1$3 EXECUTE FUNCTION slow()"
            )
            store.upsert(RECORDS)
        assert len(store) == 20


def test_many_threads_share_a_connection(server: PostgresServer, database: str) -> None:
    with open_store(f"{server.url_of(ADMIN, database)}?connections=1") as store, ThreadPoolExecutor(8) as threads:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        assert list(threads.map(lambda _: len(store), range(40))) == [20] * 40
        with psycopg.connect(server.conninfo("postgres")) as session:
            query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
            assert session.execute(query, (database,)).fetchone() == (1,)


def test_who_waits_too_long_for_a_connection_is_told(server: PostgresServer, database: str) -> None:
    with open_store(f"{server.url_of(ADMIN, database)}?connections=1&timeout=0.3&retries=0") as store:
        assert isinstance(store, PostgresStore)
        begun, may_end = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            begun.set()
            may_end.wait(60)

        with ThreadPoolExecutor(1) as threads:
            held = threads.submit(store._connection.run, "hold it", hold, timeout=60)
            begun.wait(60)
            with pytest.raises(BackendUnavailableError, match=r"all 1 connections have been in use for 0\.3 seconds"):
                store.manifest()
            may_end.set()
            held.result()
        assert store.manifest() is None


@pytest.mark.parametrize(
    ("query", "times", "message", "attempts"),
    [
        pytest.param("SELECT 1" + " + %s" * 70_000, 1, "failed to look: .*number of parameters", 1, id="client"),
        ("SELECT pg_sleep(9)", 1, "took longer to look than timeout=0.5 seconds: .*statement timeout", 1),
        ("SELECT pg_sleep(0.2)", 50, "took longer to look than timeout=0.5 seconds: ", 1),
        ("SELECT pg_terminate_backend(pg_backend_pid())", 1, "could not be reached to look", 3),
    ],
)
def test_only_a_lost_server_is_asked_again_and_costs_others_their_connections(
    query: str, times: int, message: str, attempts: int, server: PostgresServer, database: str
) -> None:
    connection = connect(PostgresAddress.parse(f"//{server.address}/{database}"), PostgresOptions(0.5, retries=2))
    connection.run("look", lambda _: connection.run("look", lambda _: None))
    other, _ = connection._pool._idle
    begun: list[int] = []

    def call(session: Session) -> None:
        begun.append(1)
        for _ in range(times):
            session.execute(query.encode(), [1] * query.count("%s") or None)

    with pytest.raises(BackendError, match=message) as caught:
        connection.run("look", call)
    assert isinstance(caught.value, BackendUnavailableError) is ("%s" not in query)
    assert len(begun) == attempts
    assert (other in connection._pool._idle) is (attempts == 1)
    connection.close()


def test_the_end_of_a_transaction_that_only_reads_is_not_waited_for(mortal: PostgresServer) -> None:
    address = PostgresAddress.parse(f"//{mortal.address}/index")
    connection = connect(address, PostgresOptions(1.0, retries=1))
    connection.install()
    connection.close()  # a connection from before does not know vectors
    connection.run("look", lambda _: connection.run("look", lambda _: None, settings=READING), settings=READING)
    ended = list(connection._pool._idle)
    assert [session.is_ending for _, session in ended] == [True, True]
    connection.run("look", lambda session: session.execute("SELECT 1"))
    assert connection._pool._idle[-1][1] is ended[-1][1]
    with pytest.raises(BackendUnavailableError, match="is a replica"):
        connection.run("look", lambda session: session.execute("CREATE TABLE t ()"), settings=READING)
    connection.run("look", lambda _: connection.run("look", lambda _: None, settings=READING), settings=READING)
    with mortal.stopped(), pytest.raises(BackendUnavailableError, match="has not answered for timeout=1 seconds"):
        connection.run("look", lambda _: None)
    assert connection.run("look", lambda session: session.execute("SELECT 1").fetchone()) == (1,)
    connection.close()


def test_a_call_that_is_given_up_ends_on_the_server_too(server: PostgresServer, database: str) -> None:
    with open_store(server.conninfo(database)) as store, psycopg.connect(server.conninfo(database)) as other:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        other.execute("LOCK TABLE vlmsearch$1 IN SHARE MODE")
        token = CancelToken()
        threading.Timer(0.3, token.cancel).start()
        started = time.monotonic()
        with running_under(token), pytest.raises(OperationCancelledError):
            store.upsert(RECORDS)
        assert time.monotonic() - started < 15, "the lock is held until the end of the test"
        query = "SELECT count(*) FROM pg_locks WHERE relation = 'vlmsearch$1'::regclass AND pid <> pg_backend_pid()"
        while other.execute(query).fetchone() != (0,):
            assert time.monotonic() - started < 25
        other.rollback()
        store.upsert(RECORDS)


def test_who_interrupts_a_wait_for_a_server_that_hangs_waits_no_more(mortal: PostgresServer) -> None:
    with open_store(mortal.conninfo("index")) as store:
        assert store.manifest() is None
        threading.Timer(0.3, interrupt_main).start()
        started = time.monotonic()
        with mortal.stopped(), pytest.raises(KeyboardInterrupt):
            store.manifest()
        assert time.monotonic() - started < 15
        assert store.manifest() is None


def test_a_host_that_takes_no_connection_leaves_time_for_the_next(server: PostgresServer, database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{server.port}"
        with open_store(f"postgresql://{ADMIN}@{hosts}/{database}?timeout=1&retries=0") as store:
            assert store.manifest() is None


def test_a_name_that_nobody_resolves_ends_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: end.wait(60))
    with open_store("postgresql://db.example.org/db?timeout=0.5&retries=0&tls=false") as store:
        with pytest.raises(BackendUnavailableError, match="could not be reached to look for the index: nothing came"):
            store.manifest()
        end.set()


def test_a_short_timeout_is_never_none(server: PostgresServer, database: str) -> None:
    assert _settings("//host/db", timeout=0.0014)["tcp_user_timeout"] == "2"
    connection = connect(PostgresAddress.parse(f"//{server.address}/{database}"), PostgresOptions(retries=9))
    with pytest.raises(BackendUnavailableError, match="statement timeout"):
        connection.run("look", lambda session: session.execute("SELECT pg_sleep(9)"), timeout=0.0004)


def test_a_fork_has_connections_of_its_own(server: PostgresServer, database: str) -> None:
    with open_store(f"{server.url_of(ADMIN, database)}?connections=1") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert(RECORDS)

        def pid() -> int:
            return int(store._run("look", "SELECT pg_backend_pid()")[0][0])

        own = pid()
        assert own == pid()
        assert in_a_child(pid).isdecimal()
        assert in_a_child(pid) != str(own)

        def write() -> int:
            store.upsert(make_records(40, (IMAGE, TEXT)))
            store.close()
            return len(store)

        end = forked(write)
        assert len(store) in (20, 40)
        assert end() == "40"
        assert own == pid()
        assert len(store) == 40


# ---- a server that goes and comes back


def _searching(store: PostgresStore) -> list[Callable[[], object]]:
    return [
        lambda: store.search(IMAGE, RECORDS[7].vectors[IMAGE][None], limit=1)[0][0].id,
        lambda: store.get(["id-7"]) and "id-7",
    ]


def test_a_restart_between_two_searches_is_not_noticed(mortal: PostgresServer) -> None:
    with open_store(f"{mortal.conninfo('index')}?retries=0") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        for search in _searching(store):
            with ThreadPoolExecutor(4) as threads:  # so that there are several connections
                assert {future.result() for future in [threads.submit(search) for _ in range(20)]} == {"id-7"}
            mortal.kill()
            mortal.start()
            assert search() == "id-7"
        mortal.kill()
        with pytest.raises(BackendUnavailableError, match=r"could not be reached to read documents: .*refused"):
            store.get(["id-7"])
        mortal.start()
        assert store.get(["id-7"]) == [RECORDS[7].document]


def test_a_server_that_ends_its_sessions_is_asked_again(mortal: PostgresServer) -> None:
    with open_store(mortal.conninfo("index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        with psycopg.connect(mortal.conninfo("postgres"), autocommit=True) as other:
            for _ in range(5):
                query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'index'"
                other.execute(query)
                assert len(store) == 20


@pytest.mark.parametrize("loss", [psycopg.DatabaseError, psycopg.OperationalError, psycopg.InterfaceError])
def test_a_connection_that_is_lost_within_a_statement_is_replaced(
    loss: type[psycopg.Error], server: PostgresServer, database: str
) -> None:
    """psycopg raises any of these then: a DatabaseError of no other class where the result was under way."""
    lost: list[object] = []

    def call(session: psycopg.Connection[tuple[Any, ...]]) -> object:
        if not lost:
            lost.append(session)
            session.pgconn.finish()
            raise loss("server closed the connection unexpectedly")
        assert session is not lost[0]
        return session.execute("SELECT 7").fetchone()

    with open_store(server.conninfo(database)) as store:
        assert isinstance(store, PostgresStore)
        assert store._connection.run("look", call) == (7,)
