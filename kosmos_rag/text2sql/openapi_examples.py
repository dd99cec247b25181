"""Examples of bodies for the OpenAPI document, by name of their schema."""

from typing import Any

_EXAMPLE = {
    "id": "query_example:programs.9f2d3c1b7a605e48",
    "database": "programs",
    "question": "How many programs are retired?",
    "sql": "SELECT count(*) FROM programs WHERE lifecycle = 'retired'",
    "tables": ["programs"],
    "columns": ["programs.lifecycle"],
}
EXAMPLES: dict[str, Any] = {
    "ExampleRequest": {
        **{name: _EXAMPLE[name] for name in ("question", "sql", "database")},
        "readers": ["department:hr"],
    },
    "QueryExample": _EXAMPLE,
    "QueryExamples": {"examples": [_EXAMPLE]},
    "GroundingRequest": {"question": "success count of the forest fire program", "tables": 3},
    "Grounding": {
        "question": "success count of the forest fire program",
        "database": "programs",
        "prompt": "Database programs (postgresql)\nprogram_statistics(program_id integer -> programs.id, …)",
        "tokens": 31,
        "tables": [
            {"database": "programs", "table": "program_statistics", "score": 2.4, "parts": {"words": 0.8, "named": 0.3}}
        ],
        "schema_refs": [
            {
                "name": "ProgramStatistics.success_count",
                "database": "programs",
                "table": "program_statistics",
                "model": "ProgramStatistics",
                "column": "success_count",
                "score": 2.9,
                "parts": {"words": 0.9, "named": 0.5},
            }
        ],
        "join_hints": ["program_statistics.program_id -> programs.id"],
        "recipes": [],
        "examples": [],
        "ambiguities": [],
        "filters": [],
        "entities": {
            "quoted": [],
            "values": [],
            "misspelt": [],
            "names": [],
            "dates": [],
            "time_ranges": [],
            "numbers": [],
            "bounds": [],
            "comparisons": ["count"],
        },
        "selection": None,
        "left_out": [],
        "docs": [{"id": "schema_model:app.ProgramStatistics", "kind": "schema_model", "scores": None}],
        "warnings": [],
        "milliseconds": 23.5,
    },
}
_QUERY = {
    "sql": "SELECT sum(s.success_count) FROM program_statistics AS s LIMIT :kosmos_rows",
    "columns": ["sum"],
    "tables": ["program_statistics"],
    "rows": [[1204]],
    "truncated": False,
    "milliseconds": 3.1,
}
EXAMPLES |= {
    "DatabaseQuery": {
        "sql": "SELECT description FROM programs WHERE name = :name",
        "database": "programs",
        "parameters": {"name": "forest fire"},
    },
    "QueryResult": _QUERY,
    "DatabaseQuestion": {"question": "How many successes did all programs have?"},
    "SqlAnswer": {
        "question": "How many successes did all programs have?",
        "database": "programs",
        "refused": False,
        "attempts": [{"sql": "SELECT sum(s.success_count) FROM program_statistics s", "code": None, "error": None}],
        "result": _QUERY,
        "citations": [{"id": "schema_model:app.ProgramStatistics", "table": "program_statistics", "column": None}],
        "schema_refs": EXAMPLES["Grounding"]["schema_refs"],
        "join_hints": [],
        "filters": [],
        "ambiguities": [],
        "warnings": [],
    },
}
