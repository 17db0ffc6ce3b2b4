"""Deploys what sam built by CloudFormation, to an emulator or to a real account, and takes it away again."""

import io
import json
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cfn_flip  # type: ignore[import-untyped]

from duecourse_local.harness.intrinsics import Resolver
from duecourse_local.harness.options import LOOPBACK
from tests.support.capabilities import Emulator
from tests.support.project import ROOT
from tests.support.wait import until

BUILT = ROOT / ".aws-sam/here/template.yaml"
FUNCTION, LAYER = "AWS::Serverless::Function", "AWS::Serverless::LayerVersion"
SENDER = "reminders@example.com"
ENDED = ("COMPLETE", "FAILED")


class Deployment(NamedTuple):
    """A deployed stack: its name, and what its resources are called there, by logical id."""

    stack: str
    names: Mapping[str, str]


@contextmanager
def deployed(session: Any, emulator: Emulator, store: str, architecture: str) -> Iterator[Deployment]:
    """The template, deployed with the ledger at `store`; deleted in the end."""
    stack = f"duecourse-e2e-{secrets.token_hex(4)}"
    cloudformation, bucket = session.client("cloudformation"), f"{stack}-code"
    secret = session.client("secretsmanager").create_secret(Name=f"{stack}/redis-url", SecretString=store)
    session.client("ses").verify_email_identity(EmailAddress=SENDER)
    session.client("s3").create_bucket(Bucket=bucket)
    given = {"Architecture": architecture, "RedisUrlSecret": secret["Name"], "MailFrom": SENDER, "MailIdentity": SENDER}
    given |= {"Namespace": stack, "Concurrency": "0", "Precision": "bridge"}  # which runs beside the harness
    given["EgressAllow"] = LOOPBACK  # where the stories' servers are
    template = packaged(session.client("s3"), bucket, emulator, given)
    with created(cloudformation, stack, template, given) as names:
        yield Deployment(stack, names)


@contextmanager
def created(
    cloudformation: Any, stack: str, template: dict[str, Any], given: Mapping[str, str]
) -> Iterator[Mapping[str, str]]:
    """A stack that CloudFormation has made, and what its resources are called; deleted in the end."""
    try:
        cloudformation.create_stack(
            StackName=stack,
            TemplateBody=json.dumps(template),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
        until(lambda: _ended(cloudformation, stack), seconds=300, every=0.5)
        yield resources_of(cloudformation, stack)
    finally:
        cloudformation.delete_stack(StackName=stack)


def resources_of(cloudformation: Any, stack: str) -> dict[str, str]:
    """Physical names of a stack's resources by logical id."""
    resources = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    return {r["LogicalResourceId"]: r.get("PhysicalResourceId", "") for r in resources}


def _ended(cloudformation: Any, stack: str) -> bool:
    [found] = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    status = found["StackStatus"]
    if status.endswith(ENDED) and status != "CREATE_COMPLETE":
        failed = [
            (event["LogicalResourceId"], event.get("ResourceStatusReason"))
            for event in cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
            if event["ResourceStatus"].endswith("FAILED")
        ]
        raise AssertionError(f"{stack} is {status}: {failed}")
    return bool(status == "CREATE_COMPLETE")


def packaged(s3: Any, bucket: str, emulator: Emulator, given: Mapping[str, str], built: Path = BUILT) -> dict[str, Any]:
    """A built template with its code in the bucket, less what the emulator does not know."""
    template = without_the_absent(json.loads(cfn_flip.to_json(built.read_text())), given)
    resources, folder = template["Resources"], built.parent
    layers = {name: folder / r["Properties"]["ContentUri"] for name, r in resources.items() if r["Type"] == LAYER}
    folded = [] if emulator.layers else list(layers.values())
    for name, resource in resources.items():
        key = {FUNCTION: "CodeUri", LAYER: "ContentUri"}.get(resource["Type"])
        if key:
            within = folded if resource["Type"] == FUNCTION else []
            s3.put_object(Bucket=bucket, Key=name, Body=zipped(folder / resource["Properties"][key], within))
            resource["Properties"][key] = f"s3://{bucket}/{name}"
    if not emulator.layers:
        template["Globals"]["Function"].pop("Layers", None)
        for resource in resources.values():
            resource.get("Properties", {}).pop("Layers", None)
        for name in layers:
            del resources[name]
    return template if emulator.http_api else without_api(template)


def without_the_absent(template: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The template less what its conditions leave out: LocalStack trips over what else refers to that."""
    defaults = {name: parameter.get("Default") for name, parameter in template["Parameters"].items()}
    names = {**defaults, "TargetArns": [], "TargetQueueArns": [], "SubnetIds": [], "SecurityGroupIds": [], **given}
    holds = Resolver(template, names=names.__getitem__, attributes=lambda _id, _name: "", secret="").holds
    kept = {
        part: {name: one for name, one in template[part].items() if "Condition" not in one or holds(one["Condition"])}
        for part in ("Resources", "Outputs")
    }
    return {**template, **kept}


def without_api(template: dict[str, Any]) -> dict[str, Any]:
    """The template less its HTTP API, its events and what refers to it."""
    resources = template["Resources"]
    apis = {name for name, r in resources.items() if r["Type"] == "AWS::Serverless::HttpApi"}
    for resource in resources.values():
        events = resource.get("Properties", {}).get("Events", {})
        for name in [name for name, event in events.items() if event["Type"] == "HttpApi"]:
            del events[name]
    outputs = {name: o for name, o in template["Outputs"].items() if not _names(o, apis)}
    let_in = {name for name, r in resources.items() if r["Type"] == "AWS::Lambda::Permission" and _names(r, apis)}
    kept = {name: resource for name, resource in resources.items() if name not in apis | let_in}
    return {**template, "Resources": kept, "Outputs": outputs}


def _names(part: Any, apis: Iterable[str]) -> bool:
    """Whether a part of the template refers to one of the APIs."""
    return any(f"{{{api}}}" in json.dumps(part) for api in apis)


def zipped(folder: Path, layers: list[Path]) -> bytes:
    """A function's (or a layer's) archive, the layers' own packages beside its code."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for root in [folder, *(layer / "python" for layer in layers)]:
            for path in sorted(p for p in root.rglob("*") if p.is_file()):
                archive.write(path, path.relative_to(root))
    return made.getvalue()
