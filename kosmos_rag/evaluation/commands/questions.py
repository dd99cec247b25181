"""kosmos-rag eval questions: generate a question file from documents."""

from pathlib import Path
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    LimitOption,
    PrincipalOption,
    console,
    print_json,
    progress,
    require_not_blank,
)
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.evaluation.commands.runner import OutputOption, require_new, write


@command
def questions(
    output: OutputOption = Path("questions.yaml"),
    limit: LimitOption = 100,
    by_model: Annotated[bool, typer.Option("--model", help="Generate questions with the language model.")] = False,
    principal: PrincipalOption = None,
    *,
    common: ReadOptions,
) -> None:
    """Generate a question file from a tenant's documents."""
    from kosmos_rag.core.types import EVERYONE
    from kosmos_rag.evaluation.offline.questions import dump_questions
    from kosmos_rag.evaluation.offline.synthetic import generate_questions, generate_with_model, read_chunks

    with common.open_engine() as engine, progress(visible=not common.as_json) as on_progress:
        require_new(output)
        principals = require_not_blank(
            principal, "--principal", remedy="name a principal, --principal department:sales"
        )
        tenant = engine.tenant(common.tenant, principals=principals or (EVERYONE,), collection=common.collection)
        if tenant.audited:
            raise RequestError(
                "these documents have an audit log, which cannot record that they are read as a whole; "
                "name a collection without one with --collection, or write questions by hand"
            )
        chunks = read_chunks(tenant)
        if by_model:
            if engine.language_model is None:
                raise ConfigError("--model needs language_model.url; set it, or omit --model")
            generated = generate_with_model(engine.language_model, chunks, limit, on_progress)
        else:
            generated = generate_questions(chunks, limit)
        if not generated:
            raise RequestError(
                f"the documents of tenant {common.tenant!r} yield no questions; try --model, or write some by hand"
            )
        write(output, dump_questions(generated))
    kinds = {kind: sum(origin == kind for _, origin in generated) for kind in sorted({kind for _, kind in generated})}
    if common.as_json:
        print_json({"written": str(output), "questions": len(generated), "made_by": kinds})
    else:
        summary = ", ".join(f"{count} by {kind}" for kind, count in kinds.items())
        console().print(f"written: {output}, {len(generated)} questions ({summary})")
