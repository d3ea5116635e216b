"""Whose tables these are: a table that another role made, or can change, runs what that role wants.

Triggers, rules, views in the place of tables, defaults of columns and checks run as the role that writes or reads. So
the tables of an index are looked at when it is opened, and each transaction proves that they are still the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from psycopg import sql

from vlmsearch.errors import ConfigError
from vlmsearch.stores.postgresql.connection import Session, all_rows, quoted
from vlmsearch.types import READERS

_MAY_ACT = (
    "coalesce((to_jsonb(m)->>'inherit_option')::boolean, true) OR coalesce((to_jsonb(m)->>'set_option')::boolean, true)"
)
"""Whether a membership gives rights; before PostgreSQL 16, which has these columns, each does."""
_OWN = (
    "WITH RECURSIVE own(oid) AS (SELECT oid FROM pg_roles WHERE rolname = current_user "
    "UNION SELECT m.roleid FROM pg_auth_members m JOIN own ON m.member = own.oid "
    f"WHERE NOT m.admin_option OR {_MAY_ACT})"
)
"""The role of the session and those that it is in. `pg_has_role` says yes to a superuser for every role, and to who
made a role, and so administers it."""
_TABLES = (
    f"{_OWN} SELECT c.relname, c.oid::bigint, obj_description(c.oid, 'pg_class'), current_user::text, "
    "array_remove(ARRAY["
    "CASE WHEN c.relowner NOT IN (SELECT oid FROM own UNION SELECT oid FROM pg_roles WHERE rolsuper) "
    "THEN 'it belongs to ' || pg_get_userbyid(c.relowner) END,"
    "CASE WHEN c.relkind <> 'r' THEN 'it is no ordinary table' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal) THEN 'it has a trigger' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN 'it has a rule' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)) "
    "THEN 'it inherits, or is inherited from' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype IN ('c', 't', 'x')) "
    "THEN 'it has a check' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam "
    "WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL AND m.amname <> 'hnsw')) "
    "THEN 'it has an index on an expression' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "LEFT JOIN pg_type e ON e.oid = t.typelem WHERE a.attrelid = c.oid AND a.attnum > 0 "
    "AND (a.atthasdef OR t.typtype <> 'b' OR e.typtype <> 'b')) THEN 'it has a computed column, or one of a domain' END"
    "], NULL), ARRAY(SELECT a.attname::text FROM pg_attribute a "
    "WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = ANY(%s)"
)
_EXPOSURES = (
    f"{_OWN}, given AS (SELECT a.grantee, 'may create in the schema ' || n.nspname AS what FROM pg_namespace n "
    "CROSS JOIN LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a "
    "WHERE n.nspname = ANY(%s) AND a.privilege_type = 'CREATE' "
    "UNION SELECT n.nspowner, 'owns the schema ' || n.nspname FROM pg_namespace n WHERE n.nspname = ANY(%s) "
    "UNION SELECT a.grantee, 'may make triggers on ' || c.relname FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL aclexplode(c.relacl) a "
    "WHERE n.nspname = %s AND c.relname = ANY(%s) AND a.privilege_type = 'TRIGGER'), "
    "named AS (SELECT what, CASE WHEN r.rolname = 'pg_database_owner' "
    "THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE g.grantee END AS oid "
    "FROM given g LEFT JOIN pg_roles r ON r.oid = g.grantee) "
    "SELECT DISTINCT coalesce(r.rolname, 'every role') || ' ' || what FROM named n LEFT JOIN pg_roles r USING (oid) "
    "WHERE n.oid = 0 OR NOT r.rolsuper AND r.rolname <> current_user AND (n.oid NOT IN (SELECT oid FROM own) "
    "OR EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = n.oid AND m.member NOT IN (SELECT oid FROM own) "
    f"AND ({_MAY_ACT}))) ORDER BY 1"
)
"""A role that the own one is in is named where others are in it, too. Superusers are not: no wall stops them."""


class CheckedTable(NamedTuple):
    """A table that is as vlmsearch makes it.

    Attributes:
        oid: Its number in the database, which another table of the same name does not have.
        comment: The comment on it.
    """

    oid: int
    comment: str


def check_tables(
    session: Session, schema: str, tables: Mapping[str, Sequence[str]], index: str
) -> dict[str, CheckedTable]:
    """Return those of some tables that are there.

    Args:
        session: A connection within a transaction.
        schema: The schema that they are in.
        tables: The columns that each should have, by its name. A column of readers may be added to one.
        index: Name of the index, for messages.

    Raises:
        ConfigError: One of them is not what vlmsearch makes, or belongs to a role that the own one is not in.
    """
    checked: dict[str, CheckedTable] = {}
    for name, oid, comment, user, faults, columns in all_rows(session, _TABLES, (schema, list(tables))):
        is_other = bool(({*columns} ^ {*tables[name]}) - {READERS})
        if reasons := [*faults, *([f"it has the columns {', '.join(columns)}"] if is_other else [])]:
            trust = f"if you trust its owner, GRANT that role TO {user} WITH INHERIT FALSE, SET FALSE, else "
            raise ConfigError(
                f"{index} has a table {schema}.{name} that is not one of vlmsearch and of the role {user}: "
                f"{'; '.join(reasons)}; {trust if reasons[-1].startswith('it belongs to') else ''}"
                "name another schema or table"
            )
        checked[name] = CheckedTable(oid, comment or "")
    return checked


def proof_of(
    schema: str, tables: Mapping[str, CheckedTable], vector: tuple[str, int] | None = None, absent: str = ""
) -> str:
    """Return statements that lock tables, and say whether they are those that were checked.

    Without any, they say no.

    Args:
        schema: The schema that they are in.
        tables: The tables, by name, in the order in which they are locked.
        vector: pgvector's type, as SQL has it, and its number.
        absent: A table that was not there, as SQL has it. Who makes it has to lock one of the others.
    """
    if not tables:
        return "SELECT false;"
    names = [quoted(schema, name) for name in tables]
    numbers = [f"{_literal(name)}::regclass::oid::bigint" for name in names]
    checked = [table.oid for table in tables.values()]
    if vector is not None:
        numbers.append(f"{_literal(vector[0])}::regtype::oid::bigint")
        checked.append(vector[1])
    is_same = f"ARRAY[{', '.join(numbers)}] = ARRAY[{', '.join(map(str, checked))}]::bigint[]"
    is_absent = f" AND to_regclass({_literal(absent)}) IS NULL" if absent else ""
    return f"LOCK TABLE {', '.join(names)} IN ACCESS SHARE MODE; SELECT {is_same}{is_absent};"


def _literal(text: str) -> str:
    return sql.Literal(text).as_string(None)


def exposures(session: Session, schema: str, tables: Sequence[str], extension: str) -> tuple[str, ...]:
    """Say which other roles may put something where the role of the session runs it.

    Args:
        session: A connection within a transaction.
        schema: The schema of the index.
        tables: The names of its tables.
        extension: The schema of pgvector.
    """
    schemas = sorted({schema, extension})
    return tuple(said for (said,) in all_rows(session, _EXPOSURES, (schemas, schemas, schema, list(tables))))
