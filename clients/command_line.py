"""`batchd predict`: one example from the command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from clients.sync_client import Client


@click.command("predict")
@click.argument("model")
@click.argument("inputs", nargs=-1, metavar="[NAME=VALUE | NAME=@FILE]...")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Where the server is.")
@click.option("--json", "json_text", metavar="TEXT", help="All inputs as one JSON object; @FILE reads a file, - stdin.")
@click.option("--signature", default="predict", show_default=True, help="Which signature of the model.")
@click.option("--timeout-ms", type=float, help="Deadline for the server, milliseconds.")
@click.option("--retries", type=click.IntRange(0), default=0, show_default=True, help="How often to retry a refusal.")
@click.option(
    "--token",
    envvar="BATCHD_TOKEN",
    show_envvar=True,
    help="For a server that wants one. Others on this machine can see what stands on a command line.",
)
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False),
    help="PEM file of the authority that signed an https server's certificate.  [default: what this machine trusts]",
)
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr how the request was served.")
def predict(
    model: str,
    inputs: tuple[str, ...],
    url: str,
    json_text: str | None,
    signature: str,
    timeout_ms: float | None,
    retries: int,
    token: str | None,
    ca: str | None,
    verbose: bool,
) -> None:
    """Ask MODEL about one example and print its outputs as JSON.

    A VALUE is JSON (numbers, lists, "text"); for an input that takes text it may stand without quotes.
    FILE holds JSON, or an array when its name ends in .npy, or plain text when it ends in .txt.

    \b
      batchd predict language text="guten Morgen"
      batchd predict digits image=@image.json
      batchd predict digits --json '{"image": [[0, 1], [1, 0]]}'
    """
    from clients.errors import ClientError
    from clients.sync_client import Client
    from clients.wire import encode_inputs, to_json

    try:
        client = Client(url, retries=retries, token=token, verify=ca or True)
    except (ValueError, OSError) as error:
        raise click.UsageError(f"--ca {ca}: {error}" if isinstance(error, OSError) else f"--token: {error}") from None
    with client:
        try:
            if (json_text is None) == (not inputs):
                raise click.UsageError("give the inputs either as NAME=VALUE or with --json")
            if json_text is not None:
                values = _json_object(json_text)
            else:
                values = _named_values(inputs, _declared_inputs(client, model, signature))
            prediction = client.predict(model, values, signature=signature, timeout_ms=timeout_ms)
        except ClientError as error:
            raise click.ClickException(str(error)) from None
    click.echo(to_json(encode_inputs(prediction.outputs)).decode())
    if verbose:
        provenance = prediction.provenance
        click.echo(
            f"batch of {_known(provenance.batch_size)}, queued {_known(provenance.queue_ms)} ms, "
            f"computed in {_known(provenance.compute_ms)} ms",
            err=True,
        )


def _known(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _declared_inputs(client: Client, model: str, signature: str) -> Mapping[str, Any]:
    from clients.exchange import declared_tensors

    return declared_tensors(client.model(model), signature, "inputs")


def _named_values(arguments: Sequence[str], declared: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{argument!r}: expected NAME=VALUE or NAME=@FILE")
        if name in values:
            raise click.UsageError(f"input {name!r} is given twice")
        tensor = declared.get(name)
        if text.startswith("@"):
            values[name] = _file_value(Path(text[1:]))
        elif tensor is None:
            values[name] = text  # the server's sentence says which inputs there are
        elif tensor["dtype"] == "string" and not tensor["shape"]:
            values[name] = text
        else:
            values[name] = _json_value(text, name)
    return values


def _json_value(text: str, name: str) -> Any:
    import orjson

    if text in ("NaN", "Infinity", "-Infinity"):
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise click.UsageError(f"input {name!r}: {text!r} isn't JSON ({error})") from None


def _file_value(path: Path) -> Any:
    import numpy as np

    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    return text if path.suffix == ".txt" else _json_value(text, str(path))


def _json_object(text: str) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        document = _file_value(Path(text[1:]))
        return _checked_object(document)
    return _checked_object(_json_value(text, "--json"))


def _checked_object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise click.UsageError('--json: expected an object of inputs, such as \'{"text": "hello"}\'')
    return document
