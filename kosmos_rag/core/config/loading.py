"""Sources of values: a YAML file, the environment and arguments.

Each gives layers of dotted keys.
"""

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from kosmos_rag.core.config.display import mask_password, one_line, show
from kosmos_rag.core.config.keys import find_renamed_key, find_section_model, iter_keys, nearest_key
from kosmos_rag.core.errors import ConfigError

DEFAULT_FILE = Path("rag-config.yaml")
EXTENDS = "extends"
"""Key of the file that a file extends: a path relative to its own folder."""
FILE_VARIABLE = "KOSMOS_CONFIG"
PREFIX = "KOSMOS_"
DELIMITER = "__"
# The test suite keeps its own switches under this prefix.
_TEST_PREFIX = "KOSMOS_TEST_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a value came from; `str` of it reads `file rag-config.yaml`."""

    level: Literal["default", "file", "environment", "argument", "preset", "settings"]
    name: str | None = None
    """The path of the file or the name of the variable."""

    def __str__(self) -> str:
        return self.level if self.name is None else f"{self.level} {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingsLayer:
    """Values of one source by dotted key, with its faults."""

    origin: Origin
    values: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


class _PlainLoader(yaml.SafeLoader):
    """A safe YAML loader that refuses aliases and repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        # With aliases a few lines make an endless value; without them there is nothing to guard against.
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"an alias (*{alias.anchor}) is not allowed here", problem_mark=alias.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value} is given twice", problem_mark=key.start_mark
                    )
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def find_config_file(path: str | Path | None) -> Path | None:
    """Return the path of the configuration file; None without one.

    `path`, else the value of KOSMOS_CONFIG, else `rag-config.yaml` if it exists. An empty value is none.
    """
    if path is not None:
        return Path(path)
    if variable := os.environ.get(FILE_VARIABLE):
        return Path(variable)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def read_files(settings: type[BaseSettings], path: str | Path | None) -> list[SettingsLayer]:
    """Read the file that is used, after the files that it extends.

    Raises ConfigError where a file cannot be read or is not a YAML mapping, and where files extend each other in a
    circle.
    """
    file = find_config_file(path)
    named_by = f" (named by {FILE_VARIABLE})" if path is None and FILE_VARIABLE in os.environ else ""
    return [] if file is None else _file_layers(settings, file, named_by, ())


def _file_layers(
    settings: type[BaseSettings], path: Path, named_by: str, extended_by: tuple[Path, ...]
) -> list[SettingsLayer]:
    subject = f"configuration file {path}{named_by}"
    data = read_yaml(path, subject)
    absolute = path.expanduser().absolute()
    if absolute in extended_by:
        raise ConfigError(one_line(f"{subject} extends itself: remove one of the lines `{EXTENDS}: …`"))
    layer = SettingsLayer(origin=Origin(level="file", name=str(path)))
    if not isinstance(data, dict | None):
        sections = ", ".join(settings.model_fields)
        raise ConfigError(one_line(f"{subject} contains {show(data)}: its top level must be a mapping of {sections}"))
    base = (data or {}).pop(EXTENDS, None)
    if base is not None and not isinstance(base, str):
        raise ConfigError(one_line(f"{EXTENDS} of the {subject} is {show(base)}: give the path of one file"))
    _collect(settings, data or {}, layer)
    if base is None:
        return [layer]
    base_path = path.parent / Path(base).expanduser()
    return [*_file_layers(settings, base_path, f" (extended by {path})", (*extended_by, absolute)), layer]


def read_yaml(path: Path, subject: str) -> Any:
    """Read a YAML file without aliases and without keys given twice.

    Raises ConfigError that names the subject.
    """
    try:
        content = path.expanduser().read_bytes()
    # Not OSError alone: a path with a NUL, or with the home of a user who does not exist.
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        remedy = "give the path of a YAML file that is readable"
        raise ConfigError(one_line(f"{subject} cannot be read: {reason}: {remedy}")) from None
    try:
        return _parse_yaml(content)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ConfigError(one_line(f"{subject}{line}: {error.problem}: correct the YAML there")) from None
    # A wrong explicit tag or an impossible date makes PyYAML leak the error of its constructor.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        reason = mask_password(str(error).partition("\n")[0])
        raise ConfigError(one_line(f"{subject} is not YAML: {reason}: write it as UTF-8 text")) from None


def _parse_yaml(data: bytes) -> Any:
    loader = _PlainLoader(data)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_preset(settings: type[BaseSettings], name: str, values: Mapping[Any, Any]) -> SettingsLayer:
    """Read the values of a preset, nested as in a file.

    Args:
        settings: The settings class.
        name: Name of the preset, for messages.
    """
    layer = SettingsLayer(origin=Origin(level="preset", name=name))
    _collect(settings, values, layer)
    return layer


def read_environment(settings: type[BaseSettings]) -> list[SettingsLayer]:
    """Read the variables that start with KOSMOS_, one layer each.

    A deeper name comes later and wins.
    """
    source = EnvSettingsSource(settings)
    values = source.env_vars
    layers = []
    for name in sorted(os.environ, key=lambda name: (name.count(DELIMITER), name)):
        if not name.startswith(PREFIX) or name == FILE_VARIABLE or name.startswith(_TEST_PREFIX):
            continue
        # One variable at a time: only so does a value, or a fault, lead back to its variable.
        source.env_vars = {name.lower(): values[name.lower()]}
        layers.append(_variable_layer(settings, source, name))
    return layers


def _variable_layer(settings: type[BaseSettings], source: EnvSettingsSource, name: str) -> SettingsLayer:
    layer = SettingsLayer(origin=Origin(level="environment", name=name))
    key = name.removeprefix(PREFIX).lower().replace(DELIMITER, ".")
    if key.partition(".")[0] not in settings.model_fields:
        layer.faults.append(_unknown(settings, key, layer.origin))
        return layer
    try:
        _collect(settings, source(), layer)
    except (SettingsError, RecursionError):
        value = show(source.env_vars[name.lower()])
        layer.faults.append(f'{key} is {value} ({layer.origin}): it must be JSON, such as ["a", "b"] for a list')
    _convert_texts(settings, layer)
    return layer


def read_arguments(settings: type[BaseSettings], overrides: Mapping[str, Any]) -> SettingsLayer:
    """Read values by dotted key.

    A string given for a number or a switch is converted.
    """
    layer = SettingsLayer(origin=Origin(level="argument"))
    fields = dict(iter_keys(settings))
    for key, value in overrides.items():
        if key in fields:
            layer.values[key] = value
        else:
            layer.faults.append(_unknown(settings, key, layer.origin))
    _convert_texts(settings, layer)
    return layer


def _convert_texts(settings: type[BaseSettings], layer: SettingsLayer) -> None:
    """Convert strings to the type of their key.

    Validation reports the strings that cannot be converted.
    """
    fields = dict(iter_keys(settings))
    for key, value in layer.values.items():
        if isinstance(value, str):
            annotation: Any = fields[key].annotation
            try:
                layer.values[key] = TypeAdapter(annotation).validate_strings(value)
            except ValidationError:
                continue


def _collect(model: type[BaseModel], data: Mapping[Any, Any], layer: SettingsLayer, prefix: str = "") -> None:
    for name, value in data.items():
        key = f"{prefix}{name}"
        field = model.model_fields.get(name)
        section = None if field is None else find_section_model(field)
        if field is None:
            unknown = _unknown_names(str(name), prefix, value)
            layer.faults.extend(_unknown(model, key, layer.origin, prefix) for key in unknown)
        elif section is None:
            layer.values[key] = value
        elif isinstance(value, dict):
            _collect(section, value, layer, f"{key}.")
        # A section whose keys are all commented out is null in YAML; it means what an empty file means.
        elif value is not None:
            keys = ", ".join(section.model_fields)
            layer.faults.append(f"{key} is {show(value)} ({layer.origin}): it must be a mapping of {keys}")


def _unknown_names(name: str, prefix: str, value: Any) -> list[str]:
    """Return the unknown name, or the keys of a renamed section.

    Each key of a renamed section has its own new name.
    """
    if isinstance(value, dict) and value and find_renamed_key(prefix + name) is not None:
        return [f"{name}.{key}" for key in value]
    return [name]


def _unknown(model: type[BaseModel], key: str, origin: Origin, prefix: str = "") -> str:
    new = find_renamed_key(prefix + key.lower())
    near = nearest_key(model, key)
    if new is not None:
        remedy = f"it was renamed to {_format_key(new, origin)}"
    elif near is not None:
        remedy = f"did you mean {_format_key(prefix + near, origin)}?"
    else:
        remedy = f"known here are {', '.join(model.model_fields)}"
    return f"{prefix}{mask_password(key)} ({origin}) is not a key of the configuration: {remedy}"


def _format_key(key: str, origin: Origin) -> str:
    """Format a dotted key for its source.

    In the environment it is the name of a variable.
    """
    return f"{PREFIX}{key.upper().replace('.', DELIMITER)}" if origin.level == "environment" else key
