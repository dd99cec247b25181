"""The section `scim`."""

from typing import Literal

from pydantic import Field

from kosmos_rag.core.section import Count, Section, Switch


class ScimSettings(Section):
    """Users and groups that an identity provider writes by SCIM 2.0."""

    enabled: Switch = Field(
        default=False, description="Serve /scim/v2, and add the groups of its users to their principals."
    )
    subject: Literal["user_name", "external_id"] = Field(
        default="user_name",
        description="What is equal to the subject of a token: userName or externalId of a user.",
    )
    unknown: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="What happens to a token whose subject is no user: refuse it, or allow what the token says.",
    )
    max_page: Count = Field(default=200, description="Most users or groups of a page.")
