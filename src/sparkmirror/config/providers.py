"""Values from elsewhere: strings with `${provider:path:key}` come in, the same resolved go out.

Three providers, with the behaviour of Kafka's: environment variables (`${env:NAME}`), property
files (`${file:/path:key}`) and directories of files (`${dir:/path:file}`). A file that sets
`config.providers` gets exactly the providers it names. One that does not gets these three under the
names `env`, `file` and `dir`, which Kafka would not give it. A reference to a provider that does
not exist stays as it is; a reference that a provider cannot answer is an error, where Kafka would
hand the literal text on as the value.

This module is the one place of the room that reads the environment and files besides `properties`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkmirror.config.keys import java_trim, split_list
from sparkmirror.config.properties import load_properties
from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import compile_java_patterns
from sparkmirror.policy.java_pattern import JavaPattern

_KAFKA = "org.apache.kafka.common.config.provider"
_ALLOW_LIST = "allowlist.pattern of a config provider"
_STANDARD = {"env": "env", "file": "file", "dir": "dir"}
_CLASSES = {
    f"{_KAFKA}.EnvVarConfigProvider": "env",
    f"{_KAFKA}.FileConfigProvider": "file",
    f"{_KAFKA}.DirectoryConfigProvider": "dir",
    "io.strimzi.kafka.EnvVarConfigProvider": "env",
}

STANDARD_PROVIDERS = {
    "config.providers": "env,file,dir",
    "config.providers.env.class": f"{_KAFKA}.EnvVarConfigProvider",
    "config.providers.file.class": f"{_KAFKA}.FileConfigProvider",
    "config.providers.dir.class": f"{_KAFKA}.DirectoryConfigProvider",
}
"""Worker keys that name the three providers, for one whose whole config is its owner's file."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A `${provider:path:key}` in a value; it begins at `start` and ends before `end`."""

    text: str
    provider: str
    path: str
    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """One `${provider:path:key}` and the config key in whose value it stands."""

    text: str
    path: str
    key: str
    used_in: str

    def fail(self, why: str, remedy: str) -> ConfigError:
        """The error to raise when the reference cannot be answered."""
        return ConfigError(f"{self.used_in} refers to {self.text}, but {why}.", remedy)


Provider = Callable[[Reference], str]


def resolve(
    values: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """`values` with every reference replaced.

    `settings` holds the `config.providers*` keys (default: `values` itself); `environment` are the
    variables that `env` sees (default: the process's).
    """
    providers = _providers(
        values if settings is None else settings, os.environ if environment is None else environment
    )
    return {name: _resolve_value(name, value, providers) for name, value in values.items()}


def resolve_named(
    values: Mapping[str, str],
    settings: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    known: frozenset[str] | None = None,
) -> dict[str, str]:
    """`values` with the references to providers that `settings` name, and to no others.

    For connector configs on a worker: whoever may send one must not be able to read the worker's
    files and environment unless the worker's owner says so. With `known`, the references that the
    owner has written, any other one is an error.
    """
    if "config.providers" not in settings:
        return dict(values)
    if known is not None:
        _require_known(values, _providers(settings, {}), known)
    return resolve(values, environment, settings)


def references(values: Mapping[str, str]) -> frozenset[str]:
    """All `${provider:path:key}` in these values, whether there is such a provider or not."""
    return frozenset(found.text for value in values.values() for found in _written(value))


def _require_known(
    values: Mapping[str, str], providers: Mapping[str, Provider], known: frozenset[str]
) -> None:
    for name, value in values.items():
        for found in _written(value):
            if found.provider in providers and found.text not in known:
                raise Reference(found.text, "", "", name).fail(
                    "the file of this process does not contain that reference",
                    "Whoever writes to the config topic may not read files and variables. If another node has a newer file, "
                    "start this one with it too; or name the providers in the file (config.providers).",
                )


def _written(value: str) -> Iterator[_Written]:
    """The references in a value, from the first on. Kafka's expression for them takes hours on a value made for that."""
    start = value.find("${")
    while start >= 0 and (close := value.find("}", start)) >= 0:
        provider, colon, rest = value[start + 2 : close].partition(":")
        if colon:
            path, colon, key = rest.partition(":")
            text = value[start : close + 1]
            yield _Written(
                text, provider, path if colon else "", key if colon else path, start, close + 1
            )
        start = value.find("${", close)


def _resolve_value(name: str, value: str, providers: Mapping[str, Provider]) -> str:
    parts: list[str] = []
    at = 0
    for found in _written(value):
        provider = providers.get(found.provider)
        if provider is not None:
            answer = provider(Reference(found.text, found.path, found.key, name))
            parts += [value[at : found.start], answer]
            at = found.end
    resolved = "".join([*parts, value[at:]])
    # Files end in a newline; Java trims it off when it gives the value a type.
    return value if resolved == value else java_trim(resolved)


def _providers(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Provider]:
    if "config.providers" not in settings:
        return {name: _provider(kind, {}, environment) for name, kind in _STANDARD.items()}
    found = {}
    for name in split_list(settings["config.providers"]):
        prefix = f"config.providers.{name}."
        own = {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}
        found[name] = _provider(_kind(name, own.get("class")), own, environment)
    return found


def _kind(name: str, class_name: str | None) -> str:
    key = f"config.providers.{name}.class"
    known = ", ".join(sorted(_CLASSES))
    if class_name is None:
        if name in _STANDARD:
            return _STANDARD[name]
        raise ConfigError(
            f"config.providers names {name!r}, but {key} is not set.", f"Set it to one of {known}."
        )
    kind = _CLASSES.get(java_trim(class_name))
    if kind is None:
        raise ConfigError(
            f"{key} is {class_name}, which is not available here.", f"Use one of {known}."
        )
    return kind


def _provider(kind: str, own: Mapping[str, str], environment: Mapping[str, str]) -> Provider:
    if kind == "env":
        pattern = own.get("param.allowlist.pattern", ".*")
        return _EnvironmentProvider(environment, compile_java_patterns([pattern], _ALLOW_LIST))
    allowed = _allowed_paths(own.get("param.allowed.paths"))
    return _FileProvider(allowed) if kind == "file" else _DirectoryProvider(allowed)


def _allowed_paths(setting: str | None) -> tuple[Path, ...]:
    items = split_list(setting or "")
    for item in items:
        if not Path(item).is_absolute():
            raise ConfigError(
                f"allowed.paths of a config provider has the relative path {item}.",
                "Write absolute paths.",
            )
    return tuple(map(_normal, items))


def _normal(path: str) -> Path:
    """Without `..`, and where symbolic links lead."""
    try:
        return Path(path).resolve()
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path!r} is no path ({error}).", "Correct it.") from error


@dataclass(frozen=True, slots=True)
class _EnvironmentProvider:
    """`${env:NAME}`: an environment variable whose whole name matches the allow list."""

    environment: Mapping[str, str]
    allowed: JavaPattern

    def __call__(self, reference: Reference) -> str:
        if reference.path.strip():
            raise reference.fail("environment variables have no path", "Write ${env:NAME}.")
        if not self.allowed.matches(reference.key):
            raise reference.fail(
                f"allowlist.pattern does not allow {reference.key}", "Widen the pattern."
            )
        value = self.environment.get(reference.key)
        if value is None:
            raise reference.fail(
                "that environment variable is not set",
                f"Set {reference.key} in the environment of this process.",
            )
        return value


@dataclass(frozen=True, slots=True)
class _FileProvider:
    """`${file:/path:key}`: one key of a properties file."""

    allowed: tuple[Path, ...]

    def __call__(self, reference: Reference) -> str:
        path = _checked_path(reference, self.allowed, "${file:/path/of/file:key}")
        if path.exists() and not path.is_file():
            raise reference.fail(f"{path} is not a regular file", "Name a properties file.")
        try:
            properties = load_properties(path)
        except ConfigError as error:
            raise reference.fail(error.message.rstrip("."), error.remedy) from error
        if reference.key not in properties:
            raise reference.fail(f"{path} has no key {reference.key}", "Add it to that file.")
        return properties[reference.key]


@dataclass(frozen=True, slots=True)
class _DirectoryProvider:
    """`${dir:/path:file}`: the text of one file of a directory."""

    allowed: tuple[Path, ...]

    def __call__(self, reference: Reference) -> str:
        path = _checked_path(reference, self.allowed, "${dir:/path/of/directory:file}")
        file = path / reference.key
        if (
            file.parent != path
            or not file.is_file()
            or not _is_allowed(file.resolve(), self.allowed)
        ):
            raise reference.fail(
                f"{path} has no file {reference.key}", "Put the value into a file of that name."
            )
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise reference.fail(
                f"{file} cannot be read: {error}", "Check its permissions and encoding (UTF-8)."
            ) from error


def _checked_path(reference: Reference, allowed: tuple[Path, ...], form: str) -> Path:
    if not reference.path:
        raise reference.fail("it names no path", f"Write {form}.")
    path = _normal(reference.path)
    if not _is_allowed(path, allowed):
        raise reference.fail(
            f"allowed.paths of its provider does not contain {path}",
            "Add the directory to allowed.paths.",
        )
    return path


def _is_allowed(path: Path, roots: tuple[Path, ...]) -> bool:
    return not roots or any(path.is_relative_to(root) for root in roots)
