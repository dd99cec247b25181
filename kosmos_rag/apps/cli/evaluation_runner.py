"""What the commands of `eval` share: their options, the set that is asked, and the engines that are asked."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    not_blank,
    overrides,
)
from kosmos_rag.apps.cli.options import ReadOptions
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.config import Settings
    from kosmos_rag.core.protocols import Embedder
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.evaluation import BeirSet, Evaluation, QuestionSet

SetArgument = Annotated[
    str, typer.Argument(metavar="SET", help="A question file, or the folder or URL of a set in the BEIR layout.")
]
SplitOption = Annotated[str, typer.Option("--split", metavar="NAME", help="Of a BEIR set: qrels/NAME.tsv.")]
GridOption = Annotated[
    list[str] | None,
    typer.Option("--grid", metavar="KEY=VALUE,VALUE", help="Try each value; several: each combination."),
]
AnswersOption = Annotated[
    bool, typer.Option("--answers", help="Have the questions answered too: citations and refusals are measured.")
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file that is written.")]
Tell = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class AskingOptions(ReadOptions):
    """What is asked, of whom, as whom, and by which settings."""

    answers: AnswersOption = False
    split: SplitOption = "test"
    principal: PrincipalOption = None


@dataclass(kw_only=True)
class Asking:
    """Asks a set under one configuration after the other. The model is loaded once where they share it."""

    config: Path | None
    given: dict[str, Any]
    asked: "QuestionSet"
    beir: "BeirSet | None"
    tenant: str
    collection: str | None = None
    principals: tuple[str, ...]
    answers: bool = False
    tell: Tell | None = None
    store: bool = True
    _embedders: "dict[str, Embedder]" = field(default_factory=dict)
    _ingested: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, named: str, options: AskingOptions) -> Self:
        """Read the set that is named. Raises RequestError, and SourceError where it cannot be fetched."""
        from kosmos_rag.core.types import EVERYONE
        from kosmos_rag.evaluation import load_beir, read_questions
        from kosmos_rag.evaluation.download import fetch_set, is_url

        settings, beir = options.load_settings(), None
        held = tuple(
            not_blank(options.principal, "--principal", remedy="name a principal, --principal department:sales")
        )
        if is_url(named) or Path(named).is_dir():
            if held or options.collection is not None:
                raise RequestError("a BEIR set is a tenant of its own; leave --principal and --collection out")
            split = options.split
            folder = fetch_set(named, settings.ingestion, split=split) if is_url(named) else Path(named)
            beir = load_beir(folder, split=split)
        return cls(
            config=options.config,
            given=overrides(options.set_),
            asked=beir.questions if beir else read_questions(Path(named)),
            beir=beir,
            tenant=options.tenant,
            collection=options.collection,
            principals=held or (EVERYONE,),
            answers=options.answers,
        )

    def settings(self, changes: "dict[str, Any]") -> "Settings":
        """Return the settings with changes. Raises ConfigError."""
        from kosmos_rag.core.config import Settings

        return Settings.load(self.config, overrides={**self.given, **changes})

    def told(self, changes: "Mapping[str, Any]") -> dict[str, Any]:
        """Return what a configuration has beyond files and environment: what `--set` says of `rag`, and changes."""
        return {key: value for key, value in self.given.items() if key.startswith("rag.")} | {**changes}

    def ask(self, changes: "dict[str, Any]", asked: "QuestionSet | None" = None) -> "Evaluation":
        """Ask the set, or a part of it, under changed settings, and store what came of it where that is wanted."""
        from kosmos_rag.core.types import EVALUATOR
        from kosmos_rag.engine.engine import Engine
        from kosmos_rag.evaluation import Evaluations, Plan, evaluate, for_evaluation
        from kosmos_rag.evaluation.grid import label, require_applied
        from kosmos_rag.storage.tenants import tenant

        wanted = self.settings(changes)
        settings = for_evaluation(wanted)
        key = json.dumps([settings.rag.embedding.model_dump(), settings.models.model_dump(mode="json")])
        with Engine(settings, embedder=self._embedders.get(key)) as engine:
            self._embedders[key] = engine.parts.embedder
            name = self._ingest(engine, settings)
            owner, database = tenant(name), engine.parts.database
            goes_by = engine.parts.pipelines.get(database.app, owner, self.collection).settings
            require_applied(wanted, goes_by, changes)
            engine.warm_up()
            plan = Plan(
                label=label(self.told(changes)),
                settings=goes_by,
                answers=self.answers,
                collection=self.collection,
                principals=self.principals,
            )
            scope = engine.tenant(name, principals=self.principals, collection=self.collection, subject=EVALUATOR)
            done = evaluate(scope, asked or self.asked, plan, self.tell)
            if self.store:
                Evaluations(database, owner).add(done)
        return done

    def _ingest(self, engine: "Engine", settings: "Settings") -> str:
        """Bring a BEIR set into its tenant, and return whose documents are asked."""
        from kosmos_rag.evaluation.beir import sync_corpus, tenant_of

        if self.beir is None:
            return self.tenant
        name = tenant_of(self.asked, settings)
        if name not in self._ingested:
            sync_corpus(engine.tenant(name), self.beir, self.tell)
            self._ingested.add(name)
        return name


def require_new(output: Path) -> None:
    """Raise RequestError where a file is there already, or its folder is not: before the work, and not after it."""
    if output.exists():
        raise RequestError(f"{output} is there already; name another file by --output, or take it away")
    if not output.absolute().parent.is_dir():
        raise RequestError(f"there is no folder for {output}; make it, or name another file by --output")


def write(output: Path, text: str) -> None:
    """Write a file. Raises RequestError where that cannot be."""
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{output} cannot be written: {error.strerror}; name another by --output") from error
