"""The index of words behind the history's search: FTS5 on SQLite, a `tsvector` table on PostgreSQL, kept by triggers.

Both hold what a person reads or wrote of a run: prompt, given text, text, title and note, and each tag as one word made
of the hex digits of its bytes, so that a tag is found exactly. They are no tables of the data model: nothing but the
triggers writes them.

SQLite's index has rows of its own (`run_search_rows`), because a batch migration or a VACUUM may number the rows of
`runs` anew. It keeps no text; a row leaves it by the text that had entered.
"""

from typing import Final

from sqlalchemy import Connection, inspect, text

PREFIX: Final = "run_search"
_PUNCTUATION: Final = "".join(chr(c) for c in range(33, 127) if not chr(c).isalnum() and chr(c) not in "%'")
_BETWEEN: Final = " dlbetween "  # a phrase goes on from the prompt into the text, but not into the title
_FOLLOWED: Final = "prompt, given_text, text, title, note, tags"


def _sqlite_text(row: str) -> str:
    tags = f"coalesce((SELECT group_concat('dltag' || hex(CAST(value AS BLOB)), ' ') FROM json_each({row}.tags)), '')"
    run = " || char(10) || ".join(f"coalesce({row}.{name}, '')" for name in ("prompt", "given_text", "text"))
    person = [f"coalesce({row}.{name}, '')" for name in ("title", "note")]
    return f" || '{_BETWEEN}' || ".join([run, *person, tags])


_ENTER: Final = f"""
    INSERT INTO run_search_rows (run_id) VALUES (new.id);
    INSERT INTO run_search (rowid, words)
        SELECT number, {_sqlite_text("new")} FROM run_search_rows WHERE run_id = new.id;"""
_LEAVE: Final = f"""
    INSERT INTO run_search (run_search, rowid, words)
        SELECT 'delete', number, {_sqlite_text("old")} FROM run_search_rows WHERE run_id = old.id;
    DELETE FROM run_search_rows WHERE run_id = old.id;"""
_SQLITE_TABLES: Final = (
    "CREATE TABLE run_search_rows (number INTEGER PRIMARY KEY, run_id VARCHAR(36) NOT NULL UNIQUE)",
    # The noncharacter begins the escape of what a database cannot hold; unicode61 would take it for a letter. Short
    # beginnings have indices of their own: thousands of words can begin so, whose places would be put in order first.
    """
    CREATE VIRTUAL TABLE run_search USING fts5(
        words, content='', prefix='1 2 3', tokenize="unicode61 remove_diacritics 0 separators '\ufdd0'")
    """,
)
_SQLITE_TRIGGERS: Final = (
    f"CREATE TRIGGER run_search_enter AFTER INSERT ON runs BEGIN {_ENTER} END",
    f"CREATE TRIGGER run_search_change AFTER UPDATE OF {_FOLLOWED} ON runs BEGIN {_LEAVE} {_ENTER} END",
    f"CREATE TRIGGER run_search_leave AFTER DELETE ON runs BEGIN {_LEAVE} END",
)
_SQLITE_FILL: Final = (
    "INSERT INTO run_search_rows (run_id) SELECT id FROM runs ORDER BY id",
    f"INSERT INTO run_search (rowid, words) SELECT number, {_sqlite_text('runs')} "
    "FROM run_search_rows JOIN runs ON runs.id = run_id",
)

# A tsvector holds at most 1 MB, hence `left`. Punctuation goes first: the parser would take `a/b` for one word.
_POSTGRESQL: Final = (
    f"""
    CREATE FUNCTION run_search_words(run runs) RETURNS tsvector LANGUAGE sql STABLE AS $$
        SELECT to_tsvector('simple', translate(
            concat_ws('{_BETWEEN}',
                concat_ws(chr(10), left(run.prompt, 100000), left(run.given_text, 100000), left(run.text, 100000)),
                coalesce(left(run.title, 1000), ''), coalesce(left(run.note, 10000), '')),
            '{_PUNCTUATION}' || chr(37) || chr(39), repeat(' ', {len(_PUNCTUATION) + 2}))
            || '{_BETWEEN}' || coalesce((
                SELECT string_agg('dltag' || encode(convert_to(tag, 'UTF8'), 'hex'), ' ')
                FROM json_array_elements_text(run.tags) AS tag), ''))
    $$
    """,
    """
    CREATE TABLE run_search (
        run_id VARCHAR(36) PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE, words tsvector NOT NULL)
    """,
    "CREATE INDEX ix_run_search_words ON run_search USING gin (words)",
    """
    CREATE FUNCTION run_search_follow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO run_search VALUES (new.id, run_search_words(new))
            ON CONFLICT (run_id) DO UPDATE SET words = excluded.words;
        RETURN NULL;
    END $$
    """,
    f"""
    CREATE TRIGGER run_search_follow AFTER INSERT OR UPDATE OF {_FOLLOWED} ON runs
        FOR EACH ROW EXECUTE FUNCTION run_search_follow()
    """,
    "INSERT INTO run_search SELECT id, run_search_words(runs) FROM runs",
)
_SQLITE_DROP: Final = (
    *(f"DROP TRIGGER IF EXISTS run_search_{name}" for name in ("enter", "change", "leave")),
    "DROP TABLE IF EXISTS run_search",
    "DROP TABLE IF EXISTS run_search_rows",
)
_POSTGRESQL_DROP: Final = (
    "DROP TRIGGER run_search_follow ON runs",
    "DROP FUNCTION run_search_follow()",
    "DROP TABLE run_search",
    "DROP FUNCTION run_search_words(runs)",
)


def create(connection: Connection) -> None:
    """Make the index of all runs that there are, and the triggers that keep it."""
    is_sqlite = connection.dialect.name == "sqlite"
    _execute(connection, (*_SQLITE_TABLES, *_SQLITE_TRIGGERS, *_SQLITE_FILL) if is_sqlite else _POSTGRESQL)


def drop(connection: Connection) -> None:
    """Undo `create`."""
    _execute(connection, _SQLITE_DROP if connection.dialect.name == "sqlite" else _POSTGRESQL_DROP)


def restore_on_sqlite(connection: Connection) -> None:
    """Make the index anew where a batch migration, which drops and renames `runs`, took the triggers away."""
    names = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'run_search%'"
    if not inspect(connection).has_table("run_search_rows") or connection.scalar(text(names)) == len(_SQLITE_TRIGGERS):
        return
    drop(connection)
    create(connection)


def _execute(connection: Connection, statements: tuple[str, ...]) -> None:
    for statement in statements:
        connection.exec_driver_sql(statement)
