"""The `batchd` command. What is heavy is imported by the command that needs it, so help is instant."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import click

_WITHOUT = {
    "max_batch_size": "the model's own",
    "reproducible": "the models' own",
    "grpc_port": "no gRPC",
    "token_file": "no tokens",
    **dict.fromkeys(("tls_certificate", "tls_key"), "no TLS"),
    "tls_client_ca": "any caller",
}
"""What happens without a setting that has no default, but for TensorFlow's own."""


class LazyGroup(click.Group):
    """Imports `predict` from the clients only when it is asked for."""

    _elsewhere = {"predict": ("clients.command_line", "predict", "Send one example to a running server.")}  # noqa: RUF012

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands."""
        return sorted([*super().list_commands(ctx), *self._elsewhere])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command; one that lives elsewhere is imported."""
        if cmd_name not in self._elsewhere:
            return super().get_command(ctx, cmd_name)
        from importlib import import_module

        module, name, _ = self._elsewhere[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing any."""
        rows = []
        for name in self.list_commands(ctx):
            local = self.commands.get(name)
            rows.append((name, local.get_short_help_str() if local else self._elsewhere[name][2]))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class ServeCommand(click.Command):
    """Has one option for each setting; they are made when they are needed."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the command's own parameters and an option for each setting."""
        return [*super().get_params(ctx), *_setting_options()]


def _print_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"batchd {version('batchd')}")
    except PackageNotFoundError:
        click.echo("batchd (not installed)")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
def main() -> None:
    """Write a TensorFlow function for one example; serve it at batched speed."""


@main.command(cls=ServeCommand)
@click.argument("models", nargs=-1, required=True, metavar="FILE|MODULE...")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file.  [default: batchd.toml, if there]")
@click.pass_context
def serve(ctx: click.Context, /, models: tuple[str, ...], config: Path | None, **flags: Any) -> None:
    """Serve the models that Python files or modules register.

    Each option can also be set in the environment (--max-delay-ms as BATCHD_MAX_DELAY_MS) or in the settings
    file (max_delay_ms = 0); a flag beats the environment, that beats the file.
    """
    from server.http.serve import serve as run
    from server.settings import SettingsError, load_settings

    try:
        status = run(load_settings(flags, file=config), models)
    except SettingsError as error:
        raise click.UsageError(error.message, ctx) from None
    ctx.exit(status)


@main.command()
@click.argument("model", metavar="FILE|MODULE")
@click.option("--name", help="Which of its models.  [default: the first]")
@click.option(
    "--length",
    type=click.IntRange(min=1),
    help="What variable sizes are taken to be where memory is estimated.  [default: the model's max_length, or 64]",
)
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs; also what stands in the way.")
@click.pass_context
def explain(ctx: click.Context, model: str, name: str | None, length: int | None, as_json: bool) -> None:
    """Show how a model's function is vectorized, op by op.

    Exits with 1 if it can't be, naming every op that stands in the way, and its line.
    """
    import os

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from server.errors import BatchdError

    try:
        found, text = _report(model, name, length)
    except BatchdError as error:
        raise click.ClickException(error.message) from None
    if as_json:
        import json

        click.echo(json.dumps(found, indent=2))
    elif "findings" in found:
        raise click.ClickException(text)
    else:
        click.echo(text)
    ctx.exit(1 if "findings" in found else 0)


@main.command()
@click.option("--markdown", is_flag=True, help="As the page docs/supported_ops.md.")
def ops(markdown: bool) -> None:
    """List the TensorFlow ops that can be vectorized, and what is checked of each."""
    import os

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from vectorizer.op_table import as_markdown, as_text

    click.echo(as_markdown() if markdown else as_text(), nl=not markdown)


def _report(location: str, name: str | None, length: int | None) -> tuple[dict[str, Any], str]:
    """Returns the report as data and as text; or, under "findings", what stands in the way."""
    from server.loading import choose_model, load_models
    from vectorizer import VectorizationError, vectorize

    spec = choose_model(load_models(location), name, location)
    try:
        report = vectorize(spec.function, dict(spec.inputs)).report
    except VectorizationError as error:
        return error.as_dict(), str(error)
    report.length = length or spec.max_length or report.length
    return report.as_dict(), str(report)


@cache
def _setting_options() -> tuple[click.Option, ...]:
    from typing import get_args, get_origin

    from server.settings import Settings

    options = []
    for name, setting in Settings.model_fields.items():
        if Settings.secret(name):
            continue
        types = [each for each in get_args(setting.annotation) if each is not type(None)]
        flag = f"--{name.replace('_', '-')}"
        value_type: Any = (types[0] if type(None) in get_args(setting.annotation) else setting.annotation) or str
        if get_origin(value_type) is not None:
            value_type = click.Choice(get_args(value_type))
        elif value_type is Path:
            value_type = click.Path(path_type=Path)
        elif value_type is bool:
            flag = f"{flag}/--no-{flag[2:]}"
        default = _WITHOUT.get(name, "TensorFlow's choice") if setting.default is None else setting.default
        meaning = setting.description or ""
        text = f"{meaning[:1].upper()}{meaning[1:]}.  [{_range(setting.metadata)}default: {default}]"
        options.append(click.Option([flag], type=value_type, default=None, help=text))
    return tuple(options)


def _range(limits: list[Any]) -> str:
    """Returns e.g. "0 to 65535; "."""
    least = [str(limit.ge) for limit in limits if hasattr(limit, "ge")]
    least += [f"above {limit.gt}" for limit in limits if hasattr(limit, "gt")]
    most = [str(limit.le) for limit in limits if hasattr(limit, "le")]
    if least and most:
        return f"{least[0]} to {most[0]}; "
    return f"at least {least[0]}; " if least else ""


if __name__ == "__main__":
    sys.exit(main())
