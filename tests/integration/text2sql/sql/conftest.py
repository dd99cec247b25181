"""A database with tables of its own, on the server of the run, and a role that may read it."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from kosmos_rag.storage.provision import create_database

DDL = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TABLE teams (id serial PRIMARY KEY, name text NOT NULL UNIQUE, password text, mood mood);
CREATE TABLE seats (hall text, place integer, PRIMARY KEY (hall, place));
CREATE TABLE games (
    id serial PRIMARY KEY, home integer NOT NULL REFERENCES teams, away integer REFERENCES teams,
    replay_of integer REFERENCES games, hall text, place integer, state varchar(9) DEFAULT 'open',
    played_at timestamptz, note tsvector, CHECK (state IN ('open', 'over')),
    FOREIGN KEY (hall, place) REFERENCES seats (hall, place)
);
ALTER TABLE teams ADD COLUMN captain integer REFERENCES games;
CREATE TABLE "Order 🙂" (id integer PRIMARY KEY, "se""lect" text, kind text);
CREATE VIEW open_games AS SELECT id, home FROM games WHERE state = 'open';
CREATE SCHEMA "Back Office";
CREATE TABLE "Back Office".pay (team_id integer REFERENCES public.teams);
CREATE INDEX ON games (lower(state));
COMMENT ON TABLE teams IS 'Clubs that play';
COMMENT ON COLUMN teams.name IS 'What the club is called';
INSERT INTO teams (name, password, mood) SELECT 'team ' || n, 'secret', 'glad' FROM generate_series(1, 50) AS n;
INSERT INTO games (home, state, played_at) SELECT 1, 'open', now() FROM generate_series(1, 50);
INSERT INTO "Order 🙂" SELECT n, 'x' || n || '@example.org', 'kind ' || n % 3 FROM generate_series(1, 50) AS n;
"""


@pytest.fixture(scope="session")
def shop(server: Any) -> Iterator[tuple[str, str]]:
    """The URLs of a database, as its administrator and as a role that may only read."""
    name = f"kosmos_shop_{uuid.uuid4().hex[:8]}"
    role = f"{name}_reader"
    create_database(server.admin, name)
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute(DDL.encode())
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'kosmos-test'").format(sql.Identifier(role)))
        connection.execute(sql.SQL("ALTER ROLE {} SET timezone TO 'Asia/Tokyo'").format(sql.Identifier(role)))
        for schema in ("public", "Back Office"):
            granted = sql.SQL("GRANT USAGE ON SCHEMA {0} TO {1}; GRANT SELECT ON ALL TABLES IN SCHEMA {0} TO {1}")
            connection.execute(granted.format(sql.Identifier(schema), sql.Identifier(role)))
    yield server.url(name), server.url(name, role)
    with psycopg.connect(server.admin, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
