"""The section `metering`."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict
from pydantic.types import AllowInfNan

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.section import Count, Section, Share, Switch

Period: TypeAlias = Literal["hour", "day", "month"]
EVERY_TENANT = "*"
"""Means each tenant without a limit of its own."""
Price = Annotated[float, Strict(), Ge(0), AllowInfNan(False)]


class ModelPrice(BaseModel):
    """The price of a model."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    input: Price = 0.0
    """Of a million tokens that it reads, embedded ones too."""
    output: Price = 0.0
    """Of a million tokens that it writes."""
    passages: Price = 0.0
    """Of a thousand passages that it reranks."""


class UsageLimit(BaseModel):
    """What a tenant or a reader may use in a period."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    per: Period = "month"
    questions: Count | None = None
    tokens: Count | None = None
    """Of language models, read and written."""
    cost: Price | None = None
    documents: Count | None = None
    bytes: Annotated[int, Strict(), Ge(1)] | None = None


def _check_holder(key: str) -> str:
    tenant, slash, subject = key.partition("/")
    if slash and not subject:
        raise ValueError(f"{key!r} names no reader after '/': write {tenant} for the tenant, or {tenant}/key:NAME")
    try:
        return key if tenant == EVERY_TENANT else validate_name("tenant", tenant) + slash + subject
    except RequestError as error:
        raise ValueError(f"{error}; * is each tenant without a limit of its own") from error


Holder = Annotated[str, AfterValidator(_check_holder)]
"""Whose limit it is: a tenant or `*`, and `/subject` for one of its readers."""


class MeteringSettings(Section):
    """What is recorded of the use of tenants, and what it costs."""

    enabled: Switch = Field(default=True, description="Record what tenants use.")
    flush_s: Annotated[float, Strict(), Gt(0), Le(3600)] = Field(
        default=10.0, description="Seconds until recorded usage is written to the database, in one batch."
    )
    keep_days: Count = Field(default=400, description="Days after which maintenance deletes usage.")
    currency: str = Field(default="USD", min_length=1, max_length=10, description="Currency of the prices.")
    prices: Mapping[str, ModelPrice] = Field(
        default={},
        description="Price by name of a model: `input` and `output` of a million tokens, `passages` of a thousand.",
    )
    limits: Mapping[Holder, UsageLimit] = Field(
        default={},
        description="Limit by tenant, or by `tenant/subject`; `*` is each tenant without one. docs/metering.md",
    )
    warn_at: Share = Field(default=0.8, description="Share of a limit from which on a warning is logged.")
