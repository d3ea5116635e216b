"""Whose tables these are: a table that another role made, or can change, runs what that role wants.

Triggers, rules, views in the place of tables, defaults of columns and checks run as the role that writes or reads. So
the tables of an index are looked at before the first statement that names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vlmsearch.errors import ConfigError
from vlmsearch.stores.postgresql.connection import Session, all_rows

_OWN = (
    "WITH RECURSIVE own(oid) AS (SELECT oid FROM pg_roles WHERE rolname = current_user "
    "UNION SELECT m.roleid FROM pg_auth_members m JOIN own ON m.member = own.oid)"
)
"""The role of the session and those that it is in; `pg_has_role` says yes to a superuser for every role."""
_TABLES = (
    f"{_OWN} SELECT c.relname, obj_description(c.oid, 'pg_class'), current_user::text, array_remove(ARRAY["
    "CASE WHEN c.relowner NOT IN (SELECT oid FROM own) THEN 'it belongs to ' || pg_get_userbyid(c.relowner) END,"
    "CASE WHEN c.relkind <> 'r' THEN 'it is no ordinary table' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal) THEN 'it has a trigger' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN 'it has a rule' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)) "
    "THEN 'it inherits, or is inherited from' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype IN ('c', 't', 'x')) "
    "THEN 'it has a check' END,"
    "CASE WHEN EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = c.oid AND a.attnum > 0 AND (a.atthasdef OR t.typtype <> 'b')) "
    "THEN 'it has a computed column' END"
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
    "WHERE n.nspname = ANY(%s) AND c.relname ^@ %s AND c.relowner IN (SELECT oid FROM own) "
    "AND a.privilege_type = 'TRIGGER') "
    "SELECT coalesce(r.rolname, 'every role') || ' ' || what FROM given g LEFT JOIN pg_roles r ON r.oid = g.grantee "
    "WHERE g.grantee = 0 OR NOT (r.rolsuper OR r.rolname = 'pg_database_owner' OR r.oid IN (SELECT oid FROM own) "
    "OR r.oid IN (SELECT datdba FROM pg_database WHERE datname = current_database())) ORDER BY 1"
)
"""Superusers and the owner of the database are left out: they may do everything anyway."""


def check_tables(session: Session, schema: str, tables: Mapping[str, Sequence[str]], index: str) -> dict[str, str]:
    """Return the comments on those of some tables that are there.

    Args:
        session: A connection within a transaction.
        schema: The schema that they are in.
        tables: The columns that each should have, by its name.
        index: Name of the index, for messages.

    Raises:
        ConfigError: One of them is not what vlmsearch makes, or belongs to a role that the own one is not in.
    """
    comments: dict[str, str] = {}
    for name, comment, user, faults, columns in all_rows(session, _TABLES, (schema, list(tables))):
        is_other = set(columns) != set(tables[name])
        if reasons := [*faults, *([f"it has the columns {', '.join(columns)}"] if is_other else [])]:
            raise ConfigError(
                f"{index} has a table {schema}.{name} that is not one of vlmsearch and of the role {user}: "
                f"{'; '.join(reasons)}; if you trust its owner, have {user} granted that role, else name "
                "another schema or table"
            )
        comments[name] = comment or ""
    return comments


def exposures(session: Session, schemas: Sequence[str], prefix: str) -> tuple[str, ...]:
    """Say which other roles may put something where the role of the session runs it.

    Args:
        session: A connection within a transaction.
        schemas: The schemas of the index and of pgvector.
        prefix: What the names of the index's tables begin with.
    """
    values = (list(schemas), list(schemas), list(schemas), prefix)
    return tuple(said for (said,) in all_rows(session, _EXPOSURES, values))
