"""OpenID Connect: whose tokens are taken, what they say, and what their holders see."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.cli import assert_one_line, run
from tests.support.identity_provider import AUDIENCE, StandInProvider, public_jwk, rsa_key, stand_in_provider
from tests.support.service import RunningService, serving
from vlmsearch import Document
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.server.access import Sessions
from vlmsearch.server.errors import ApiError
from vlmsearch.server.oidc import ASK_SECONDS, RENEW_SECONDS, IdentityProvider, principals_of
from vlmsearch.server.settings import IndexSettings, OidcSettings, ServerSettings, read_settings
from vlmsearch.server.tokens import TokenFile

SEARCH = "/api/v1/indexes/notes/search"
KEY, OTHER, CURVE = rsa_key(), rsa_key(), ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def provider() -> Iterator[StandInProvider]:
    with stand_in_provider(first=KEY, curve=CURVE) as running:
        yield running


@pytest.fixture(scope="module")
def service(provider: StandInProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with a document of everyone, one of ``ann``, one of ``hr``, and one of nobody."""
    folder = tmp_path_factory.mktemp("oidc")
    file = TokenFile(folder / "tokens.json")
    secret = file.add("operator", role="admin")
    settings = ServerSettings(
        {"notes": IndexSettings("mock:", "mock:"), "hidden": IndexSettings("mock:", "mock:")},
        tokens=str(file.path),
        oidc=settings_of(provider, indexes=("notes",)),
        uploads=str(folder / "uploads"),
    )
    with serving(settings) as running:
        running.service.indexes["notes"].pipeline.add(
            [
                Document("all", text="a dog of everyone"),
                Document("ann", text="a dog of ann", readers=["user:ann"]),
                Document("hr", text="a dog of the staff", readers=["group:hr"]),
                Document("nobody", text="a dog of nobody", readers=[]),
            ]
        )
        running.http.headers["Operator"] = secret  # for those tests that need it
        yield running


def settings_of(provider: StandInProvider, **given: Any) -> OidcSettings:
    return OidcSettings(provider.issuer, AUDIENCE, **given)


def ask(service: RunningService, token: str) -> httpx.Response:
    return service.http.post(SEARCH, json={"text": "dog"}, headers={"Authorization": f"Bearer {token}"})


def seen(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {match["id"] for match in answer.json()["matches"]}


# ------------------------------------------------------------------------------------------- over HTTP


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ({}, {"all", "ann"}),
        ({"groups": ["hr", "it"]}, {"all", "ann", "hr"}),
        ({"groups": "hr"}, {"all", "ann", "hr"}),
        ({"sub": "bob"}, {"all"}),
        ({"sub": "bob", "groups": ["hr"]}, {"all", "hr"}),
        ({"kid": "curve", "groups": ["hr"]}, {"all", "ann", "hr"}),
        ({"headers": {"typ": "at+JWT"}}, {"all", "ann"}),
        ({"aud": ["another", AUDIENCE]}, {"all", "ann"}),
    ],
)
def test_a_search_shows_what_the_holder_of_a_token_may_read(
    service: RunningService, provider: StandInProvider, given: dict[str, Any], ids: set[str]
) -> None:
    assert seen(ask(service, provider.token(**given))) == ids


def test_tokens_of_the_file_are_in_force_beside_those_of_the_provider(service: RunningService) -> None:
    assert seen(ask(service, service.http.headers["Operator"])) == {"all", "ann", "hr", "nobody"}
    assert ask(service, "vlms_none").status_code == 401


def test_users_have_the_role_and_the_indexes_of_the_settings(
    service: RunningService, provider: StandInProvider
) -> None:
    headers = {"Authorization": f"Bearer {provider.token()}"}
    listed = service.http.get("/api/v1/indexes", headers=headers).json()
    assert [index["name"] for index in listed["indexes"]] == ["notes"]
    body = {"documents": [{"id": "new", "text": "x"}]}
    assert service.http.post("/api/v1/indexes/notes/documents", json=body, headers=headers).status_code == 403
    assert service.http.get("/api/v1/indexes/hidden", headers=headers).status_code == 404


def test_with_a_provider_alone_nobody_gets_in_without_its_tokens(provider: StandInProvider, tmp_path: Path) -> None:
    settings = ServerSettings(
        {"notes": IndexSettings("mock:", "mock:")}, oidc=settings_of(provider), uploads=str(tmp_path)
    )
    replace(settings, host="0.0.0.0").check_address()
    with serving(settings) as running:
        assert running.http.post(SEARCH, json={"text": "dog"}).status_code == 401
        assert ask(running, "vlms_none").status_code == 401
        assert ask(running, provider.token(key=OTHER)).status_code == 401
        assert seen(ask(running, provider.token())) == set()


def test_a_session_begins_with_a_token_that_is_in_force(service: RunningService, provider: StandInProvider) -> None:
    with httpx.Client(base_url=service.url, headers={"Origin": service.url}) as page:
        refused = page.post("/api/v1/session", json={"token": provider.token(key=OTHER)})
        assert (refused.status_code, page.cookies) == (401, httpx.Cookies())
        started = page.post("/api/v1/session", json={"token": provider.token(groups=["hr"])})
        assert started.json() == {"name": "user:ann", "role": "read", "indexes": ["notes"]}
        assert seen(page.post(SEARCH, json={"text": "dog"})) == {"all", "ann", "hr"}


def test_an_audit_line_names_the_user_and_never_as_a_token_of_the_file(
    service: RunningService, provider: StandInProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vlmsearch.audit")
    for sub in ("operator", "ann x @example.com", "b" * 100):
        ask(service, provider.token(sub=sub))
    ends = time.monotonic() + 30
    while len(caplog.records) < 3 and time.monotonic() < ends:  # a line is written after the answer was sent
        time.sleep(0.01)
    first, second, third = [record.getMessage().partition(" POST")[0] for record in caplog.records]
    assert first == "user:operator"
    assert re.fullmatch(r"user:ann-x-example\.com-[0-9a-f]{8}", second)
    assert re.fullmatch(r"user:b{48}-[0-9a-f]{8}", third)


# ------------------------------------------------------------------------------------------- refused


NOW = int(time.time())
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "issuer": ({"iss": "https://elsewhere.example"}, "issuer"),
    "audience": ({"aud": "another"}, "Audience"),
    "no audience": ({"aud": None}, '"aud"'),
    "expired": ({"exp": NOW - 60}, "expired"),
    "never ends": ({"exp": None}, '"exp"'),
    "not yet": ({"nbf": NOW + 86_400}, "not yet valid"),
    "of the future": ({"iat": NOW + 86_400}, "not yet valid"),
    "without a time": ({"iat": None}, '"iat"'),
    "without a subject": ({"sub": None}, '"sub"'),
    "another key": ({"key": OTHER}, "Signature verification failed"),
    "an unknown key": ({"kid": "second", "key": OTHER}, "none of the provider's 2"),
    "the key of another algorithm": ({"kid": "curve", "key": KEY}, "does not match"),
    "no key": ({"kid": None}, "none of the provider's 2"),
    "another algorithm of the key": ({"algorithm": "PS256"}, "alg"),
    "a symmetric algorithm": ({"key": "0" * 64, "algorithm": "HS256"}, "alg"),
    "no algorithm": ({"key": "", "algorithm": "none"}, "alg"),
    "another type": ({"headers": {"typ": "logout+jwt"}}, "does not say who asks"),
    "long": ({"groups": ["x" * 200] * 100}, "too long"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_token_that_is_not_right_in_everything_is_refused(
    service: RunningService, provider: StandInProvider, case: str
) -> None:
    given, said = WRONG[case]
    answer = ask(service, provider.token(**given))
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (401, "unauthenticated")
    assert error["message"].startswith("the provider's token cannot be used: ")
    assert said in error["message"]


def test_the_public_key_is_no_secret_to_sign_with(service: RunningService, provider: StandInProvider) -> None:
    public = public_jwk("first", KEY)["n"]
    answer = ask(service, provider.token(key=public, algorithm="HS256"))
    assert answer.status_code == 401
    assert "alg" in answer.json()["error"]["message"]


@pytest.mark.parametrize("change", [lambda token: token[:-8] + "AAAAAAAA", lambda token: "a.b.c", lambda token: ".."])
def test_a_damaged_token_is_refused(
    service: RunningService, provider: StandInProvider, change: Callable[[str], str]
) -> None:
    assert ask(service, change(provider.token())).status_code == 401


# ------------------------------------------------------------------------------------------- claims


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"_claim_names": {"groups": "src1"}}, "too many"),
        ({"hasgroups": True}, "too many"),
        ({"groups": {"hr": True}}, "a list of names"),
        ({"groups": ["hr", 7]}, "a list of names"),
        ({"groups": ["hr", ""]}, "a list of names"),
        ({"groups": 7}, "a list of names"),
        ({"sub": ""}, "a name and"),
        ({"groups": ["x" * 300]}, "256 bytes"),
        ({"groups": ["half \ud800"]}, "surrogates not allowed"),
        ({"sub": "a\nb"}, "no controls"),
    ],
)
def test_claims_that_are_not_whole_open_nothing(
    service: RunningService, provider: StandInProvider, given: dict[str, Any], said: str
) -> None:
    answer = ask(service, provider.token(**given))
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "unauthenticated")
    assert said in answer.json()["error"]["message"]


def test_more_groups_than_a_search_takes_are_refused() -> None:
    settings = OidcSettings("https://id.example.com", AUDIENCE)
    with pytest.raises(ConfigError, match="at most 10,000"):
        principals_of({"sub": "ann", "groups": [f"g{i}" for i in range(10_000)]}, settings)


@pytest.mark.parametrize(
    ("given", "claims", "names"),
    [
        ({"group_claim": "realm_access.roles"}, {"realm_access": {"roles": ["hr"]}}, ("user:ann", "group:hr")),
        ({"group_claim": "https://example.com/g"}, {"https://example.com/g": ["hr"]}, ("user:ann", "group:hr")),
        ({"group_claim": "realm_access.roles"}, {"groups": ["hr"], "hasgroups": True}, ("user:ann",)),
        ({"user_claim": "oid"}, {"oid": "5"}, ("user:5",)),
        ({"user_claim": "email"}, {"email": "a@b.c", "email_verified": True}, ("user:a@b.c",)),
    ],
)
def test_the_settings_name_the_claims(given: dict[str, Any], claims: dict[str, Any], names: tuple[str, ...]) -> None:
    assert principals_of({"sub": "ann", **claims}, OidcSettings("https://id.example.com", AUDIENCE, **given)) == names


@pytest.mark.parametrize(
    ("given", "claims"),
    [
        ({"group_claim": "realm_access.roles"}, {"realm_access": "hr"}),
        ({"group_claim": "realm_access.roles"}, {"realm_access": ["roles"]}),
        ({"user_claim": "oid"}, {}),
        ({"user_claim": "email"}, {"email": "a@b.c"}),
        ({"user_claim": "email"}, {"email": "a@b.c", "email_verified": "false"}),
        ({}, {"_claim_names": 5}),
        ({}, {"groups": ["\ud800"]}),
    ],
)
def test_claims_of_another_form_are_refused(given: dict[str, Any], claims: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"."):  # whichever: the verifier takes every error for a refusal
        principals_of({"sub": "ann", **claims}, OidcSettings("https://id.example.com", AUDIENCE, **given))


# ------------------------------------------------------------------------------------------- keys


def holds(identities: IdentityProvider, token: str) -> bool:
    """Whether a token is in force, after the keys were asked for that it needs."""
    asyncio.run(identities.prepare(token))
    try:
        return identities.find(token) is not None
    except ApiError:
        return False


def test_keys_are_asked_for_again_once_a_minute_and_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    with stand_in_provider(first=KEY) as provider:
        identities = IdentityProvider(settings_of(provider))
        assert not provider.asked, "nothing is asked for before there is a token"
        assert holds(identities, provider.token())
        assert provider.asked == ["/.well-known/openid-configuration", "/keys"]
        provider.keys["second"] = OTHER
        provider.list_keys()
        rotated = provider.token("second")
        assert not holds(identities, rotated)
        assert len(provider.asked) == 2
        identities._asked -= ASK_SECONDS
        assert holds(identities, rotated)
        assert len(provider.asked) == 4
        del provider.keys["first"]
        provider.list_keys()
        withdrawn = provider.token(key=KEY)
        identities._asked -= RENEW_SECONDS / 2
        assert holds(identities, withdrawn)
        identities._asked -= RENEW_SECONDS / 2
        assert not holds(identities, withdrawn)
        provider.is_away = True
        identities._asked -= RENEW_SECONDS
        assert holds(identities, rotated), "the keys from before serve on"
    assert "1 from before stay in force" in caplog.text


def test_without_keys_every_token_is_refused_until_the_provider_is_back() -> None:
    with stand_in_provider(first=KEY) as provider:
        provider.is_away = True
        identities = IdentityProvider(settings_of(provider))
        assert not holds(identities, provider.token())
        provider.is_away = False
        assert not holds(identities, provider.token())
        identities._asked -= ASK_SECONDS
        assert holds(identities, provider.token())


def test_many_who_need_a_key_ask_for_it_once() -> None:
    with stand_in_provider(first=KEY) as provider:
        identities = IdentityProvider(settings_of(provider))

        async def all_at_once() -> None:
            await asyncio.gather(*(identities.prepare(provider.token()) for _ in range(20)))

        asyncio.run(all_at_once())
        assert identities.find(provider.token())
        assert provider.asked.count("/keys") == 1


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://elsewhere.example"},
        {"jwks_uri": "http://keys.example/keys"},
        {"jwks_uri": "file:///etc/hosts"},
        {"jwks_uri": 5},
    ],
)
def test_a_provider_that_says_what_is_not_so_has_no_keys(
    discovery: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with stand_in_provider(first=KEY) as provider:
        provider.discovery |= discovery
        assert not holds(IdentityProvider(settings_of(provider)), provider.token())
        assert "/keys" not in provider.asked
    assert "cannot be read" in caplog.text


@pytest.mark.filterwarnings("ignore::jwt.InsecureKeyLengthWarning")
def test_keys_that_are_not_for_signatures_of_ours_are_left_out(tmp_path: Path) -> None:
    short, long_curve = rsa_key(1024), ec.generate_private_key(ec.SECP384R1())
    file = tmp_path / "keys.json"
    with stand_in_provider(first=KEY) as provider:
        listed = [
            public_jwk("encrypts", KEY, use="enc"),
            public_jwk("pss", KEY, alg="PS256"),
            public_jwk("curve", long_curve),
            public_jwk("short", short),
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0", "alg": "HS256"},
            "no key",
            {"kty": "new", "kid": "new"},
            public_jwk("right", KEY, alg="RS256", use="sig"),
        ]
        file.write_text(json.dumps({"keys": listed}))
        identities = IdentityProvider(settings_of(provider, jwks=str(file)))
        assert holds(identities, provider.token("right", key=KEY))
        signers = {"encrypts": KEY, "pss": KEY, "short": short}
        assert not any(holds(identities, provider.token(name, key=key)) for name, key in signers.items())
        assert not holds(identities, provider.token("curve", key=long_curve, algorithm="ES384"))
        assert not holds(identities, provider.token("shared", key=b"secret" * 8, algorithm="HS256"))
        assert not provider.asked


# ------------------------------------------------------------------------------------------- settings


def test_settings_name_the_provider(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(
        '[oidc]\nissuer = "https://id.example.com"\naudience = "search"\njwks = "keys.json"\nrole = "write"\n'
    )
    settings = read_settings(path).oidc
    assert settings == OidcSettings("https://id.example.com", "search", str(tmp_path / "keys.json"), "write")
    path.write_text('[oidc]\nissuer = "https://id.example.com"\naudience = "search"\njwks = "https://a.example/keys"\n')
    settings = read_settings(path).oidc
    assert settings is not None
    assert settings.jwks == "https://a.example/keys"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('audience = "a"', "oidc: issuer must be given"),
        ('issuer = "https://a.example"', "oidc: audience must be given"),
        ('issuer = "http://a.example"\naudience = "a"', "begins with https://"),
        ('issuer = "https://user:word@a.example"\naudience = "a"', "begins with https://"),
        ('issuer = "https://a.example"\naudience = "a"\njwks = "http://b.example/keys"', "begins with https://"),
        ('issuer = "https://a.example"\naudience = "a"\nrole = "root"', "read, write, admin, not 'root'"),
        ('issuer = "https://a.example"\naudience = "a"\nindexes = "notes"', "is a list"),
        ('issuer = "https://a.example"\naudience = "a"\ngroup_claims = "g"', "did you mean 'group_claim'"),
        ('issuer = "https://a.example"\naudience = "a"\njwks = "absent.json"', "cannot be read"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, given: str, said: str) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(f"port = 0\n[indexes.notes]\nstore = 'mock:'\nencoder = 'mock:'\n[oidc]\n{given}\n")
    assert_one_line(run("serve", "--config", path), said)


def test_a_user_has_sessions_of_their_own(provider: StandInProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.server.access._MAX_SESSIONS", 2)
    identities = IdentityProvider(settings_of(provider))
    asyncio.run(identities.prepare(provider.token()))
    sessions = Sessions(identities)
    bob = sessions.start(provider.token(sub="bob"))
    ann = [sessions.start(provider.token(jti=str(i))) for i in range(3)]
    assert [sessions.find(each[0]) is not None for each in ann if each] == [False, True, True]
    assert bob
    assert sessions.find(bob[0])


def test_a_session_ends_with_its_token(provider: StandInProvider) -> None:
    identities = IdentityProvider(settings_of(provider))
    asyncio.run(identities.prepare(provider.token()))
    sessions = Sessions(identities)
    secret = provider.token(exp=int(time.time()) - 27)  # in force for the leeway of clocks
    started = sessions.start(secret)
    assert started
    assert sessions.secret(started[0])
    ends = time.monotonic() + 60
    while holds(identities, secret) and time.monotonic() < ends:
        time.sleep(0.05)
    with pytest.raises(ApiError, match="expired"):
        sessions.find(started[0])


def test_without_the_packages_the_settings_say_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "vlmsearch.server.oidc")
    settings = ServerSettings(
        {"notes": IndexSettings("mock:", "mock:")}, oidc=OidcSettings("https://a.example", "a"), uploads=str(tmp_path)
    )
    with pytest.raises(MissingDependencyError, match=r"`\[oidc\]` needs jwt: pip install"), serving(settings):
        pass
