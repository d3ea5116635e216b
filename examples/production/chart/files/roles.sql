-- Run once, when the database is made: a role that writes, which the service has, and one that reads.
\getenv writer_password WRITER_PASSWORD
\getenv reader_password READER_PASSWORD

CREATE EXTENSION vector;
CREATE SCHEMA vlmsearch;

CREATE ROLE vlmsearch LOGIN PASSWORD :'writer_password';
CREATE ROLE vlmsearch_reader LOGIN PASSWORD :'reader_password';

REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO vlmsearch, vlmsearch_reader;

-- the reader trusts the tables of the writer, and has none of its rights
GRANT vlmsearch TO vlmsearch_reader WITH INHERIT FALSE, SET FALSE;
GRANT USAGE, CREATE ON SCHEMA vlmsearch TO vlmsearch;
GRANT USAGE ON SCHEMA vlmsearch TO vlmsearch_reader;

-- tables that the writer makes later, those of every new index and of a change of the model among them
ALTER DEFAULT PRIVILEGES FOR ROLE vlmsearch IN SCHEMA vlmsearch GRANT SELECT ON TABLES TO vlmsearch_reader;
