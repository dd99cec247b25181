"""The errors of schemas and of SQL statements; each is a `RequestError`."""

from kosmos_rag.core.errors import RequestError


class SchemaInvalid(RequestError):
    """The description of a database schema is invalid.

    `problems` are all of its faults, each with its path.
    """

    def __init__(self, subject: str, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{subject}: {'; '.join(problems)}; correct what is named")


class QueryRefused(RequestError):
    """The validation refuses an SQL statement.

    `code` is stable and meant for programs, the message for people. Codes: `unreadable`, `several_statements`,
    `not_a_query`, `locks`, `function`, `syntax`, `unknown_table`, `unknown_column`, `parameters`, `role`, `plan`,
    `failed`.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)
