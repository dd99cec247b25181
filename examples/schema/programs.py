"""The example schema: programs, their runs and results, and decisions of local language models about them."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, DateTime, Enum, ForeignKey, ForeignKeyConstraint, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """What all models share."""


class RunStatus(StrEnum):
    """How far a run has come."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


_STATUS = Enum(RunStatus, name="run_status", values_callable=lambda members: [member.value for member in members])


class User(Base):
    """Somebody who writes or runs programs."""

    __tablename__ = "users"
    __table_args__ = ({"comment": "People who write and run programs"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    user_name: Mapped[str] = mapped_column(String(80), unique=True, comment="Name to log in with")
    email: Mapped[str | None] = mapped_column(String(200), comment="Where notices are sent")
    role: Mapped[str] = mapped_column(String(20), comment="What the user may do")
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    last_login_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class ProgramCategory(Base):
    """A category in the tree of categories."""

    __tablename__ = "program_categories"
    __table_args__ = ({"comment": "Tree of categories that programs are filed under"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(80))
    parent_id: Mapped[int | None] = mapped_column(
        ForeignKey("program_categories.id"), comment="Category above this one"
    )


class Program(Base):
    """A program, with all of its variants."""

    __tablename__ = "programs"
    __table_args__ = (
        CheckConstraint("lifecycle IN ('draft', 'active', 'retired')", name="lifecycle_known"),
        {"comment": "Programs that can be run"},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(120), unique=True, comment="What the program is called: forest fire")
    description: Mapped[str | None] = mapped_column(Text, comment="What the program is for")
    lifecycle: Mapped[str] = mapped_column(String(20), server_default="draft", comment="Whether it is in use")
    category_id: Mapped[int | None] = mapped_column(ForeignKey("program_categories.id"))
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"), comment="Who answers for the program")
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))

    variants: Mapped[list["ProgramVariant"]] = relationship(back_populates="program")
    statistics: Mapped[list["ProgramStatistics"]] = relationship(back_populates="program")


class ProgramVariant(Base):
    """Another way to do what a program does."""

    __tablename__ = "program_variants"
    __table_args__ = (UniqueConstraint("program_id", "name"), {"comment": "Variants of programs"})

    id: Mapped[int] = mapped_column(primary_key=True)
    program_id: Mapped[int] = mapped_column(ForeignKey("programs.id"))
    name: Mapped[str] = mapped_column(String(120), comment="What the variant is called")
    parameters: Mapped[str | None] = mapped_column(Text, comment="Arguments that differ from the program's")
    is_default: Mapped[bool] = mapped_column(comment="Whether it runs when no variant is named")
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    program: Mapped[Program] = relationship(back_populates="variants")


class ProgramStatistics(Base):
    """How a program, or one of its variants, has done so far."""

    __tablename__ = "program_statistics"
    __table_args__ = (
        UniqueConstraint("program_id", "variant_id"),
        {"comment": "Counts and averages over the runs of a program; a row without variant is about the base"},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    program_id: Mapped[int] = mapped_column(ForeignKey("programs.id"))
    variant_id: Mapped[int | None] = mapped_column(ForeignKey("program_variants.id"))
    usage_count: Mapped[int] = mapped_column(comment="How many times it was run")
    success_count: Mapped[int] = mapped_column(comment="Runs that succeeded")
    failure_count: Mapped[int] = mapped_column(comment="Runs that failed")
    avg_execution_time: Mapped[float | None] = mapped_column(comment="Mean run time in seconds")
    max_execution_time: Mapped[float | None] = mapped_column(comment="Longest run time in seconds")
    last_executed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True), comment="When it last ran")
    updated_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))

    program: Mapped[Program] = relationship(back_populates="statistics")


class Machine(Base):
    """A computer that programs run on."""

    __tablename__ = "machines"
    __table_args__ = ({"comment": "Computers that programs run on"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    hostname: Mapped[str] = mapped_column(String(120))
    region: Mapped[str] = mapped_column(String(40), comment="Where it stands")
    memory_gb: Mapped[int] = mapped_column(comment="Memory in gigabytes")
    cpu_count: Mapped[int] = mapped_column(comment="Processor cores")


class ProgramRun(Base):
    """One run of a program."""

    __tablename__ = "program_runs"
    __table_args__ = ({"comment": "Every run of a program, with its outcome"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    program_id: Mapped[int] = mapped_column(ForeignKey("programs.id"))
    variant_id: Mapped[int | None] = mapped_column(ForeignKey("program_variants.id"))
    machine_id: Mapped[int | None] = mapped_column(ForeignKey("machines.id"))
    started_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"), comment="Who started the run")
    retry_of: Mapped[int | None] = mapped_column(ForeignKey("program_runs.id"), comment="Failed run that this repeats")
    status: Mapped[RunStatus] = mapped_column(_STATUS, comment="How far the run has come")
    exit_code: Mapped[int | None] = mapped_column(comment="What the process returned; 0 is success")
    error_message: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    duration_ms: Mapped[int | None] = mapped_column(comment="How long the run took, in milliseconds")


class RunOutput(Base):
    """A file that a run wrote."""

    __tablename__ = "run_outputs"
    __table_args__ = ({"comment": "Files that runs wrote"},)

    run_id: Mapped[int] = mapped_column(ForeignKey("program_runs.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, comment="Counts the files of a run from 1")
    file_name: Mapped[str] = mapped_column(String(200))
    size_bytes: Mapped[int] = mapped_column(comment="Size of the file in bytes")


class OutputReview(Base):
    """What somebody thinks of a file that a run wrote."""

    __tablename__ = "output_reviews"
    __table_args__ = (
        ForeignKeyConstraint(["run_id", "position"], ["run_outputs.run_id", "run_outputs.position"]),
        {"comment": "Reviews of files that runs wrote"},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int]
    position: Mapped[int]
    reviewer_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    rating: Mapped[int] = mapped_column(comment="1 is worst, 5 is best")
    remark: Mapped[str | None] = mapped_column(Text)
    reviewed_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Tag(Base):
    """A word that programs are marked with."""

    __tablename__ = "tags"
    __table_args__ = ({"comment": "Words that programs are marked with"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(String(40), unique=True)


class ProgramTag(Base):
    """That a program is marked with a tag."""

    __tablename__ = "program_tags"
    __table_args__ = ({"comment": "Which programs are marked with which tags"},)

    program_id: Mapped[int] = mapped_column(ForeignKey("programs.id"), primary_key=True)
    tag_id: Mapped[int] = mapped_column(ForeignKey("tags.id"), primary_key=True)


class ProgramSchedule(Base):
    """When a program runs by itself."""

    __tablename__ = "program_schedules"
    __table_args__ = ({"comment": "When programs run by themselves"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    program_id: Mapped[int] = mapped_column(ForeignKey("programs.id"))
    cron_expression: Mapped[str] = mapped_column(String(80), comment="When it is due, as cron writes it")
    is_enabled: Mapped[bool] = mapped_column(comment="Whether it is switched on")
    next_run_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True), comment="When it is due next")


class LocalLLMModel(Base):
    """A language model on our own machines."""

    __tablename__ = "local_llm_models"
    __table_args__ = ({"comment": "Language models that run on our own machines"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(120), unique=True)
    parameter_count_b: Mapped[float] = mapped_column(comment="Size of the model in billions of parameters")
    context_length: Mapped[int] = mapped_column(comment="Tokens that the model reads at once")
    quantization: Mapped[str | None] = mapped_column(String(20), comment="How its weights are stored: q4, q8, f16")


class LocalLLMDecisionRun(Base):
    """A decision that a local language model was asked for."""

    __tablename__ = "local_llm_decision_runs"
    __table_args__ = ({"comment": "Decisions that local language models were asked for"},)

    id: Mapped[int] = mapped_column(primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("local_llm_models.id"))
    program_id: Mapped[int | None] = mapped_column(ForeignKey("programs.id"), comment="Program that it is about")
    status: Mapped[RunStatus] = mapped_column(_STATUS, comment="How far the decision has come")
    decision: Mapped[str | None] = mapped_column(Text, comment="What the model decided")
    confidence: Mapped[float | None] = mapped_column(comment="How sure the model was, 0 to 1")
    prompt_tokens: Mapped[int | None] = mapped_column(comment="Tokens that the model read")
    completion_tokens: Mapped[int | None] = mapped_column(comment="Tokens that the model wrote")
    latency_ms: Mapped[int | None] = mapped_column(comment="How long the answer took, in milliseconds")
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    completed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
