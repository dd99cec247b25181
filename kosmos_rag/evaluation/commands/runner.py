"""Shared by the commands of `eval`: options, and the runner of evaluations."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from kosmos_rag.apps.cli.common import (
    PrincipalOption,
    overrides,
    require_not_blank,
    warm_up,
)
from kosmos_rag.apps.cli.options import ReadOptions
from kosmos_rag.core.errors import RequestError

if TYPE_CHECKING:
    from kosmos_rag.core.config import Settings
    from kosmos_rag.core.protocols import Embedder
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.engine.tenant import Tenant
    from kosmos_rag.evaluation.offline import BeirSet, Evaluation, QuestionSet

SetArgument = Annotated[
    str, typer.Argument(metavar="SET", help="Question file, folder or URL of a BEIR set, or `judged`.")
]
SplitOption = Annotated[str, typer.Option("--split", metavar="NAME", help="Split of a BEIR set: qrels/NAME.tsv.")]
GridOption = Annotated[
    list[str] | None,
    typer.Option(
        "--grid", metavar="KEY=VALUE,VALUE", help="Evaluate each value; may be repeated for all combinations."
    ),
]
AnswersOption = Annotated[
    bool, typer.Option("--answers", help="Answer the questions too, and measure citations and refusals.")
]
ReferenceArgument = Annotated[
    str, typer.Argument(metavar="EVALUATION", help="Prefix of an id, label, or latest; of another tenant: TENANT/ID.")
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")]
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationOptions(ReadOptions):
    """Options of an evaluation."""

    answers: AnswersOption = False
    split: SplitOption = "test"
    principal: PrincipalOption = None


@dataclass(kw_only=True)
class EvaluationRunner:
    """Evaluates configurations with a set of questions.

    Configurations with the same model share it.
    """

    config: Path | None
    setting_overrides: dict[str, Any]
    questions: "QuestionSet"
    beir: "BeirSet | None"
    tenant: str
    collection: str | None = None
    principals: tuple[str, ...]
    answers: bool = False
    on_progress: OnProgress | None = None
    store: bool = True
    gone_labels: list[str] | None = None
    """Labels whose place no document of the reader has, so that they count as not found; None before the first run."""
    _embedders: "dict[str, Embedder]" = field(default_factory=dict)
    _ingested_tenants: set[str] = field(default_factory=set)

    @classmethod
    def create(cls, set_name: str, options: EvaluationOptions) -> Self:
        """Create a runner for a set.

        Raises RequestError, and SourceError where the set cannot be fetched.
        """
        from kosmos_rag.core.types import EVERYONE
        from kosmos_rag.evaluation.offline import load_beir
        from kosmos_rag.evaluation.offline.download import fetch_set, is_url

        settings, beir = options.load_settings(), None
        principals = tuple(
            require_not_blank(options.principal, "--principal", remedy="name a principal, --principal department:sales")
        )
        if is_url(set_name) or Path(set_name).is_dir():
            if principals or options.collection is not None:
                raise RequestError("a BEIR set has a tenant of its own; omit --principal and --collection")
            split = options.split
            folder = fetch_set(set_name, settings.ingestion, split=split) if is_url(set_name) else Path(set_name)
            beir = load_beir(folder, split=split)
        return cls(
            config=options.config,
            setting_overrides=overrides(options.set_),
            questions=beir.questions if beir else _load_questions(set_name, options),
            beir=beir,
            tenant=options.tenant,
            collection=options.collection,
            principals=principals or (EVERYONE,),
            answers=options.answers,
        )

    def settings(self, changes: "dict[str, Any]") -> "Settings":
        """Load the settings with changes. Raises ConfigError."""
        from kosmos_rag.core.config import Settings

        return Settings.load(self.config, overrides={**self.setting_overrides, **changes})

    def describe_changes(self, changes: "Mapping[str, Any]") -> dict[str, Any]:
        """Return the differences to file and environment.

        These are the `rag` overrides of `--set`, and the changes.
        """
        return {key: value for key, value in self.setting_overrides.items() if key.startswith("rag.")} | {**changes}

    def evaluate_configuration(self, changes: "dict[str, Any]", questions: "QuestionSet | None" = None) -> "Evaluation":
        """Evaluate a configuration, and store the evaluation if `store` is set.

        Args:
            questions: the questions; None for the whole set.
        """
        from kosmos_rag.core.types import EVALUATOR
        from kosmos_rag.engine.engine import Engine
        from kosmos_rag.evaluation.monitor.labels import find_stale_labels_as_asked
        from kosmos_rag.evaluation.offline import Evaluations, Plan, evaluate, for_evaluation
        from kosmos_rag.evaluation.offline.grid import label, require_applied

        requested = self.settings(changes)
        settings = for_evaluation(requested)
        key = json.dumps([settings.rag.embedding.model_dump(), settings.models.model_dump(mode="json")])
        with Engine(settings, embedder=self._embedders.get(key)) as engine:
            self._embedders[key] = engine.embedder
            name = self._ingest(engine, settings)
            reader = engine.tenant(name, principals=self.principals, collection=self.collection, subject=EVALUATOR)
            effective = reader.effective_settings
            require_applied(requested, effective, changes)
            warm_up(engine)

            def open_reader(principals: tuple[str, ...]) -> "Tenant":
                return engine.tenant(name, principals=principals, collection=self.collection, subject=EVALUATOR)

            if self.gone_labels is None:
                judged = () if self.beir else self.questions.questions
                stale = find_stale_labels_as_asked(reader, judged, open_reader)
                self.gone_labels = [label.describe() for label in stale if label.problem == "gone"]
            plan = Plan(
                label=label(self.describe_changes(changes)),
                settings=effective,
                answers=self.answers,
                collection=self.collection,
                principals=self.principals,
                open_reader=open_reader,
            )
            evaluation = evaluate(reader, questions or self.questions, plan, self.on_progress)
            if self.store:
                Evaluations(reader).add(evaluation)
        return evaluation

    def _ingest(self, engine: "Engine", settings: "Settings") -> str:
        """Ingest a BEIR set into its tenant, once.

        Return the name of the tenant to search.
        """
        from kosmos_rag.evaluation.offline.beir import derive_tenant_name, sync_corpus

        if self.beir is None:
            return self.tenant
        name = derive_tenant_name(self.questions, settings)
        if name not in self._ingested_tenants:
            sync_corpus(engine.tenant(name), self.beir, self.on_progress)
            self._ingested_tenants.add(name)
        return name


def _load_questions(set_name: str, options: EvaluationOptions) -> "QuestionSet":
    """Return the questions of a file, or those that a person has accepted. Raises RequestError, DatabaseError."""
    from kosmos_rag.evaluation.judging.questions import JUDGED, JudgedQuestions
    from kosmos_rag.evaluation.offline import read_questions

    if set_name != JUDGED or Path(set_name).exists():
        return read_questions(Path(set_name))
    with options.open_engine() as engine:
        return JudgedQuestions(engine.tenant(options.tenant, collection=options.collection)).build_set()


def load_evaluation(engine: "Engine", tenant_name: str, reference: str) -> "Evaluation":
    """Load a stored evaluation. Raises RequestError.

    Args:
        tenant_name: The tenant of a reference without one.
        reference: Prefix of an id, label, or latest; of another tenant with its name and a slash before it.
    """
    from kosmos_rag.evaluation.offline import Evaluations

    owner, slash, name = reference.partition("/")
    store = Evaluations(engine.tenant(owner if slash else tenant_name))
    return store.get(name if slash else reference)


def base_file(config: Path | None, output: Path) -> str | None:
    """Return the path of the settings file, relative to the output.

    The result is None without one.
    """
    from kosmos_rag.core.config.loading import find_config_file

    config_file = find_config_file(config)
    return None if config_file is None else os.path.relpath(config_file.absolute(), output.absolute().parent)


def require_new(output: Path) -> None:
    """Raise RequestError where the file exists or its folder does not."""
    if output.exists():
        raise RequestError(f"{output} exists already; name another file with --output, or remove it")
    if not output.absolute().parent.is_dir():
        raise RequestError(f"the folder of {output} does not exist; create it, or name another file with --output")


def write(output: Path, text: str) -> None:
    """Write a file. Raises RequestError where it cannot be written."""
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{output} cannot be written: {error.strerror}; name another file with --output") from error
