"""kosmos-rag eval questions: a question file made of one's own documents."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import (
    LimitOption,
    PrincipalOption,
    console,
    not_blank,
    print_json,
    progress,
)
from kosmos_rag.apps.cli.evaluation_runner import OutputOption, require_new, write
from kosmos_rag.apps.cli.options import ReadOptions, command
from kosmos_rag.core.errors import ConfigError, RequestError


@command
def questions(
    output: OutputOption = Path("questions.yaml"),
    limit: LimitOption = 100,
    by_model: Annotated[bool, typer.Option("--model", help="Let the model of language_model write them.")] = False,
    principal: PrincipalOption = None,
    *,
    common: ReadOptions,
) -> None:
    """Make questions of a tenant's documents: a canary for those who have none whose answers are known."""
    from kosmos_rag.core.types import EVERYONE
    from kosmos_rag.core.types.questions import dump_questions
    from kosmos_rag.evaluation.synthetic import generate_questions, generate_with_model, read_chunks
    from kosmos_rag.models.llm.client import ChatModel
    from kosmos_rag.storage.tenants import tenant as tenant_named

    with common.open_engine() as engine, progress(shown=not common.as_json) as tell:
        require_new(output)
        held = not_blank(principal, "--principal", remedy="name a principal, --principal department:sales")
        if engine.tenant(common.tenant, collection=common.collection).audited:
            raise RequestError(
                "an audit log is kept of these documents, and it has no record of who reads them whole; "
                "name a collection without one, --collection, or write questions by hand"
            )
        found = read_chunks(
            engine.parts.database.app, tenant_named(common.tenant), held or (EVERYONE,), common.collection
        )
        if by_model:
            if engine.settings.language_model.url is None:
                raise ConfigError("language_model.url is null, and --model needs one; name its server, or leave it out")
            with closing(ChatModel(engine.settings.language_model)) as model:
                made = generate_with_model(model, found, limit, tell)
        else:
            made = generate_questions(found, limit)
        if not made:
            raise RequestError(
                f"the documents of tenant {common.tenant!r} gave no question; try --model, or write some by hand"
            )
        write(output, dump_questions(made))
    kinds = {kind: sum(of == kind for _, of in made) for kind in sorted({kind for _, kind in made})}
    if common.as_json:
        print_json({"written": str(output), "questions": len(made), "made_by": kinds})
    else:
        told = ", ".join(f"{count} by {kind}" for kind, count in kinds.items())
        console().print(f"written: {output}, {len(made)} questions ({told})")
