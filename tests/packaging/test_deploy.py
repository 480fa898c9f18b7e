"""docs/deploy/: what is there to be copied is right, as far as a machine can tell."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.waiting import PATIENCE

from callboard.actors.front.http.routes import find_route
from callboard.cli.commands.serve import serve, worker
from callboard.protocol.problems import errors_in
from callboard.protocol.settings import Settings, read_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
HASH = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA"
PORT = 3400
HADOLINT = Path(sys.prefix) / "interop" / "deploy" / "bin" / "hadolint"


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def documents() -> dict[str, dict[str, Any]]:
    """The manifests by their kind."""
    found = [each for file in (DEPLOY / "k8s").glob("*.yaml") for each in yaml.safe_load_all(file.read_text())]
    return {each["kind"]: each for each in found}


def settings_of(text: str) -> Settings:
    """With real hashes in place of the placeholders."""
    settings, problems = read_settings(re.sub(r"REPLACE-ME\S*", HASH, text), "config.yaml", {"OPENAI_API_KEY": "k"})
    assert [str(problem) for problem in problems] == []
    return settings


def test_the_dockerfile_pleases_a_linter() -> None:
    program = str(HADOLINT) if HADOLINT.exists() else shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not there: make .venv/interop/deploy.made")
    done = subprocess.run(
        [program, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


CHECK_COMPOSE = """
import sys
from compose_spec.compose_spec import PyOptions
for file in sys.argv[1:]:
    PyOptions(apply_merge=True).from_yaml(open(file).read()).validate()
"""


@pytest.mark.parametrize("changed", [False, True], ids=["as they are", "with a key that there is not"])
def test_the_manifests_and_the_compose_files_follow_their_schemas(tmp_path: Path, changed: bool) -> None:
    programs = HADOLINT.parent
    if not (programs / "kubernetes-validate").exists():
        pytest.skip("kubernetes-validate is not there: make .venv/interop/deploy.made")
    checks = {
        "k8s*/*.yaml": (
            [programs / "kubernetes-validate", "--strict", "--quiet"],
            ("    spec:\n", "    spec:\n      x: 1\n"),
        ),
        "*.yml": ([programs / "python", "-c", CHECK_COMPOSE], ("restart:", "restrat:")),
    }
    for pattern, (argv, change) in checks.items():
        files = sorted(DEPLOY.glob(pattern))
        assert files
        if changed:
            text = next(text for file in files if change[0] in (text := file.read_text()))
            files = [tmp_path / "changed.yaml"]
            files[0].write_text(text.replace(*change))
        done = subprocess.run([*argv, *files], capture_output=True, text=True, check=False)
        assert bool(done.returncode) == changed, done.stdout + done.stderr


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not there: apt-get install systemd")
    unit = tmp_path / "callboard.service"
    unit.write_text(
        read("callboard.service").replace("/opt/callboard/bin/callboard", shutil.which("true") or "/bin/true")
    )
    done = subprocess.run([program, "verify", str(unit)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode and "callboard.service" not in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr[:200]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("file", sorted(str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*.y*ml")))
def test_every_yaml_file_is_yaml(file: str) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(read(file)))


@pytest.mark.parametrize(
    "text", [read("config.yaml"), documents()["Secret"]["stringData"]["config.yaml"]], ids=["file", "k8s"]
)
def test_the_configurations_are_right_but_for_their_placeholders(text: str) -> None:
    api = settings_of(text).api
    assert api.address == ("0.0.0.0", PORT)
    _, problems = read_settings(text, "config.yaml", {"OPENAI_API_KEY": "k"})
    wrong = errors_in(problems)
    assert wrong, "an example must not start as it is"
    assert {problem.key for problem in wrong} <= {f"api.auth.keys[{number}].key_hash" for number in range(2)}


def test_flags_are_those_that_there_are() -> None:
    known = {flag for option in serve.params for flag in option.opts}
    for name in ("Dockerfile", "callboard.service"):
        (line,) = re.findall(r"^(?:CMD .*serve|ExecStart=.* serve).*$", read(name), re.MULTILINE)
        assert set(re.findall(r"--[a-z-]+", line)) <= known, name


def test_ports_agree_everywhere() -> None:
    kinds = documents()
    (container,) = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    assert kinds["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    dockerfile = read("Dockerfile")
    assert f"EXPOSE {PORT}" in dockerfile
    assert f'"--port", "{PORT}"' in dockerfile
    assert f"127.0.0.1:{PORT}/healthz/live" in dockerfile
    assert f"server callboard:{PORT};" in read("nginx.conf")


def test_probes_and_paths_are_open_routes_that_there_are() -> None:
    (container,) = documents()["Deployment"]["spec"]["template"]["spec"]["containers"]
    probes = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
    for path in probes:
        found = find_route("GET", path)
        assert found is not None
        assert found.rule.open
    annotations = documents()["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert find_route("GET", annotations["prometheus.io/path"]) is not None


def test_directories_agree_with_the_image() -> None:
    image = dict(re.findall(r"(CALLBOARD_CONFIG_DIR|XDG_\w+)=(\S+)", read("Dockerfile")))
    assert set(image) == {"CALLBOARD_CONFIG_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"}
    assert documents()["ConfigMap"]["data"] == image
    assert dict(re.findall(r"^Environment=(\w+)=(.*)$", read("callboard.service"), re.MULTILINE)) == image
    (container,) = documents()["Deployment"]["spec"]["template"]["spec"]["containers"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(image.values()) <= mounted, "the rest of the file system is read-only"
    assert f"{image['CALLBOARD_CONFIG_DIR']}/config.yaml" in mounted


def test_there_is_time_to_end_in() -> None:
    grace = settings_of(read("config.yaml")).api.shutdown_grace_seconds
    seconds = documents()["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert seconds >= grace + 10
    unit = read("callboard.service")
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) >= grace + 10
    compose = yaml.safe_load(read("docker-compose.yml"))["services"]["callboard"]
    assert int(compose["stop_grace_period"].removesuffix("s")) >= grace + 10


def test_nobody_runs_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", read("Dockerfile"), re.MULTILINE)
    context = documents()["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert users == [str(context["runAsUser"])]
    assert context["runAsNonRoot"] is True
    assert f"--uid {users[0]}" in read("Dockerfile")
    assert "User=callboard" in read("callboard.service")


def test_nginx_upgrades_websockets_and_holds_no_stream_back() -> None:
    conf = read("nginx.conf")
    for line in ("proxy_buffering off;", "proxy_set_header Upgrade $http_upgrade;", "proxy_set_header Host $host;"):
        assert line in conf
    hosts = re.findall(r"server_name (\S+);", conf)
    assert tuple(hosts) == settings_of(read("config.yaml")).api.allowed_hosts


def test_what_the_image_is_built_of_is_there() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", read("Dockerfile"), re.MULTILINE):
        *sources, _ = line.split()
        assert [name for name in sources if not (ROOT / name).exists()] == []


def test_the_cluster_s_compose_file_starts_what_there_is_and_gives_workers_time_to_end() -> None:
    made = yaml.safe_load(read("cluster.yml"))["services"]
    grace = Settings().api.shutdown_grace_seconds
    for name in ("gateway", "worker"):
        program, command, *flags = made[name]["command"]
        assert program == "callboard"
        known = {option for param in {"serve": serve, "worker": worker}[command].params for option in param.opts}
        assert {flag for flag in flags if flag.startswith("--")} <= known
        assert flags[flags.index("--port") + 1] == str(PORT)  # which the image's health check asks
        assert int(made[name]["stop_grace_period"].removesuffix("s")) >= grace + 10
        assert made[name]["depends_on"] == {"db": {"condition": "service_healthy"}}


def test_the_cluster_s_manifests_agree_with_the_image_and_what_there_is() -> None:
    file = DEPLOY / "k8s-cluster" / "cluster.yaml"
    made = [each for each in yaml.safe_load_all(file.read_text()) if each["kind"] == "Deployment"]
    image = dict(re.findall(r"(CALLBOARD_CONFIG_DIR|XDG_\w+)=(\S+)", read("Dockerfile")))
    assert [each["metadata"]["name"] for each in made] == ["callboard-gateway", "callboard-worker"]
    for each in made:
        pod = each["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        program, command, *flags = container["args"]
        assert program == "callboard"
        known = {option for param in {"serve": serve, "worker": worker}[command].params for option in param.opts}
        assert {flag for flag in flags if flag.startswith("--")} <= known
        assert container["ports"] == [{"name": "http", "containerPort": PORT}]
        assert each["spec"]["selector"]["matchLabels"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        probes = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
        assert all((found := find_route("GET", path)) is not None and found.rule.open for path in probes)
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {image["XDG_STATE_HOME"], image["XDG_CACHE_HOME"]} <= mounted, "the rest is read-only"
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert pod["terminationGracePeriodSeconds"] >= Settings().api.shutdown_grace_seconds + 10
