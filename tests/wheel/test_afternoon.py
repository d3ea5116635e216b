"""A stranger's afternoon: install, index, search, serve, write an application and tests, upgrade, uninstall."""

import gzip
import re
import shutil
import subprocess
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import httpx
import psycopg
import pytest

from tests.support.office import write as write_office
from tests.support.paths import ROOT
from tests.support.pdf_files import write_pdf
from tests.support.postgres_servers import PostgresServer, postgres_folder
from tests.support.servers import START_SECONDS, free_port
from vlmsearch.demo.scenes import make_scene

PHOTOS = 300
DOCUMENTS = 7
"""The papers: the pages of the PDF count, and so does the whole of it."""
EXTRAS = "office,pdf,postgresql,serve"
PACKAGES = ("pytest", "uvicorn")
EARLIER = ROOT / "tests" / "stores" / "sqlite" / "data" / "earlier-words.gz"
"""See make_earlier_words.py beside it."""
ROLE, PASSWORD = "gallery", "not a secret"
OWN_TESTS = {
    "conftest.py": 'pytest_plugins = ["vlmsearch_mocks.fixtures"]\n',
    "test_own.py": """
import pytest
from vlmsearch import Document
from vlmsearch_mocks import MemoryStore, MockEncoder
from vlmsearch_mocks.contracts import StoreContract


@pytest.fixture
def vlmsearch_encoder():
    return MockEncoder(neighbours={"a dog": ["old hound"]})


def test_search(vlmsearch_pipeline):
    vlmsearch_pipeline.add(Document(text, text=text) for text in ("red car", "old hound"))
    assert vlmsearch_pipeline.search("a dog")[0].document.id == "old hound"


class TestOwnStore(StoreContract):
    def make_store(self, tmp_path):
        return MemoryStore()
""",
}
APPLICATION = ROOT / "examples" / "fastapi_app" / "app.py"


@dataclass
class Afternoon:
    """A stranger's folders, and what each step took."""

    folder: Path
    rows: list[tuple[str, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home, self.project, self.programs = (self.folder / name for name in ("home", "project", "venv"))
        for folder in (self.home, self.project):
            folder.mkdir()
        self.environment = {
            "HOME": str(self.home),
            "PATH": f"{self.programs / 'bin'}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "VLMSEARCH_ENCODER": "onnx:demo",
        }

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note the time of a step, and by how much the folders grow."""
        began, before = time.monotonic(), bytes_of(self.folder)
        yield
        self.rows.append((name, time.monotonic() - began, bytes_of(self.folder) - before))

    def run(self, *command: str, status: int = 0, **more: str) -> str:
        """Run a program in the project's folder, and return what it says."""
        command = (str(self.programs / "bin" / command[0]), *command[1:])
        done = subprocess.run(
            command, cwd=self.project, env=self.environment | more, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def serving(self, *command: str, port: int, **more: str) -> Iterator[httpx.Client]:
        """Run a server in the project's folder, and give a client of it."""
        with (self.folder / "log").open("wb") as log:
            server = subprocess.Popen(
                (str(self.programs / "bin" / command[0]), *command[1:]),
                cwd=self.project,
                env=self.environment | more,
                stdout=log,
                stderr=log,
            )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                until = time.monotonic() + START_SECONDS
                while True:
                    assert server.poll() is None, (self.folder / "log").read_text()
                    assert time.monotonic() < until, (self.folder / "log").read_text()
                    with suppress(httpx.ConnectError):
                        http.get("/")
                        break
                    time.sleep(0.1)
                yield http
        finally:
            server.terminate()
            server.wait(60)

    def table(self) -> str:
        """Return the steps as a table."""
        rows = [*self.rows, ("all", sum(row[1] for row in self.rows), sum(row[2] for row in self.rows))]
        lines = (f"{name:<38}{seconds / 60:>9.2f}{size / 2**20:>9.1f}" for name, seconds, size in rows)
        return "\n".join((f"{'step':<38}{'minutes':>9}{'MB':>9}", *lines))


def bytes_of(folder: Path) -> int:
    """Measure the files of a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def ids_in(output: str) -> list[str]:
    """Return the names of the files, or the ids, that a search printed."""
    return [Path(line.split("\t")[1]).name for line in output.splitlines() if line.count("\t") > 1]


def draw(project: Path) -> None:
    """Draw the photographs, and write a document of each kind."""
    (project / "photos").mkdir()
    (project / "papers").mkdir()
    for seed in range(PHOTOS):
        make_scene(seed).draw(512).save(project / "photos" / f"{seed:04}.jpg", quality=90)
    papers = project / "papers"
    (papers / "heron.txt").write_text("A grey heron stands in the reeds at dawn.\n", encoding="utf-8")
    (papers / "bridge.md").write_text("# The bridge\n\nIt was closed for repairs of its cables.\n", encoding="utf-8")
    (papers / "tides.html").write_text("<title>Tides</title><p>High water comes at noon.</p>", encoding="utf-8")
    write_pdf(papers / "orders.pdf", ["Invoice AB-4711 for twelve lamps", "Delivery by the northern depot"])
    write_office(papers / "letter.docx", "The landlord confirms the lease of the workshop.")


@contextmanager
def postgres() -> Iterator[tuple[str, str]]:
    """A PostgreSQL with a role that has a password: the address of its database, and of the administrator."""
    with postgres_folder() as folder:
        server = PostgresServer(folder)
        server.prepare()
        lines = ("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256")
        (server.data / "pg_hba.conf").write_text("\n".join((*lines, "")))
        try:
            server.start()
            with psycopg.connect(server.conninfo("postgres"), autocommit=True) as session:
                session.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
                session.execute(f"CREATE DATABASE {ROLE} OWNER {ROLE}")
            with psycopg.connect(server.conninfo(ROLE), autocommit=True) as session:
                session.execute("CREATE EXTENSION vector")
            yield server.url_of(ROLE, ROLE), server.conninfo(ROLE)
        finally:
            server.kill()


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_an_afternoon(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = Afternoon(tmp_path)
    draw(day.project)
    with day.step("install"):
        venv.create(day.programs, with_pip=True)
        pip = [str(day.programs / "bin" / "python"), "-m", "pip"]
        subprocess.run([*pip, "install", "-q", f"{wheel}[{EXTRAS}]", *PACKAGES], check=True)
    with day.step(f"index {PHOTOS} photographs, 5 papers"):
        said = day.run("vlmsearch", "index", "photos", "papers", "--pdf", "--office", "--store", "sqlite:index")
        assert f"{PHOTOS + DOCUMENTS} added" in said, said
    store = ("--store", "sqlite:index")
    with day.step("search, ask, info"):
        for query, name in (
            ("a heron at dawn", "heron.txt"),
            ("AB4711", "orders.pdf#page=1"),
            ("lease of the workshop", "letter.docx"),
            ("high water", "tides.html"),
            ("the bridge", "bridge.md"),
        ):
            assert ids_in(day.run("vlmsearch", "search", query, *store))[:1] == [name]
        near = day.run("vlmsearch", "search", "--image", "photos/0007.jpg", *store)
        assert ids_in(near)[:1] == ["0007.jpg"]
        assert "reeds" in day.run("vlmsearch", "ask", "Where does the heron stand?", *store)
        facts = day.run("vlmsearch", "info", *store)
        assert f"documents   {PHOTOS + DOCUMENTS} ({PHOTOS + DOCUMENTS - 2} files or rows, 2 parts of files)\n" in facts
    with day.step("the page, and search by HTTP"):
        port = free_port()
        with day.serving("vlmsearch", "serve", *store, "--port", str(port), port=port) as http:
            page = http.get("/")
            assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
            answer = http.post("/api/v1/indexes/default/search", json={"text": "a heron at dawn", "limit": 1})
            assert Path(answer.json()["matches"][0]["id"]).name == "heron.txt"
    with day.step("an application with PostgreSQL"), postgres() as (url, admin):
        use_application(day, url)
        with psycopg.connect(admin) as session:
            owners = session.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'").fetchall()
            assert owners == [(ROLE,)]
    with day.step("tests of one's own"):
        for name, text in OWN_TESTS.items():
            (day.project / name).write_text(text, encoding="utf-8")
        assert re.search(r"\d\d passed", day.run("pytest", "-q", *OWN_TESTS))
    with day.step("an index of an earlier version"):
        (day.project / "earlier").write_bytes(gzip.decompress(EARLIER.read_bytes()))
        earlier = ("--store", "sqlite:earlier")
        said = day.run("vlmsearch", "search", "dogs in the snow", *earlier)
        assert ids_in(said) == ["dogs"]
        assert "until you run `vlmsearch reindex --store URL`, which renews them" in said
        day.run("vlmsearch", "reindex", *earlier)
        said = day.run("vlmsearch", "search", "C++", *earlier)
        assert (ids_in(said), "renews" in said) == (["languages"], False)
    with day.step("uninstall"):
        subprocess.run([*pip, "uninstall", "-q", "-y", "vlmsearch"], check=True)
        left = [path.name for path in day.programs.rglob("*") if "vlmsearch" in str(path.relative_to(day.programs))]
        compiled = [name for name in left if ".cpython-" in name]
        assert all("-pytest-" in name for name in compiled), "pip does not know what pytest compiles for itself"
        assert {*left} - {*compiled} <= {"vlmsearch_mocks", "contracts", "__pycache__"}
    at_home = sorted({path.relative_to(day.home) for path in day.home.rglob("*") if path.is_file()})
    remains = {"among the programs": sorted({*left}), "at home": [*map(str, at_home)]}
    with capsys.disabled():
        print(
            "",
            day.table(),
            *(f"left {where}: {', '.join(names)}" for where, names in remains.items()),
            sep="\n",
        )
    assert {path.parts[:2] for path in at_home} <= {(".cache", "vlmsearch")}
    shutil.rmtree(day.programs)


def use_application(day: Afternoon, url: str) -> None:
    """Run an application against PostgreSQL: add a note and a picture, search, start it again, and search again."""
    shutil.copy(APPLICATION, day.project)
    secret = url.replace(f"postgresql://{ROLE}@", f"postgres://{ROLE}:{quote(PASSWORD)}@")
    port, settings = free_port(), {"APP_STORE": "postgresql:env:DATABASE_URL", "DATABASE_URL": secret}
    command = ("uvicorn", "app:app", "--port", str(port))
    picture = (day.project / "photos" / "0007.jpg").read_bytes()
    with day.serving(*command, port=port, APP_ENCODER="onnx:demo", **settings) as http:
        added = http.post("/notes", json={"id": "heron", "text": "A grey heron stands in the reeds."})
        assert added.status_code == 201, added.text
        added = http.post("/pictures", data={"id": "seven"}, files={"file": ("7.jpg", picture, "image/jpeg")})
        assert added.status_code == 201, added.text
        assert http.post("/pictures", data={"id": "bad"}, files={"file": ("7.jpg", b"GIF89a")}).status_code == 400
    with day.serving(*command, port=port, **settings) as http:
        assert match_ids(http.get("/search", params={"text": "heron"}))[:1] == ["heron"]
        assert match_ids(http.post("/search", files={"file": ("7.jpg", picture, "image/jpeg")}))[:1] == ["seven"]
        assert "heron" in http.get("/answer", params={"question": "Which bird stands in the reeds?"}).text
        assert http.delete("/documents/seven").status_code == 204
        assert http.get("/documents/seven").status_code == 404
    refused = day.run("vlmsearch", "info", "--store", url, status=1, PGPASSWORD="another")
    assert refused.count("\n") == 1
    assert PASSWORD not in refused


def match_ids(answer: httpx.Response) -> list[str]:
    """Return the ids of the documents that a search by HTTP answered with."""
    assert answer.status_code == 200, answer.text
    return [str(match["document"]["id"]) for match in answer.json()["matches"]]
