"""Profiles: who decides which broker a command asks, and what is stored."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from infra.loopback_ports import free_port
from tests.components.certificates import Authority
from tests.end_to_end.broker_process import BrokerProcess, run_tidelog

from tidelog.services.cli.broker_options import BrokerChoice, chosen_broker
from tidelog.services.cli.profiles import Profile, Profiles, profiles_file, read_profiles, write_profiles
from tidelog.storage.errors import Corrupt, Invalid, NotFound


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDELOG_PROFILES", str(tmp_path / "config" / "profiles.json"))
    return tmp_path / "config" / "profiles.json"


def test_the_file_is_in_the_configuration_folder_of_the_user() -> None:
    assert profiles_file({"TIDELOG_PROFILES": "/a/b.json"}) == Path("/a/b.json")
    assert profiles_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/tidelog/profiles.json")
    assert profiles_file({"XDG_CONFIG_HOME": "relative"}) == Path.home() / ".config/tidelog/profiles.json"


def test_only_the_owner_can_read_the_file(file: Path) -> None:
    profiles = Profiles().with_profile("prod", Profile(broker="https://a", user="ann"))
    write_profiles(file, profiles)
    file.chmod(0o644)
    write_profiles(file, profiles)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert read_profiles(file) == profiles
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_is_damaged_or_cannot_be_read_is_reported(file: Path) -> None:
    assert read_profiles(file) == Profiles()
    file.mkdir(parents=True)
    with pytest.raises(Invalid, match="cannot be read"):
        read_profiles(file)
    with pytest.raises(Invalid, match="cannot be written"):
        write_profiles(file, Profiles())
    file.rmdir()
    file.write_bytes(b'{"profiles": []}')
    with pytest.raises(Corrupt, match="no file of profiles"):
        read_profiles(file)


def test_a_flag_counts_before_a_variable_before_the_profile_before_the_default(file: Path) -> None:
    prod = Profile(broker="http://127.0.0.1:1", ca_file="/ca.pem", user="ann")
    write_profiles(file, Profiles().with_profile("prod", prod).with_profile("test", Profile()))
    assert chosen_broker() == BrokerChoice("http://127.0.0.1:1", "/ca.pem", "ann")
    assert chosen_broker(profile="test") == BrokerChoice("http://127.0.0.1:8080")
    assert chosen_broker(broker="http://b", user="bob") == BrokerChoice("http://b", "/ca.pem", "bob")
    with pytest.raises(NotFound, match="prod, test"):
        chosen_broker(profile="prodd")


def test_the_commands_change_the_file(file: Path, tmp_path: Path, broker: BrokerProcess) -> None:
    def run(*arguments: str, code: int = 0) -> bytes:
        ended = run_tidelog(arguments)
        assert ended.returncode == code, ended.stderr
        return ended.stdout + ended.stderr

    authority = Authority(tmp_path / "authority")
    run("profile", "set", "here", "--broker", broker.url)
    run("profile", "set", "prod", "--broker", "https://log", "--ca-file", str(authority.file), "--user", "ann")
    listed = json.loads(run("profile", "list", "--json"))
    assert listed["current"] == "here"
    assert listed["profiles"]["prod"] == {"broker": "https://log", "ca_file": str(authority.file), "user": "ann"}
    assert run("cluster", "health").decode() == f"{broker.url} is ready\n"  # the first profile is in use
    run("profile", "use", "prod")
    shown = json.loads(run("profile", "show", "--json"))
    assert shown["broker"] == {"value": "https://log", "source": "profile prod"}
    assert b"TIDELOG_PASSWORD" in run("topic", "list", code=2)
    assert run("cluster", "health", "--profile", "here").decode() == f"{broker.url} is ready\n"
    run("profile", "set", "prod", "--user", "")
    assert "user" not in json.loads(run("profile", "list", "--json"))["profiles"]["prod"]
    run("profile", "delete", "prod")
    assert b"no profile 'prod'" in run("profile", "use", "prod", code=4)
    assert b"no name" in run("profile", "set", "no spaces", code=2)
    assert b"no password" in run("profile", "set", "leaky", "--broker", "https://ann:secret@log", code=2)
    assert b"cannot be read" in run("profile", "set", "wrong", "--ca-file", "no-such.pem", code=2)
    assert b"no-such" in run("topic", "list", "--profile", "no-such", code=4)


def test_a_variable_counts_before_the_profile(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    run_tidelog(["profile", "set", "away", "--broker", f"http://127.0.0.1:{free_port()}"])
    monkeypatch.setenv("TIDELOG_BROKER", broker.url)
    assert run_tidelog(["cluster", "health"]).returncode == 0
    monkeypatch.delenv("TIDELOG_BROKER")
    assert run_tidelog(["cluster", "health"]).returncode == 3
