"""The Helm chart against its values and the code. One test asks Helm itself; the rest needs none of it."""

import json
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from kosmos_rag import Settings
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.http.toolkit.server import _GRACE_S
from kosmos_rag.core.config.keys import iter_keys
from kosmos_rag.core.config.loading import DELIMITER, FILE_VARIABLE, PREFIX
from kosmos_rag.core.version import __version__

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "kosmos-rag"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
CUSTOM_KINDS = {"PodMonitor", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
"""Of the Prometheus operator and KEDA: Kubernetes has no schemas of them."""
VARIABLES = {PREFIX + key.upper().replace(".", DELIMITER) for key, _ in iter_keys(Settings)} | {FILE_VARIABLE}


def _paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The path of every value, and of every group of them."""
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{name}.")


def _value_at_path(path: str) -> Any:
    value: Any = VALUES
    for name in path.split("."):
        value = value[name]
    return value


USED = {path for text in TEMPLATES.values() for path in re.findall(r"\.Values\.([\w.]+)", text)}


def test_templates__use_values_that_there_are() -> None:
    assert set(_paths(VALUES)) >= USED


def test_values__are_all_used() -> None:
    """A value is used by its name, or with the whole group that it is in."""
    for path in _paths(VALUES):
        parts = path.split(".")
        above = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        below = {path_in_use for path_in_use in USED if path_in_use.startswith(f"{path}.")}
        assert above & USED or below, f"{path} changes nothing"


def _defined() -> dict[str, str]:
    matches = re.findall(
        r'\{\{- define "([\w.]+)" -\}\}\n(.*?)\{\{- end \}\}\n(?=\n|\Z)', TEMPLATES["_helpers.tpl"], re.DOTALL
    )
    return dict(matches)


def _indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in text.rstrip("\n").splitlines())


def _filled(match: re.Match[str]) -> str:
    """A value in place of `{{ .Values.x }}`; where more is said than that, any text."""
    message = re.fullmatch(r"\$?\.Values\.([\w.]+)( \| quote)?", match[1].strip())
    if message is None:
        return "0"
    return f'"{_value_at_path(message[1])}"' if message[2] else str(_value_at_path(message[1]))


def _rendered(name: str) -> list[dict[str, Any]]:
    """The objects of a template with every condition true and lists as they are: Helm's work in a few lines."""
    text = TEMPLATES[name]
    helpers = _defined()
    text = re.sub(
        r'^ *\{\{- include "([\w.]+)" \. \| nindent (\d+) \}\}$',
        lambda match: _indented(helpers[match[1]], int(match[2])),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(
        r"^ *\{\{- toYaml \.Values\.([\w.]+) \| nindent (\d+) \}\}$",
        lambda match: _indented(yaml.safe_dump(_value_at_path(match[1])), int(match[2])),
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"^\{\{- else \}\}\n.*?(?=^\{\{- end)", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ *\{\{- range .*?\{\{- end \}\}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ *\{\{-? [^}]*\}\}\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\{\{-? ([^}]*?) ?-?\}\}", _filled, text)
    return [document for document in yaml.safe_load_all(text) if document]


FILES_TEMPLATES = {"dashboards.yaml", "prometheusrule.yaml"}
"""Of files outside the templates: only Helm fills them in."""
OBJECTS = {
    (item["kind"], name): item
    for name in TEMPLATES
    if name.endswith(".yaml") and name not in FILES_TEMPLATES
    for item in _rendered(name)
    if item["kind"] != "CronJob"
}
CRON_JOBS = {item["metadata"]["labels"]["app.kubernetes.io/component"]: item for item in _rendered("backup.yaml")}
PODS = {
    name.removesuffix(".yaml"): item["spec"]["template"]["spec"]
    for (kind, name), item in OBJECTS.items()
    if kind in {"Deployment", "Job"}
}


def test_chart__has_every_object_of_a_deployment() -> None:
    assert set(OBJECTS) == {
        ("ConfigMap", "configmap.yaml"),
        ("Job", "migrate.yaml"),
        ("Deployment", "api.yaml"),
        ("Service", "api.yaml"),
        ("PodDisruptionBudget", "api.yaml"),
        ("HorizontalPodAutoscaler", "api.yaml"),
        ("Deployment", "worker.yaml"),
        ("PodDisruptionBudget", "worker.yaml"),
        ("ScaledObject", "worker.yaml"),
        ("Ingress", "ingress.yaml"),
        ("ServiceMonitor", "monitoring.yaml"),
        ("PodMonitor", "monitoring.yaml"),
        ("NetworkPolicy", "networkpolicy.yaml"),
    }
    assert set(CRON_JOBS) == {"backup", "restore-drill"}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


@pytest.mark.parametrize("name", ["api", "worker", "migrate"])
def test_pod__may_do_nothing_that_it_need_not(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "KOSMOS_API_PORT, of a Service named kosmos-api, is no setting"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == ({"/tmp"} if name == "migrate" else {"/tmp", "/models"})
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    limits = container["resources"]["limits"]
    assert limits.keys() == {"memory", "ephemeral-storage"}
    for volume in pod["volumes"]:
        assert volume.get("emptyDir", {"sizeLimit": "its own"})["sizeLimit"], f"{volume['name']} may fill the node"


def test_networkpolicy__lets_pods_reach_dns_and_what_is_named() -> None:
    policy = OBJECTS["NetworkPolicy", "networkpolicy.yaml"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "matchLabels" in policy["podSelector"], "workers and the migration too"
    dns, *configured = policy["egress"]
    assert {(port["port"], port["protocol"]) for port in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert configured == VALUES["networkPolicy"]["egress"]
    assert [rule["ports"] for rule in configured] == [[{"port": 5432}], [{"port": 443}]]
    blocks = [peer["ipBlock"] for peer in configured[1]["to"]]
    networks = [ip_network(network) for block in blocks for network in block["except"]]
    for private in ("169.254.169.254", "10.1.2.3", "172.20.0.1", "192.168.1.1", "fd00:ec2::254", "fe80::1"):
        assert any(ip_address(private) in network for network in networks), private


@pytest.mark.parametrize("name", ["api", "worker", "migrate"])
def test_pod__sets_variables_that_are_settings_and_runs_a_command(name: str) -> None:
    (container,) = PODS[name]["containers"]
    names = [variable["name"] for variable in container["env"]]
    assert len(set(names)) == len(names)
    assert set(names) <= VARIABLES
    assert {"KOSMOS_DATABASE__URL", "KOSMOS_DATABASE__WORKER_URL"} <= set(names)
    # Of workers where it is asked for: conditions are true here.
    assert ("KOSMOS_DATABASE__ADMIN_URL" in names) == (name in {"migrate", "worker"})
    assert VALUES["worker"]["administrator"] is False
    assert container["command"][0] == "kosmos-rag"
    assert container["command"][1] in {command.name for command in app.registered_commands}
    for example in re.findall(r"name: (KOSMOS_\w+)", (CHART / "values.yaml").read_text()):
        assert example in VARIABLES


def test_values__config_is_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "rag-config.yaml"
    file.write_text(yaml.safe_dump(VALUES["config"]))
    assert Settings.load(file).observability.log_format == "json"


def test_pods__are_probed_where_something_answers() -> None:
    for name in ("api", "worker"):
        (container,) = PODS[name]["containers"]
        ports = {port["name"] for port in container["ports"]}
        for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
            assert container[probe]["httpGet"]["path"] == path
            assert container[probe]["httpGet"]["port"] in ports
    service = OBJECTS["Service", "api.yaml"]["spec"]["ports"]
    assert {port["targetPort"] for port in service} == {"http", "metrics"}
    settings = Settings()
    assert VALUES["api"]["port"] == settings.service.port


def test_pods__are_given_the_time_that_they_take_to_end() -> None:
    """The grace period follows from the configured drain: its default in the template is that of the settings."""
    keys = dict(iter_keys(Settings))
    rules = {
        section: (float(default), float(more))
        for text in TEMPLATES.values()
        for section, default, more in re.findall(
            r'GracePeriodSeconds: \{\{ add \(dig "(\w+)" "drain_s" (\d+) \.Values\.config \| ceil \| int\) (\d+)',
            text,
        )
    }
    assert set(rules) == {"service", "worker"}
    for section, (default, _) in rules.items():
        assert default == keys[f"{section}.drain_s"].default
    (pause,) = re.findall(r'command: \["sleep", "(\d+)"\]', TEMPLATES["api.yaml"])
    assert rules["service"][1] >= int(pause) + _GRACE_S + 5
    assert rules["worker"][1] >= 5


def test_selectors__choose_the_pods_of_their_own() -> None:
    for (kind, name), item in OBJECTS.items():
        if kind not in {"Deployment", "PodDisruptionBudget", "ServiceMonitor", "PodMonitor"}:
            continue
        component = item["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        assert component == (
            "worker" if kind == "PodMonitor" else name.removesuffix(".yaml").replace("monitoring", "api")
        )
    for (kind, name), item in OBJECTS.items():
        if kind == "Deployment":
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert labels.items() >= item["spec"]["selector"]["matchLabels"].items(), name


def test_cron_jobs__back_up_and_restore_with_commands_that_exist() -> None:
    commands = {command.name for command in app.registered_commands}
    for component, item in CRON_JOBS.items():
        pod = item["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (script,) = container["args"]
        assert set(re.findall(r"kosmos-rag (\w+)", script)) <= commands
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        names = {variable["name"] for variable in container["env"]}
        assert names <= VARIABLES
        assert ("KOSMOS_DATABASE__ADMIN_URL" in names) == (component == "backup"), (
            "the drill reaches no database of yours"
        )
    assert "kosmos-rag restore" in yaml.safe_dump(CRON_JOBS["restore-drill"])


def test_scaled_object__asks_for_a_metric_that_there_is() -> None:
    (trigger,) = OBJECTS["ScaledObject", "worker.yaml"]["spec"]["triggers"]
    (metric,) = re.findall(r"\b(kosmos_\w+)\{", trigger["metadata"]["query"])
    assert f"| `{metric}` |" in (CHART.parents[2] / "docs" / "metrics.md").read_text()


def test_schema__allows_the_values_and_refuses_misspelt_ones() -> None:
    validator = Draft202012Validator(json.loads((CHART / "values.schema.json").read_text()))
    validator.validate(VALUES)
    for wrong in ({"woker": {"replicas": 9}}, {"worker": {"replicas": "9"}}, {"secretEnv": [{"name": "A"}]}):
        assert not validator.is_valid(wrong), wrong
    assert validator.is_valid({"config": {"rag": {"answer": {"mode": "generative"}}}, "worker": {"resources": {}}})


def test_files__are_those_of_the_deployment() -> None:
    deploy = CHART.parents[1]
    assert (CHART / "files" / "rules.yml").resolve() == deploy / "prometheus" / "rules.yml"
    dashboards = sorted(path.resolve() for path in (CHART / "files" / "dashboards").iterdir())
    assert dashboards == sorted((deploy / "grafana" / "dashboards").glob("*.json"))


def test_chart__passes_helm_and_the_schemas_of_kubernetes() -> None:
    """All that is optional is on in the second run."""
    helm = pytest.importorskip("helm_python.chart", reason="needs helm-python-sdk: Helm renders the chart")
    schemas = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    switches = ("monitoring", "dashboards", "ingress", "backup")
    everything: dict[str, Any] = {switch: {"enabled": True} for switch in switches}
    everything |= {pod: {"autoscaling": {"enabled": True}} for pod in ("api", "worker")}

    def render(values: dict[str, Any]) -> list[dict[str, Any]]:
        report = helm.lint(CHART, values, strict=True)
        assert report["errors"] == [], report
        with helm.Chart.load(CHART) as chart:
            texts = chart.render(values, name="kosmos").values()
        items = [item for text in texts for item in yaml.safe_load_all(text) if item]
        for item in items:
            if item["kind"] not in CUSTOM_KINDS:
                schemas.validate(item, schemas.latest_version(), strict=True)
        return items

    kinds = {item["kind"] for item in render({})}
    assert kinds == {"ConfigMap", "Job", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
    items = render(everything)
    assert {item["kind"] for item in items} == kinds | CUSTOM_KINDS | {"CronJob", "HorizontalPodAutoscaler", "Ingress"}
    (rule,) = (item for item in items if item["kind"] == "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART.parents[1] / "prometheus" / "rules.yml").read_text())
    dashboards = [item for item in items if "grafana_dashboard" in item["metadata"]["labels"]]
    assert [json.loads(text)["title"] for item in dashboards for text in item["data"].values()]
    with helm.Chart.load(CHART) as chart, pytest.raises(ValueError, match="woker"):
        chart.validate_schema({"woker": {"replicas": 9}})
