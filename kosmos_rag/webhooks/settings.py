"""The section `webhooks`."""

from typing import Annotated

from annotated_types import Gt, Le
from pydantic import Field, SecretStr, Strict

from kosmos_rag.core.config.sections import UrlSettings
from kosmos_rag.core.section import Count

SECTION = "webhooks"


class WebhookSettings(UrlSettings):
    """Delivery of events to subscribers: to which hosts, and how often."""

    timeout_s: Annotated[float, Strict(), Gt(0), Le(300)] = Field(
        default=15.0, description="Time limit of one delivery in seconds."
    )
    signing_key: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="The secrets of all subscribers are derived from this key, of 32 characters or more; "
        "null: nothing is delivered.",
    )
    poll_s: Annotated[float, Strict(), Gt(0), Le(3600)] = Field(
        default=5.0, description="Seconds between two looks for new events, for each subscriber."
    )
    max_attempts: Count = Field(
        default=15,
        description="Attempts after which an event that its subscriber answers with an error is a dead letter.",
    )
    max_subscribers: Count = Field(default=20, description="Most subscribers of a tenant.")
