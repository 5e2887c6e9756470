"""What the page on containers and services has to be copied: each file can be read, and whatever starts the server does so with options that it has."""

import configparser
import inspect
import json
import re
import shlex
import tomllib

import click
import pytest
import yaml
from doc_blocks import ROOT, fenced

from mcpbus import Server
from mcpbus.cli import main

PAGE = ROOT / "docs/containers.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def compose():
    return yaml.safe_load(fenced(PAGE, "yaml")[0].text)


def container():
    (found,) = yaml.safe_load(fenced(PAGE, "yaml")[1].text)["spec"]["template"]["spec"]["containers"]
    return found


def unit():
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(fenced(PAGE, "ini")[0].text)
    return parser


def from_dockerfile():
    command = re.search(r"^CMD (.*)$", fenced(PAGE, "dockerfile")[0].text, re.MULTILINE)
    return json.loads(command[1]), compose()["services"]["mcp"]["environment"]


def from_pod():
    spec = container()
    own = {"POD_IP": "10.0.0.7"}
    given = {each["name"]: each["value"] for each in spec["env"] if "value" in each}
    return spec["args"], {
        name: re.sub(r"\$\((\w+)\)", lambda m: own[m[1]], value) for name, value in given.items()
    }


def from_unit():
    return shlex.split(unit()["Service"]["ExecStart"]), {}


def parse(command, environment, monkeypatch):
    """Read a command line as the program does, and return what each option is."""
    program, name, *arguments = command
    assert program.rpartition("/")[2] == "mcpbus"
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    top = main.make_context("mcpbus", [name, *arguments], auto_envvar_prefix="MCPBUS")
    with top:
        read = main.get_command(top, name).make_context(name, arguments, parent=top)
    return {option: read.params.get(each.name) for each in read.command.params for option in each.opts}


@pytest.mark.parametrize("read", [from_dockerfile, from_pod, from_unit])
def test_what_starts_the_server_is_understood(read, monkeypatch):
    command, environment = read()
    options = parse(command, environment, monkeypatch)
    assert options["target"] == "weather:server"
    for variable in environment:
        if variable.startswith("MCPBUS_SERVE_"):
            assert options["--" + variable.removeprefix("MCPBUS_SERVE_").lower().replace("_", "-")], variable


def test_an_option_that_is_not_there_is_found(monkeypatch):
    with pytest.raises(click.UsageError):
        parse(["mcpbus", "serve", "weather:server", "--replicas", "3"], {}, monkeypatch)


def test_whoever_sends_the_signal_waits_longer_than_the_server_drains(monkeypatch):
    default = inspect.signature(Server.open).parameters["drain_timeout"].default
    pod = yaml.safe_load(fenced(PAGE, "yaml")[1].text)["spec"]["template"]["spec"]
    (sleep,) = [
        int(word) for word in container()["lifecycle"]["preStop"]["exec"]["command"] if word.isdigit()
    ]
    assert parse(*from_pod(), monkeypatch)["--drain"] + sleep < pod["terminationGracePeriodSeconds"]
    assert default < int(unit()["Service"]["TimeoutStopSec"])
    assert default < int(compose()["services"]["mcp"]["stop_grace_period"].removesuffix("s"))


def test_what_is_installed_in_the_image_is_there():
    (extras,) = re.findall(r"'mcpbus-server\[([\w,]+)\]'", fenced(PAGE, "dockerfile")[0].text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert PROJECT["name"] == "mcpbus-server"
