"""kosmos-rag webhooks: subscribers to the events of a tenant."""

from typing import Annotated

import typer

from kosmos_rag.apps.cli.common import console, print_json, table
from kosmos_rag.apps.cli.options import TenantOptions, command
from kosmos_rag.core.config.display import one_line

NameArgument = Annotated[str, typer.Argument(help="Name of the subscriber.")]

app = typer.Typer(help="Add, list, pause and remove subscribers to the events of a tenant.")


@app.command("add")
@command
def add(
    name: NameArgument,
    url: Annotated[str, typer.Argument(help="Where events are sent to.")],
    event_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only events of this type; may be repeated."),
    ] = None,
    of_collection: Annotated[
        list[str] | None,
        typer.Option("--of", metavar="COLLECTION", help="Only events of this collection; may be repeated."),
    ] = None,
    *,
    common: TenantOptions,
) -> None:
    """Add a subscriber and print its secret."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        store = SubscriberStore(tenant)
        subscriber, secret = store.add(name, url, types=event_type or (), collections=of_collection or ())
    if common.as_json:
        print_json({"subscriber": subscriber.to_dict(), "secret": secret})
    else:
        typer.echo(secret)


@app.command("list")
@command
def list_(*, common: TenantOptions) -> None:
    """List the subscribers."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        subscribers = SubscriberStore(tenant).infos()
    if common.as_json:
        print_json({"subscribers": [subscriber.to_dict() for subscriber in subscribers]})
        return
    rows = table("name", "state", "url", "position", "waiting since", "dead letters", "problem", right={"position"})
    for subscriber in subscribers:
        waiting = subscriber.waiting_since
        rows.add_row(
            subscriber.name,
            subscriber.state,
            one_line(subscriber.url),
            str(subscriber.position),
            "" if waiting is None else waiting.isoformat(timespec="seconds"),
            str(subscriber.dead_letters),
            one_line(subscriber.describe_problem() or ""),
        )
    console().print(rows if subscribers else f"tenant {common.tenant} has no subscribers")


@app.command("pause")
@command
def pause(name: NameArgument, *, common: TenantOptions) -> None:
    """Deliver no more events to a subscriber; they wait."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        SubscriberStore(tenant).pause(name)
    _report(common, name, "paused")


@app.command("resume")
@command
def resume(
    name: NameArgument,
    skip: Annotated[
        bool, typer.Option("--skip", help="Make the event that cannot be delivered a dead letter first.")
    ] = False,
    *,
    common: TenantOptions,
) -> None:
    """Deliver events again, at once."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        SubscriberStore(tenant).resume(name, skip=skip)
    _report(common, name, "active")


@app.command("remove")
@command
def remove(name: NameArgument, *, common: TenantOptions) -> None:
    """Remove a subscriber with its dead letters."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        SubscriberStore(tenant).remove(name)
    _report(common, name, "removed")


@app.command("secret")
@command
def secret(
    name: NameArgument,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new one; requests are signed by both for a day.")
    ] = False,
    *,
    common: TenantOptions,
) -> None:
    """Print the secret of a subscriber."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        text = SubscriberStore(tenant).show_secret(name, rotate=rotate)
    if common.as_json:
        print_json({"subscriber": name, "secret": text})
    else:
        typer.echo(text)


@app.command("dead-letters")
@command
def dead_letters(name: NameArgument, *, common: TenantOptions) -> None:
    """List the events that a subscriber did not accept, the oldest first."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        letters = SubscriberStore(tenant).list_dead_letters(name)
    if common.as_json:
        print_json({"dead_letters": [letter.to_dict() for letter in letters]})
        return
    rows = table("sequence", "type", "collection", "attempts", "error", "at", right={"sequence", "attempts"})
    for letter in letters:
        at = letter.failed_at.isoformat(timespec="seconds")
        error = one_line(letter.error)
        rows.add_row(str(letter.sequence), letter.type, letter.collection, str(letter.attempts), error, at)
    console().print(rows if letters else f"subscriber {name} has no dead letters")


@app.command("redeliver")
@command
def redeliver(
    name: NameArgument,
    sequence: Annotated[
        int | None, typer.Option("--sequence", min=1, max=2**63 - 1, help="Only the event of this sequence number.")
    ] = None,
    *,
    common: TenantOptions,
) -> None:
    """Send dead letters again."""
    from kosmos_rag.webhooks.store import SubscriberStore

    with common.open_tenant() as tenant:
        count = SubscriberStore(tenant).redeliver(name, sequence)
    if common.as_json:
        print_json({"subscriber": name, "redelivered": count})
    else:
        console().print(f"{count} dead letters of subscriber {name} are sent again")


def _report(common: TenantOptions, name: str, state: str) -> None:
    if common.as_json:
        print_json({"subscriber": name, "state": state})
    else:
        console().print(f"subscriber {name} of tenant {common.tenant} is {state}")
