"""The whole configuration, and how its sources are combined.

Later sources override earlier ones: defaults < preset < file < environment < arguments.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import ValidationError, create_model
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from kosmos_rag.core.config.conflicts import CONFLICT, Conflict
from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.config.keys import iter_keys, nest
from kosmos_rag.core.config.loading import (
    DELIMITER,
    PREFIX,
    Origin,
    SettingsLayer,
    read_arguments,
    read_environment,
    read_files,
    read_preset,
)
from kosmos_rag.core.config.mcp import McpSettings
from kosmos_rag.core.config.preset_files import check_preset_keys, read_preset_file
from kosmos_rag.core.config.rag import RagSettings
from kosmos_rag.core.config.sections import (
    DatabaseSettings,
    IndexSettings,
    IngestionSettings,
    LanguageModelSettings,
    ModelsSettings,
    ObservabilitySettings,
)
from kosmos_rag.core.config.service import ServiceSettings
from kosmos_rag.core.config.worker import WorkerSettings
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.mounting import SECTIONS, load_present
from kosmos_rag.core.section import Section

_PRESET = "rag.preset"
S = TypeVar("S", bound=Section)


class KernelSettings(BaseSettings):
    """The sections of the kernel and its faces, with their sources."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter=DELIMITER,
        env_parse_none_str="null",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    rag: RagSettings = RagSettings()
    database: DatabaseSettings = DatabaseSettings()
    models: ModelsSettings = ModelsSettings()
    language_model: LanguageModelSettings = LanguageModelSettings()
    ingestion: IngestionSettings = IngestionSettings()
    indexes: IndexSettings = IndexSettings()
    worker: WorkerSettings = WorkerSettings()
    service: ServiceSettings = ServiceSettings()
    mcp: McpSettings = McpSettings()
    observability: ObservabilitySettings = ObservabilitySettings()

    def section(self, model: type[S]) -> S:
        """Return the section of a wing by its model.

        Raises TypeError for a model that no wing registers.
        """
        for _, section in self:
            if isinstance(section, model):
                return section
        raise TypeError(f"{model.__name__} is no section of the settings; kosmos_rag/wings.py lists those of wings")

    @classmethod
    def load(cls, path: str | Path | None = None, *, overrides: Mapping[str, Any] | None = None) -> Self:
        """Load the settings from file, environment and overrides.

        Without `path` the file is the value of KOSMOS_CONFIG, else `rag-config.yaml` if it exists.

        Args:
            path: Path of a YAML file.
            overrides: Values by dotted key; they take precedence over all other sources.

        Raises:
            ConfigError: Any value is invalid; one line lists all faults, each with key, value, origin and remedy.
        """
        return cls.load_with_origins(path, overrides=overrides)[0]

    @classmethod
    def load_with_origins(
        cls, path: str | Path | None = None, *, overrides: Mapping[str, Any] | None = None
    ) -> tuple[Self, dict[str, Origin]]:
        """Load as `load` does, with the origin of each dotted key."""
        if not isinstance(path, str | Path | None) or not isinstance(overrides, Mapping | None):
            raise ConfigError("settings are loaded from the path of a YAML file, and from overrides by dotted key")
        layers = [*read_files(cls, path), *read_environment(cls), read_arguments(cls, overrides or {})]
        layers = [*_process_preset(cls, layers), *layers]
        faults = [fault for layer in layers for fault in layer.faults]
        values: dict[str, Any] = {}
        origins = {key: Origin(level="default") for key, _ in iter_keys(cls)}
        for layer in layers:
            values |= layer.values
            origins |= dict.fromkeys(layer.values, layer.origin)
        try:
            settings = cls(**nest(values))
        except ValidationError as error:
            faults += cls._explain(error, values, origins)
        if faults:
            # Without the cause: pydantic's error holds the values, a URL's password among them.
            raise ConfigError(one_line("; ".join(faults))) from None
        return settings, origins

    def with_preset(self, name: str, values: Mapping[str, Any]) -> Self:
        """Return the settings with the values of a preset applied.

        Raises:
            ConfigError: The result is not valid.
        """
        layer = read_preset(type(self), name, values)
        current = {key: reduce(getattr, key.split("."), self) for key, _ in iter_keys(type(self))}
        origins = dict.fromkeys(current, Origin(level="settings")) | dict.fromkeys(layer.values, layer.origin)
        merged = current | layer.values
        faults = list(layer.faults)
        try:
            settings = type(self)(**nest(merged))
        except ValidationError as error:
            faults += self._explain(error, merged, origins)
        if faults:
            raise ConfigError(one_line("; ".join(faults))) from None
        return settings

    @property
    def settings_hash(self) -> str:
        """Hash of `rag`; queries with equal hashes use equal settings."""
        return sha256(self.rag.model_dump_json().encode()).hexdigest()[:16]

    @classmethod
    def _explain(cls, error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, Origin]) -> list[str]:
        fields = dict(iter_keys(cls))

        def describe_value(key: str) -> str:
            value = values[key] if key in values else fields[key].default
            return f"{key} is {show(value)} ({origins[key]})"

        faults = []
        for detail in error.errors():
            location = ".".join(str(part) for part in detail["loc"])
            if detail["type"] == CONFLICT:
                conflicts: tuple[Conflict, ...] = detail["ctx"][CONFLICT]
                faults += [
                    f"{' and '.join(describe_value(f'{location}.{key}') for key in conflict.keys)}: {conflict.remedy}"
                    for conflict in conflicts
                ]
            else:
                # An item of a list has its number behind the key.
                key = next(key for key in fields if location == key or location.startswith(f"{key}."))
                faults.append(f"{describe_value(key)}: {_remedy(detail)}, the default is {show(fields[key].default)}")
        return faults

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Restrict the constructor to its arguments.

        `load` reads the other sources itself, to know the origins of values.

        Args:
            settings_cls: not used; the signature is pydantic's.
            init_settings: the arguments of the constructor.
            env_settings: not used.
            dotenv_settings: not used.
            file_secret_settings: not used.
        """
        return (init_settings,)


def _wing_sections() -> dict[str, Any]:
    """Return the fields of the sections that wings add."""
    return {key: (model, model()) for key, model in load_present(SECTIONS).items() if isinstance(model, type)}


if TYPE_CHECKING:
    Settings = KernelSettings
else:
    Settings = create_model("Settings", __base__=KernelSettings, __module__=__name__, **_wing_sections())
    Settings.__doc__ = (
        """Every setting. `Settings()` is the defaults alone; `Settings.load` reads file and environment."""
    )


def _process_preset(settings: type[BaseSettings], layers: Sequence[SettingsLayer]) -> list[SettingsLayer]:
    """Read the preset that `rag.preset` names; nothing where no layer names one."""
    presets = [(layer.values[_PRESET], layer.origin) for layer in layers if _PRESET in layer.values]
    if not presets or not isinstance(presets[-1][0], str):
        return []
    source, origin = presets[-1]
    try:
        name, values = read_preset_file(source)
        layer = read_preset(settings, name, values)
        check_preset_keys(name, layer.values)
    except ConfigError as error:
        return [SettingsLayer(origin=origin, faults=[f"{_PRESET} is {show(source)} ({origin}): {error}"])]
    return [layer]


def preset_keys(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys that a preset sets.

    Raises ConfigError on an unknown key.
    """
    layer = read_preset(Settings, name, values)
    if layer.faults:
        raise ConfigError(one_line("; ".join(layer.faults)))
    return list(layer.values)


def _remedy(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    _, _, demand = detail["msg"].partition(" should ")
    hint = ""
    if isinstance(detail["input"], str) and detail["type"] in ("int_type", "float_type", "bool_type"):
        hint = " and not text"
    elif detail["type"] == "string_type":
        hint = " in quotes"
    return f"it must {demand}{hint}".replace("a valid tuple", "a list")
