"""Read the export of a Slack workspace.

It has a folder of JSON files for each channel, and the users in users.json.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kosmos_rag.parsing.archives.members import Member
from kosmos_rag.parsing.compose import Composition

_DAY = re.compile(r"(?:.*/)?(?P<channel>[^/]+)/(?P<day>\d{4}-\d\d-\d\d)\.json", re.DOTALL)
_REFERENCE = re.compile(r"<(?P<sign>[@#!]?)(?P<target>[^<>|\n]+)(?:\|(?P<label>[^<>\n]*))?>")
_EVENTS = frozenset({"channel_join", "channel_leave", "group_join", "group_leave", "bot_add", "bot_remove"})
"""Kinds of messages that nobody has written."""


def is_slack_export(members: Sequence[Member]) -> bool:
    """Return whether an archive is the export of a workspace."""
    names = {member.name.rpartition("/")[2] for member in members}
    return {"users.json", "channels.json"} <= names and any(_DAY.fullmatch(member.name) for member in members)


def add_slack_export(composition: Composition, members: Sequence[Member]) -> None:
    """Add the messages of a workspace.

    Each channel is a section, and each of its days one below. Each message is a line with the name of its user and its
    time in UTC.
    """
    users = _read_users(members)
    current = ""
    for member in members:
        day = _DAY.fullmatch(member.name)
        lines = list(_message_lines(_read_json(member), users)) if day else []
        if not day or not lines:
            continue
        if day["channel"] != current:
            current = day["channel"]
            composition.add_heading(1, f"#{current}")
        composition.add_heading(2, day["day"])
        composition.add_block("\n".join(lines))


def _read_json(member: Member) -> Any:
    try:
        return json.loads(member.data)
    except (ValueError, RecursionError):
        return None


def _read_users(members: Sequence[Member]) -> dict[str, str]:
    file = next(member for member in members if member.name.rpartition("/")[2] == "users.json")
    entries = _read_json(file)
    users = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            profile = entry["profile"] if isinstance(entry.get("profile"), dict) else {}
            names = (profile.get("real_name"), entry.get("real_name"), profile.get("display_name"), entry.get("name"))
            users[entry["id"]] = next((name for name in names if isinstance(name, str) and name), entry["id"])
    return users


def _message_lines(messages: Any, users: Mapping[str, str]) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict) or message.get("subtype") in _EVENTS:
            continue
        words = _read_text(message, users)
        if words:
            user = message.get("user")
            author = users.get(str(user)) or message.get("username") or user or "bot"
            yield f"{author}, {_read_time(message.get('ts'))}: {words}"


def _read_text(message: Mapping[str, Any], users: Mapping[str, str]) -> str:
    text = message.get("text")
    words = _REFERENCE.sub(lambda match: _name_reference(match, users), text if isinstance(text, str) else "")
    words = words if words.strip() else " ".join(_list_texts(message.get("blocks"), ("text",)))
    previews = _list_texts(message.get("attachments"), ("pretext", "title", "text"))
    names = _list_texts(message.get("files"), ("name",))
    attached = f"(files: {', '.join(names)})" if names else ""
    return " ".join(f"{html.unescape(' '.join([words, *previews]))} {attached}".split())


def _list_texts(value: Any, fields: Sequence[str]) -> list[str]:
    """Return the texts of these fields in lists and objects at any depth, in their order."""
    texts: list[str] = []
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            texts += [part[name] for name in fields if isinstance(part.get(name), str)]
            pending += reversed([inner for inner in part.values() if isinstance(inner, dict | list)])
        elif isinstance(part, list):
            pending += reversed(part)
    return texts


def _name_reference(match: re.Match[str], users: Mapping[str, str]) -> str:
    label, target = match["label"], match["target"]
    match match["sign"]:
        case "@":
            return f"@{users.get(target) or label or target}"
        case "#":
            return f"#{label or target}"
        case "!":
            return f"@{label or target.partition('^')[0]}"
    return f"{label} ({target})" if label and label != target else target


def _read_time(stamp: Any) -> str:
    try:
        return datetime.fromtimestamp(float(stamp), UTC).strftime("%H:%M")
    except (TypeError, ValueError, OverflowError, OSError):
        return "time unknown"
