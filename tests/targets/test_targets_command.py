import json

from click.testing import CliRunner

from infoflow.cli import cli
from infoflow.targets import NAMED, parse


def test_every_named_target_is_listed() -> None:
    text = CliRunner().invoke(cli, ["targets"])
    assert text.exit_code == 0
    for name in NAMED:
        assert name in text.output


def test_json_is_one_object_whose_spellings_parse() -> None:
    done = CliRunner().invoke(cli, ["targets", "--json"])
    payload = json.loads(done.output)
    assert payload["version"] == 1
    assert [entry["name"] for entry in payload["targets"]] == list(NAMED)
    for entry in payload["targets"]:
        F = parse(entry["spelling"])
        assert F.outputs == entry["outputs"]
        assert (F.condition or None) == entry["certified_inputs"]
        assert list(F.domain) == entry["domain"]
        assert F.sampler in payload["samplers"]
        keys = ",".join(f"{key}={value}" for key, value in entry["keys"].items() if value is not None)
        assert parse(f"{entry['name']}:{keys}" if keys else entry["name"]).spelling == entry["spelling"]
